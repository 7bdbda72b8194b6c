"""The container of compiled Metal functions: its sections in a dylib, its functions, their bitcode.

A metallib begins with MTLB and nine little-endian 64-bit numbers: its size, then offset and size
of the list of functions, of the public and private metadata, and of the bitcode.
"""

import struct

import msgspec

from opcheck.data.wheels.damage import damage

_MAGIC = b"MTLB"
#: In the header: the offsets of the list of functions and of the bitcode.
_FUNCTIONS_AT, _BITCODE_AT = 0x18, 0x48
#: Mach-O: the size of the 64-bit header, the load command of a 64-bit segment, and the size of
#: the segment command before its sections, and the size of a section's entry (mach-o/loader.h).
_MACH_HEADER, _SEGMENT, _SEGMENT_HEADER, _SECTION = 32, 0x19, 72, 80
_MACH_MAGIC = 0xFEEDFACF


class Function(msgspec.Struct, frozen=True):
    """A compiled function: its name, the SHA-256 of its bitcode, its bitcode."""

    name: str
    digest: str = ""
    bitcode: bytes = b""


def sections(dylib: bytes) -> dict[str, bytes]:
    """Return the ``metal_*`` sections of a 64-bit Mach-O file, by name.

    Raises:
        OpListError: not such a file, or a damaged file.
    """
    try:
        magic, *_, commands = struct.unpack_from("<5I", dylib)
        contents, at = {}, _MACH_HEADER
        for _ in range(commands if magic == _MACH_MAGIC else 0):
            command, size = struct.unpack_from("<2I", dylib, at)
            if command == _SEGMENT:
                (count,) = struct.unpack_from("<I", dylib, at + 64)
                for place in range(count):
                    section = at + _SEGMENT_HEADER + place * _SECTION
                    name = dylib[section : section + 16].rstrip(b"\0").decode()
                    length, offset = struct.unpack_from("<QI", dylib, section + 40)
                    if name.startswith("metal_"):
                        contents[name] = dylib[offset : offset + length]
            at += size
    except (struct.error, ValueError) as error:
        raise damage("no_sections", str(error)) from error
    if magic != _MACH_MAGIC:
        raise damage("no_sections", "no 64-bit Mach-O file")
    return contents


def functions(data: bytes) -> tuple[Function, ...]:
    """Return the functions of a metallib, in the order of the file.

    The list is a count and that many entries.  An entry is its size, then tags of four letters with
    a length and a value; the last tag is ENDT.

    Raises:
        OpListError: not a metallib, or a damaged metallib.
    """
    if data[:4] != _MAGIC:
        raise damage("no_metallib", "")
    compiled = []
    try:
        (start,) = struct.unpack_from("<Q", data, _FUNCTIONS_AT)
        (count,) = struct.unpack_from("<I", data, start)
        at = start + 4
        for _ in range(count):
            (size,) = struct.unpack_from("<I", data, at)
            compiled.append(_function(data, data[at + 4 : at + size]))
            at += size
    except (struct.error, ValueError, OverflowError) as error:
        raise damage("no_functions", str(error)) from error
    return tuple(compiled)


def _function(data: bytes, entry: bytes) -> Function:
    at, tags = 0, {}
    while (tag := entry[at : at + 4]) != b"ENDT":
        (length,) = struct.unpack_from("<H", entry, at + 4)
        tags[tag] = entry[at + 6 : at + 6 + length]
        at += 6 + length
    name = tags.get(b"NAME", b"").rstrip(b"\0").decode("utf-8")
    if not name:
        raise ValueError("an entry without NAME")
    if b"MDSZ" not in tags or b"OFFT" not in tags:
        return Function(name)
    (base,) = struct.unpack_from("<Q", data, _BITCODE_AT)
    (size,) = struct.unpack("<Q", tags[b"MDSZ"])
    *_, offset = struct.unpack("<3Q", tags[b"OFFT"])
    bitcode = data[base + offset : base + offset + size]
    return Function(name, tags.get(b"HASH", b"").hex(), bitcode)
