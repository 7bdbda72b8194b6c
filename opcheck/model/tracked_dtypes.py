"""The dtypes whose origin is worth knowing: no release of MPS, or not every one, takes them."""

from __future__ import annotations

from typing import NamedTuple

from opcheck.common.names import DTYPES


class Trait(NamedTuple):
    """A property that is tracked: having one of these dtypes.  A complex128 tensor is float64 and complex."""

    name: str
    dtypes: frozenset[str]


def _dtypes_of_kind(kind: str) -> frozenset[str]:
    return frozenset(name for name, dtype in DTYPES.items() if dtype.kind == kind)


TRAITS = (
    Trait("float64", frozenset({"float64", "complex128"})),
    Trait("complex", _dtypes_of_kind("complex")),
    Trait("complex32", frozenset({"complex32"})),
    Trait("unsigned", _dtypes_of_kind("unsigned")),
    Trait("float8", _dtypes_of_kind("float8")),
)

BY_NAME = {trait.name: trait for trait in TRAITS}

#: Every dtype that is tracked.
WATCHED = frozenset[str]().union(*(trait.dtypes for trait in TRAITS))
