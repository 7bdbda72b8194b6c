"""The names of operators and of dtypes, spelled as PyTorch spells them."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.common.errors import UsageError
from opcheck.common.text import and_more
from opcheck.common.yaml_text import load_shipped

_PATTERN = re.compile(r"(?P<namespace>[A-Za-z_]\w*)::(?P<name>[A-Za-z_]\w*)(?:\.(?P<overload>[A-Za-z_]\w*))?")
#: The dtypes that an error names: the others are rare.
_USUAL = 16


class OperatorName(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One operator overload, such as ``aten::add.Tensor``; ``overload`` is empty for the default."""

    namespace: str
    name: str
    overload: str = ""

    @classmethod
    def parse(cls, text: str) -> OperatorName:
        """Read the dispatcher's spelling (``aten::mm``, ``aten::add.Tensor``).

        Raises:
            UsageError: the text is not of that form.
        """
        match = _PATTERN.fullmatch(text)
        # The dispatcher writes the default overload as nothing at all; ".default" is FX's word for it.
        if match is None or match["overload"] == "default":
            hint = "write it as the dispatcher does: aten::mm or aten::add.Tensor"
            raise UsageError(f"not an operator name: {text!r}", hint=hint)
        return cls(namespace=match["namespace"], name=match["name"], overload=match["overload"] or "")

    def __str__(self) -> str:
        """Return the dispatcher's spelling; ``parse`` reads it back."""
        suffix = f".{self.overload}" if self.overload else ""
        return f"{self.namespace}::{self.name}{suffix}"


class DType(NamedTuple):
    """A dtype: its size in bytes and its kind of number."""

    name: str
    itemsize: int
    kind: str


_ROWS: dict[str, dict[str, Any]] = load_shipped(Path(__file__).with_name("dtypes.yaml"))
#: The dtypes that a strided tensor can have.
DTYPES = {name: DType(name, row["bytes"], row["kind"]) for name, row in _ROWS.items()}
#: Other names of dtypes: torch's own, and those that people write.
DTYPE_ALIASES: dict[str, str] = {alias: name for name, row in _ROWS.items() for alias in row.get("also", ())}


def cpp_name(dtype: str) -> str:
    """Return how C++ writes a dtype: ``Half`` for float16; the dtype itself where C++ has no other name."""
    return str(_ROWS.get(dtype, {}).get("cpp", dtype))


def parse_dtype(text: str) -> str:
    """Return the canonical name of a dtype given as ``float32``, ``torch.float32``, ``half``, ``bf16`` ...

    Raises:
        UsageError: no dtype has that name.
    """
    name = text.strip().removeprefix("torch.").lower()
    name = DTYPE_ALIASES.get(name, name)
    if name not in DTYPES:
        near = difflib.get_close_matches(name, [*DTYPES, *DTYPE_ALIASES], 1)
        usual = f"known: {and_more([*DTYPES], _USUAL)}"
        hint = f"did you mean {near[0]}?" if near else usual
        raise UsageError(f"unknown dtype: {text!r}", hint=hint)
    return name
