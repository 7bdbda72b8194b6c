"""The names of operators and of dtypes, spelled as PyTorch spells them."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

import msgspec

from opcheck.common.errors import UsageError

_PATTERN = re.compile(
    r"(?P<namespace>[A-Za-z_]\w*)::(?P<name>[A-Za-z_]\w*)(?:\.(?P<overload>[A-Za-z_]\w*))?"
)


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
            raise UsageError(
                f"not an operator name: {text!r}",
                hint="write it as the dispatcher does: aten::mm or aten::add.Tensor",
            )
        return cls(
            namespace=match["namespace"], name=match["name"], overload=match["overload"] or ""
        )

    @classmethod
    def parse_fx(cls, text: str) -> OperatorName:
        """Read the FX spelling (``aten.mm.default``, ``aten.add.Tensor``).

        Raises:
            UsageError: the text does not have the three parts.
        """
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isidentifier() for part in parts):
            raise UsageError(
                f"not an FX operator name: {text!r}",
                hint="FX writes namespace.name.overload: aten.mm.default",
            )
        namespace, name, overload = parts
        return cls(
            namespace=namespace, name=name, overload="" if overload == "default" else overload
        )

    def __str__(self) -> str:
        """Return the dispatcher's spelling; ``parse`` reads it back."""
        suffix = f".{self.overload}" if self.overload else ""
        return f"{self.namespace}::{self.name}{suffix}"

    @property
    def fx(self) -> str:
        """Return the FX spelling; ``parse_fx`` reads it back."""
        return f"{self.namespace}.{self.name}.{self.overload or 'default'}"


class DType(NamedTuple):
    """A dtype: its size in bytes and what kind of number it holds."""

    name: str
    itemsize: int
    kind: str


#: c10/core/ScalarType.h (torch 2.15): the dtypes that a strided tensor can have.
DTYPES: dict[str, DType] = {
    name: DType(name, itemsize, kind)
    for kind, sizes in {
        "bool": {"bool": 1},
        "int": {"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8},
        "unsigned": {"uint16": 2, "uint32": 4, "uint64": 8},
        "float": {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8},
        "complex": {"complex32": 4, "complex64": 8, "complex128": 16},
        "float8": {
            "float8_e4m3fn": 1,
            "float8_e5m2": 1,
            "float8_e4m3fnuz": 1,
            "float8_e5m2fnuz": 1,
            "float8_e8m0fnu": 1,
        },
        "quantized": {"qint8": 1, "quint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1},
        # Shells: they name bits, and no operator of ATen computes in them (torch 2.3 and later).
        "sub_byte": {
            **{f"{sign}int{bits}": 1 for sign in ("u", "") for bits in range(1, 8)},
            "float4_e2m1fn_x2": 1,
            **dict.fromkeys(("bits1x8", "bits2x4", "bits4x2", "bits8"), 1),
            "bits16": 2,
        },
    }.items()
    for name, itemsize in sizes.items()
}

#: c10/core/ScalarType.h: how C++ writes a dtype.
_CPP_NAMES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "bfloat16": "BFloat16",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float8_e4m3fn": "Float8_e4m3fn",
    "float8_e5m2": "Float8_e5m2",
    "float8_e4m3fnuz": "Float8_e4m3fnuz",
    "float8_e5m2fnuz": "Float8_e5m2fnuz",
}

#: Other names of dtypes: torch's own, and those that people write.
DTYPE_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "single": "float32",
    "byte": "uint8",
    "char": "int8",
    "boolean": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "c64": "complex64",
    "c128": "complex128",
    "complex": "complex64",
}


def cpp_name(dtype: str) -> str:
    """Return how C++ writes a dtype: ``Half`` for float16; the dtype itself where C++ has no other name."""
    return _CPP_NAMES.get(dtype, dtype)


def parse_dtype(text: str) -> str:
    """Return the canonical name of a dtype given as ``float32``, ``torch.float32``, ``half``, ``bf16`` ...

    Raises:
        UsageError: no dtype has that name.
    """
    name = text.strip().removeprefix("torch.").lower()
    name = DTYPE_ALIASES.get(name, name)
    if name not in DTYPES:
        near = difflib.get_close_matches(name, [*DTYPES, *DTYPE_ALIASES], 1)
        suggestion = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown dtype: {text!r}", hint=f"{suggestion}known: {', '.join(DTYPES)}")
    return name
