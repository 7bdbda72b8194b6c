"""A Mach-O image: its bytes by address, its symbols, its functions, and the constants that their code makes."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lief
import numpy as np

from opcheck.common import documents
from opcheck.common.grouping import group_values
from opcheck.common.yaml_text import load_shipped
from opcheck.data.wheels.damage import damage

#: The sections with the texts of a library.
_TEXTS = frozenset({"__cstring", "__const"})


class Section(NamedTuple):
    """A run of bytes of the file and the address that it is loaded at."""

    segment: str
    name: str
    address: int
    size: int
    offset: int


class Image:
    """The parts of a dynamic library that a static reading needs."""

    def __init__(
        self,
        data: bytes,
        sections: Iterable[Section],
        symbols: dict[int, tuple[str, ...]],
        imports: dict[int, str] | None = None,
    ) -> None:
        """Store the bytes, the sections, the symbol names at each address, and the stubs."""
        self._data = data
        self.sections = tuple(sections)
        self.symbols = symbols
        #: address of a stub in __stubs -> the function of another library that it jumps to.
        self.imports = imports or {}
        self._addresses = sorted(symbols)
        text = [section for section in self.sections if section.name == "__text"]
        if len(text) != 1:
            raise damage("no_text", "")
        self.text = text[0]

    @classmethod
    def parse(cls, path: Path) -> Image:
        """Read a thin arm64 dynamic library.

        Raises:
            OpListError: not Mach-O, or not (only) for arm64.
        """
        # Bindings, rebases and exports take most of the parser's time and are not needed here.
        fat = lief.MachO.parse(str(path), lief.MachO.ParserConfig.quick)
        binary = fat.at(0) if fat is not None and fat.size == 1 else None
        if binary is None or binary.header.cpu_type != lief.MachO.Header.CPU_TYPE.ARM64:
            raise damage("not_arm64", path.name)
        names = group_values((symbol.value, str(symbol.name)) for symbol in binary.symbols if symbol.value)
        sections = (
            Section(str(s.segment_name), str(s.name), s.virtual_address, s.size, s.offset) for s in binary.sections
        )
        # Sorted: the choice among names at an address must not depend on the symbol table's order.
        symbols = {at: tuple(sorted(n)) for at, n in names.items()}
        return cls(documents.read(path, documents.MOST_LARGE), sections, symbols, _imports(binary))

    def bytes_of(self, section: Section) -> bytes:
        """Return the bytes of a section in the file."""
        return self._data[section.offset : section.offset + section.size]

    def in_text(self, address: int) -> bool:
        """Return whether the address lies in the code."""
        return self.text.address <= address < self.text.address + self.text.size

    def names_at(self, address: int) -> tuple[str, ...]:
        """Return the symbols that begin exactly at the address."""
        return self.symbols.get(address, ())

    def owner(self, address: int) -> tuple[str, int] | None:
        """Return the nearest symbol at or below the address, and the offset of the address from it."""
        index = bisect.bisect_right(self._addresses, address) - 1
        if index < 0:
            return None
        start = self._addresses[index]
        return self.symbols[start][0], address - start

    def code(self, address: int) -> bytes:
        """Return the bytes of the function at the address, up to the next symbol."""
        index = bisect.bisect_right(self._addresses, address)
        text_end = self.text.address + self.text.size
        end = min(self._addresses[index], text_end) if index < len(self._addresses) else text_end
        start = self.text.offset + address - self.text.address
        return self._data[start : start + end - address]

    def string(self, address: int) -> str | None:
        """Return the C string at the address; None where the address is in no string section."""
        for section in self.sections:
            is_inside = section.address <= address < section.address + section.size
            if is_inside and section.segment == "__TEXT" and section.name in _TEXTS:
                return self._text_at(section.offset + address - section.address)
        return None

    def _text_at(self, start: int) -> str:
        return self._data[start : self._data.find(b"\0", start)].decode("utf-8", "replace")

    def strings(self, prefix: bytes) -> Iterator[str]:
        """Return every C string of the library with a given beginning."""
        for section in self.sections:
            stop = section.offset + section.size
            at = self._data.find(prefix, section.offset, stop) if section.name in _TEXTS else -1
            while at >= 0:
                yield self._text_at(at)
                at = self._data.find(prefix, self._data.find(b"\0", at), stop)

    def matching(self, *parts: str) -> Iterator[tuple[int, str]]:
        """Return the symbols in the code whose names contain all of the parts, by address."""
        for address in self._addresses:
            if self.in_text(address):
                for name in self.symbols[address]:
                    if all(part in name for part in parts):
                        yield address, name


def _imports(binary: Any) -> dict[int, str]:
    """Return the functions behind the stubs: mach-o/loader.h, S_SYMBOL_STUBS.

    reserved1 of the section is its first entry in the table of indirect symbols, reserved2 the
    size of a stub.
    """
    table = binary.dynamic_symbol_command
    symbols = list(table.indirect_symbols) if table is not None else []
    stubs = {}
    for section in binary.sections:
        if str(section.name) != "__stubs" or not section.reserved2:
            continue
        for index in range(section.size // section.reserved2):
            at = section.reserved1 + index
            if at < len(symbols) and symbols[at] is not None:
                address = section.virtual_address + index * section.reserved2
                stubs[address] = str(symbols[at].name)
    return stubs


# -- follow constants through straight-line arm64 code, without executing it --
# An ``m.impl("name", kernel)`` is compiled to: build the two addresses (ADRP + ADD, or one ADR where
# the linker found the target within 1 MB), store the kernel into a record on the stack, call
# ``Library::_impl``.  Reading that needs a handful of instruction forms, and only the overwritten
# registers of every other instruction.  This module decodes them with numpy masks, because a
# disassembler's operand objects take a quarter of a minute for the million instructions of a
# release; the tests compare the decoder with capstone.

_ZERO_OR_SP = 31
#: AAPCS64: a call may overwrite x0-x18, and sets the link register; x19-x28 survive it.
_OVERWRITTEN_BY_CALL = (*range(19), 30)

# The register fields of an instruction word, by the bit that each begins at.
_RD, _RN, _RT2, _RS = 0, 5, 10, 16
#: Arm A64 encodings: form -> mask, value, the fields of registers that become unknown.
_FORMS: dict[str, tuple[int, int, list[int]]] = load_shipped(__file__, "arm64_forms.yaml")
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
        for index, word, form in zip(kept.tolist(), words[kept].tolist(), forms[kept].tolist(), strict=True)
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
