"""Follow constants through straight-line arm64 code, without executing it.

An ``m.impl("name", kernel)`` is compiled to: build the two addresses (ADRP + ADD, or one ADR where
the linker found the target within 1 MB), store the kernel into a record on the stack, call
``Library::_impl``.  Reading that needs a handful of instruction forms, and only the overwritten
registers of every other instruction.  This module decodes them with numpy masks, because a
disassembler's operand objects take a quarter of a minute for the million instructions of a
release; the tests compare the decoder with capstone.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_ZERO_OR_SP = 31
#: AAPCS64: a call may overwrite x0-x18, and sets the link register; x19-x28 survive it.
_OVERWRITTEN_BY_CALL = (*range(19), 30)

# The register fields of an instruction word, by the bit that each begins at.
_RD, _RN, _RT2, _RS = 0, 5, 10, 16
#: Arm A64 encodings: form -> (mask, value, the fields of registers that become unknown).  A later row wins, so the
#: general classes come first.
_FORMS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    # These only count for the registers that they overwrite.
    "immediate": (0x1C000000, 0x10000000, (_RD,)),
    "register": (0x0E000000, 0x0A000000, (_RD,)),
    "vector": (0x0E000000, 0x0E000000, (_RD,)),
    "system": (0xFFE00000, 0xD5200000, (_RD,)),
    "access": (0x0E000000, 0x08000000, (_RD,)),
    "exclusive": (0x3F000000, 0x08000000, (_RD, _RT2, _RS)),
    "access_pair": (0x3E000000, 0x28000000, (_RD, _RT2)),
    "access_indexed": (0x3B200400, 0x38000400, (_RD, _RN)),
    "access_pair_indexed": (0x3A800000, 0x28800000, (_RD, _RT2, _RN)),
    "access_structure": (0xBE800000, 0x0C800000, (_RN,)),
    "access_authenticated": (0xFF200400, 0xF8200400, (_RD, _RN)),
    "access_tag": (0xFF200000, 0xD9200000, (_RD, _RN)),
    # These are followed.
    "adrp": (0x9F000000, 0x90000000, ()),
    "adr": (0x9F000000, 0x10000000, ()),
    "add": (0xFF800000, 0x91000000, ()),
    "mov": (0xFFE0FFE0, 0xAA0003E0, ()),
    "str": (0xFFC00000, 0xF9000000, ()),
    "str_unscaled": (0xFFE00C00, 0xF8000000, ()),
    "str_post": (0xFFE00C00, 0xF8000400, (_RN,)),
    "str_pre": (0xFFE00C00, 0xF8000C00, (_RN,)),
    "stp": (0xFFC00000, 0xA9000000, ()),
    "stp_post": (0xFFC00000, 0xA8800000, (_RN,)),
    "stp_pre": (0xFFC00000, 0xA9800000, (_RN,)),
    "bl": (0xFC000000, 0x94000000, ()),
    "blr": (0xFFFFFC1F, 0xD63F0000, ()),
}
_NAMES = ("", *_FORMS)


class Address(NamedTuple):
    """An address that the code materialised in a register."""

    value: int


class Store(NamedTuple):
    """A store of a known value; ``address`` is None where the place is unknown (the stack)."""

    value: int
    address: int | None


class LinkedCall(NamedTuple):
    """A ``bl``, with the constants that its registers held."""

    target: int
    registers: dict[int, int]


Event = Address | Store | LinkedCall


def decode(code: bytes) -> list[tuple[int, int, str]]:
    """Yield (index, word, form) of each instruction that matches a form."""
    words = np.frombuffer(code[: len(code) & ~3], dtype="<u4")
    forms = np.zeros(len(words), dtype=np.uint8)
    for number, (mask, value, _) in enumerate(_FORMS.values(), 1):
        forms[(words & np.uint32(mask)) == value] = number
    kept = np.nonzero(forms)[0]
    return [
        (index, word, _NAMES[form])
        for index, word, form in zip(
            kept.tolist(), words[kept].tolist(), forms[kept].tolist(), strict=True
        )
    ]


def run(code: bytes, start: int) -> Iterator[Event]:
    """Yield the events of a linear pass over the function, without following branches.

    Initialisers are straight-line code except for exception clean-up, which comes after the last
    ``ret`` and registers nothing.
    """
    known: dict[int, int] = {}
    for index, word, form in decode(code):
        pc = start + 4 * index
        if form in {"bl", "blr"}:
            if form == "bl":
                yield LinkedCall(pc + _extend_sign(word & 0x3FFFFFF, 26) * 4, dict(known))
            for register in _OVERWRITTEN_BY_CALL:
                known.pop(register, None)
            continue
        if form.startswith("st"):
            yield from _stores(word, form, known)
        for field in _FORMS[form][2]:
            known.pop(word >> field & 31, None)
        if form in {"adrp", "adr", "add", "mov"}:
            value = _value(word, form, pc, known)
            rd = word & 31
            known.pop(rd, None)
            if value is not None and rd != _ZERO_OR_SP:
                known[rd] = value
                # ADRP alone is only a page; the ADD or the store's offset completes it.
                if form in {"add", "adr"}:
                    yield Address(value)


def _value(word: int, form: str, pc: int, known: dict[int, int]) -> int | None:
    rn = word >> _RN & 31
    if form in {"adrp", "adr"}:
        offset = _extend_sign((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
        return (pc & ~0xFFF) + (offset << 12) if form == "adrp" else pc + offset
    if form == "add":
        shift = 12 if word >> 22 & 1 else 0
        return known[rn] + ((word >> 10 & 0xFFF) << shift) if rn in known else None
    return known.get(word >> _RS & 31)


def _stores(word: int, form: str, known: dict[int, int]) -> Iterator[Store]:
    base = known.get(word >> _RN & 31)
    stored: tuple[tuple[int, int], ...]
    if form.startswith("stp"):
        first = 0 if form == "stp_post" else _extend_sign(word >> 15 & 0x7F, 7) * 8
        stored = ((word & 31, first), (word >> _RT2 & 31, first + 8))
    elif form == "str":
        stored = ((word & 31, (word >> 10 & 0xFFF) * 8),)
    else:
        stored = ((word & 31, 0 if form == "str_post" else _extend_sign(word >> 12 & 0x1FF, 9)),)
    for register, offset in stored:
        if register in known:
            yield Store(known[register], None if base is None else base + offset)


def _extend_sign(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
