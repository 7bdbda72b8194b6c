"""A Mach-O image (``libtorch_cpu.dylib``): its bytes by address, its symbols, its functions."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lief

from opcheck.common import documents
from opcheck.common.errors import OpListError

_HINT = "give a macOS arm64 wheel of torch as the package index serves it"


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
            raise OpListError("the library has no __text section", hint=_HINT)
        self.text = text[0]

    @classmethod
    def parse(cls, path: Path) -> Image:
        """Read a thin arm64 dynamic library.

        Raises:
            OpListError: not Mach-O, or not (only) for arm64.
        """
        # Bindings, rebases and exports take most of the parser's time and are not needed here.
        config = lief.MachO.ParserConfig.quick
        fat = lief.MachO.parse(str(path), config)
        binary = fat.at(0) if fat is not None and fat.size == 1 else None
        if binary is None or binary.header.cpu_type != lief.MachO.Header.CPU_TYPE.ARM64:
            raise OpListError(
                "not a thin arm64 Mach-O library: MPS exists on Apple silicon only",
                context=path.name,
                hint=_HINT,
            )
        names: dict[int, list[str]] = {}
        for symbol in binary.symbols:
            if symbol.value:
                names.setdefault(symbol.value, []).append(str(symbol.name))
        sections = (
            Section(str(s.segment_name), str(s.name), s.virtual_address, s.size, s.offset)
            for s in binary.sections
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
            if (
                section.segment == "__TEXT"
                and section.name in {"__cstring", "__const"}
                and section.address <= address < section.address + section.size
            ):
                start = section.offset + address - section.address
                end = self._data.find(b"\0", start)
                return self._data[start:end].decode("utf-8", "replace")
        return None

    def strings(self, prefix: bytes) -> Iterator[str]:
        """Return every C string of the library with a given beginning."""
        for section in self.sections:
            if section.name not in {"__cstring", "__const"}:
                continue
            stop = section.offset + section.size
            at = self._data.find(prefix, section.offset, stop)
            while at >= 0:
                end = self._data.find(b"\0", at)
                yield self._data[at:end].decode("utf-8", "replace")
                at = self._data.find(prefix, end, stop)

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
