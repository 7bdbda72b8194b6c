"""Expected failures that are the CPU's own: op_lists/opinfo/reference.yaml.  No torch."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import msgspec

from opcheck.common.errors import OpListError
from opcheck.data.registrations import data_directory
from opcheck.data.strict_yaml import read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FILE = "opinfo/reference.yaml"
_HEAD = """\
# Expected failures in which the CPU itself raises, so that they say nothing of MPS: pass, OpInfo, dtypes.
# Written by scripts/opinfo_reference.py with the torch named here; README.md says how it is used.
"""


class Reference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the CPU of one release refuses."""

    schema: int
    torch: str
    #: pass -> OpInfo -> dtypes
    raises: dict[str, dict[str, tuple[str, ...]]]

    def explains(self, kind: str, opinfo: str, dtype: str) -> bool:
        """Whether the CPU raises in this test."""
        kinds = ("forward",) if kind == "forward" else ("forward", kind)
        return any(dtype in self.raises.get(text, {}).get(opinfo, ()) for text in kinds)


@functools.cache
def load(directory: Path | None = None) -> Reference:
    """The file.

    Raises:
        OpListError: it is missing, damaged, or has a field of no known form.
    """
    path = (directory or data_directory()) / FILE
    document = read(path, str(path))
    problems = [str(problem) for problem in document.problems]
    if not problems:
        try:
            return msgspec.convert(document.value, Reference)
        except msgspec.ValidationError as error:
            problems = [f"{path}: {error}"]
    raise OpListError(
        "what the CPU refuses cannot be read",
        context="; ".join(problems),
        hint="python -m scripts.opinfo_reference writes it",
    )


def write(torch: str, raises: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Write the file, one OpInfo a line."""
    lines = [f'{_HEAD}schema: 1\ntorch: "{torch}"\nraises:\n']
    for kind, rows in raises.items():
        lines.append(f"  {kind}:\n" if rows else f"  {kind}: {{}}\n")
        lines += [
            f"    {json.dumps(name)}: [{', '.join(dtypes)}]\n"
            for name, dtypes in sorted(rows.items())
        ]
    (data_directory() / FILE).write_text("".join(lines), encoding="utf-8")
