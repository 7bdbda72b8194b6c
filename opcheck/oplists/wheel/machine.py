"""Follow constants through straight-line arm64 code, without executing it.

An ``m.impl("name", kernel)`` is compiled to: build the two addresses (ADRP + ADD, or one ADR where
the linker found the target within 1 MB), store the kernel into a record on the stack, call
``Library::_impl``.  Reading that needs nine instruction forms.  They are decoded here, a numpy
mask at a time, because a disassembler's operand objects take a quarter of a minute for the million
instructions of a release; the tests hold the decoder against capstone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

_ZERO_OR_SP = 31
_LINK = 30
#: AAPCS64: a call may overwrite x0-x18; x19-x28 survive it.
_CALLER_SAVED = range(19)

# Arm A64 encodings: name -> (mask, value).  Later rows win, so the general classes come first.
_FORMS = {
    "writes_rd_imm": (0x1C000000, 0x10000000),
    "writes_rd_reg": (0x0E000000, 0x0A000000),
    "load": (0x0E400000, 0x08400000),
    "load_pair": (0x3E400000, 0x28400000),
    "adrp": (0x9F000000, 0x90000000),
    "adr": (0x9F000000, 0x10000000),
    "add_imm": (0xFF800000, 0x91000000),
    "mov_reg": (0xFFE0FFE0, 0xAA0003E0),
    "str": (0xFFC00000, 0xF9000000),
    "stur": (0xFFE00C00, 0xF8000000),
    "str_post": (0xFFE00C00, 0xF8000400),
    "str_pre": (0xFFE00C00, 0xF8000C00),
    "stp": (0xFFC00000, 0xA9000000),
    "stp_post": (0xFFC00000, 0xA8800000),
    "stp_pre": (0xFFC00000, 0xA9800000),
    "bl": (0xFC000000, 0x94000000),
}
_NAMES = ("", *_FORMS)


class Address(NamedTuple):
    """An address that the code materialised in a register."""

    value: int


class Store(NamedTuple):
    """A known value stored; ``address`` is None where the place is not known (the stack)."""

    value: int
    address: int | None


class Call(NamedTuple):
    """A ``bl``, with the constants that its registers held."""

    target: int
    registers: dict[int, int]


Event = Address | Store | Call


def decode(code: bytes) -> list[tuple[int, int, str]]:
    """(index, word, form) of each instruction that one of the known forms describes."""
    words = np.frombuffer(code[: len(code) & ~3], dtype="<u4")
    forms = np.zeros(len(words), dtype=np.uint8)
    for number, (mask, value) in enumerate(_FORMS.values(), 1):
        forms[(words & np.uint32(mask)) == value] = number
    kept = np.nonzero(forms)[0]
    return [
        (index, word, _NAMES[form])
        for index, word, form in zip(
            kept.tolist(), words[kept].tolist(), forms[kept].tolist(), strict=True
        )
    ]


def run(code: bytes, start: int) -> Iterator[Event]:
    """What a linear pass over the function sees; branches are not followed.

    Initialisers are straight-line but for exception clean-up, which comes after the last ``ret``
    and registers nothing.
    """
    known: dict[int, int] = {}
    for index, word, form in decode(code):
        pc = start + 4 * index
        rd, rn = word & 31, word >> 5 & 31
        if form == "bl":
            yield Call(pc + _signed(word & 0x3FFFFFF, 26) * 4, dict(known))
            for register in (*_CALLER_SAVED, _LINK):
                known.pop(register, None)
        elif form.startswith("st"):
            yield from _stores(word, form, known)
        elif form == "load_pair":
            known.pop(rd, None)
            known.pop(word >> 10 & 31, None)
        else:
            value = _value(word, form, pc, known)
            if value is None or rd == _ZERO_OR_SP:
                known.pop(rd, None)
            else:
                known[rd] = value
                # ADRP alone is only a page; the ADD or the store's offset completes it.
                if form in {"add_imm", "adr"}:
                    yield Address(value)
        if form.endswith(("_post", "_pre")):
            known.pop(rn, None)


def _value(word: int, form: str, pc: int, known: dict[int, int]) -> int | None:
    rn = word >> 5 & 31
    if form in {"adrp", "adr"}:
        offset = _signed((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3, 21)
        return (pc & ~0xFFF) + (offset << 12) if form == "adrp" else pc + offset
    if form == "add_imm" and rn in known:
        return known[rn] + ((word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0))
    if form == "mov_reg":
        return known.get(word >> 16 & 31)
    return None


def _stores(word: int, form: str, known: dict[int, int]) -> Iterator[Store]:
    base = known.get(word >> 5 & 31)
    if form.startswith("stp"):
        offset = 0 if form == "stp_post" else _signed(word >> 15 & 0x7F, 7) * 8
        registers = {word & 31: offset, word >> 10 & 31: offset + 8}
    else:
        unscaled = 0 if form == "str_post" else _signed(word >> 12 & 0x1FF, 9)
        registers = {word & 31: (word >> 10 & 0xFFF) * 8 if form == "str" else unscaled}
    for register, offset in registers.items():
        if register in known:
            yield Store(known[register], None if base is None else base + offset)


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value
