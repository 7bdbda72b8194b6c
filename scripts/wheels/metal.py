"""The compiled Metal kernels of a library, and the dtypes that their names contain.

PyTorch writes a kernel as a template and registers a function with its own name for each dtype
(``add_dense_float_half``; aten/src/ATen/native/mps/kernels/*.metal, ``host_name``).  A dtype in a
name is evidence that a kernel exists.  A missing name is no evidence against support: kernels that
cast, and operators that use MPSGraph, have no separate names.
"""

import re
from collections.abc import Iterable, Mapping

from opcheck.common.names import DTYPES
from opcheck.data.wheels.image import Image
from opcheck.data.wheels.metallib import functions
from opcheck.kernels.kernel_names import WORDS

#: metal_bfloat holds what metal_basic does and bfloat16 besides (2.6 to 2.8); metal_40 is the
#: variant for Metal 4 (from 2.12 on).  Before 2.6 kernels are source text, compiled on the Mac.
SECTIONS = ("metal_basic", "metal_bfloat", "metal_40")

_ORDER = {name: place for place, name in enumerate(DTYPES)}
#: Words for a kernel's memory access; kernels that differ only in them belong to the same family.
_LAYOUT = {
    *("dense", "strided", "cast", "castout", "scalar", "lhs", "rhs", "broadcast", "inner", "dim"),
    *("contiguous", "outer", "narrow", "flat", "ilp", "ilp4", "vec", "small"),
}
#: Tile sizes and the like: one kernel is compiled for each.
_SIZE = re.compile(r"[a-z]{0,8}\d+")
#: Numbers that are part of an operation's name.
_NAMED = re.compile(r"(?:exp2|log2|log10|i0|i0e|i1|i1e|[jyk][01]|[123]d|atan2|log1p|expm1|logaddexp2|logical\d)")
#: The placeholder for a dtype in a family's name.
ANY = "*"
#: The placeholder for sizes in a family's name.
SIZES = "#"


def family(name: str) -> tuple[str, tuple[str, ...]]:
    """Return a kernel's name with ``*`` for each dtype, and these dtypes in their order.

    ``add_dense_float_half`` belongs to the family ``add_*_*``, for float32 and float16: words for the
    layout are left out, and a single ``#`` replaces all sizes in the name.
    """
    words, dtypes = [], []
    for word in name.split("_"):
        if word in WORDS:
            dtypes.append(WORDS[word])
            words.append(ANY)
        elif _SIZE.fullmatch(word) and not _NAMED.fullmatch(word):
            words += [SIZES] if not words or words[-1] != SIZES else []
        elif word not in _LAYOUT:
            words.append(word)
    return "_".join(words), tuple(dtypes)


def families(names: Iterable[str]) -> dict[str, str]:
    """Return each family with a dtype in its name, and the dtypes of each of its places.

    The value is ``float16 float32 | int64`` for a family of two places.  It does not record which
    combinations exist.  Kernels without a dtype in their name are left out.
    """
    by_family: dict[str, tuple[set[str], ...]] = {}
    for name in names:
        key, dtypes = family(name)
        if dtypes:
            places = by_family.setdefault(key, tuple(set() for _ in dtypes))
            for place, dtype in zip(places, dtypes, strict=True):
                place.add(dtype)
    return {key: dumped(by_family[key]) for key in sorted(by_family)}


def dumped(places: Iterable[Iterable[str]]) -> str:
    """Return the text of a family's dtypes."""
    return " | ".join(" ".join(sorted(place, key=_ORDER.__getitem__)) for place in places)


def metal_families(image: Image) -> Mapping[str, str]:
    """Return the families of all Metal sections of a library; empty where it has none.

    Raises:
        OpListError: a section cannot be read.
    """
    names: set[str] = set()
    for section in image.sections:
        if section.name in SECTIONS:
            names.update(each.name for each in functions(image.bytes_of(section)))
    return families(names)
