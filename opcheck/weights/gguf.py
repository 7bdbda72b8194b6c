"""Reads the header of a GGUF file: its metadata and its tensors (ggml's docs/gguf.md, versions 2 and 3)."""

import struct
from typing import Any, BinaryIO

from opcheck.common.documents import DocumentError
from opcheck.weights.stored import (
    MOST_TENSORS,
    TYPES,
    Cursor,
    StoredFile,
    StoredTensor,
    check_spans,
    count_elements,
)

MAGIC = b"GGUF"
#: Bytes of a header: vocabularies of 300,000 words take some 10 MB.
_LONGEST = 512 << 20
#: Values of metadata, elements of an array of texts, and characters of a text that is kept.
_MOST_VALUES, _MOST_TEXTS, _LONGEST_TEXT = 1 << 16, 4 << 20, 1 << 10
#: The type of a value -> its form in ``struct``.
_NUMBERS = dict(enumerate("BbHhIif?")) | dict(enumerate("Qqd", 10))
_STRING, _ARRAY = 8, 9
#: Bytes that a value and a tensor take at least.
_SMALLEST_VALUE, _SMALLEST_TENSOR = 13, 24
_ALIGNMENT = 32


def read(stream: BinaryIO, size: int) -> StoredFile:
    """Return the tensors of a GGUF file.

    Args:
        stream: at the start of the file.
        size: bytes of the file.

    Raises:
        DocumentError: counts, lengths, offsets and shapes do not agree with each other or with the file.
    """
    cursor = Cursor(stream, size, _LONGEST)
    cursor.take(len(MAGIC))
    version = cursor.take(4)
    order = "<" if version[0] else ">"
    number = int.from_bytes(version, "little" if version[0] else "big")
    if number not in {2, 3}:
        raise DocumentError(f"its version of GGUF is {number}; 2 and 3 are read")
    count, values = cursor.unpack(f"{order}Q"), cursor.unpack(f"{order}Q")
    if count * _SMALLEST_TENSOR + values * _SMALLEST_VALUE > size or count > MOST_TENSORS:
        raise DocumentError(
            f"it claims {count:,} tensors and {values:,} values, more than its {size:,} bytes can have"
        )
    if values > _MOST_VALUES:
        raise DocumentError(f"it claims {values:,} values")
    metadata = {}
    for _ in range(values):
        name = _string(cursor, order)
        value = _value(cursor, order, cursor.unpack(f"{order}I"))
        if value is not None:
            metadata[name] = str(value)
    entries = [_entry(cursor, order) for _ in range(count)]
    alignment = max(1, int(metadata.get("general.alignment", _ALIGNMENT)))
    data = size - -(-cursor.position // alignment) * alignment
    check_spans([(at, at + tensor.nbytes, tensor.name) for at, tensor in entries], max(data, 0))
    return StoredFile("gguf", tuple(tensor for _, tensor in entries), metadata)


def _string(cursor: Cursor, order: str) -> str:
    length = cursor.unpack(f"{order}Q")
    if length > _LONGEST_TEXT:
        cursor.skip(length)
        return ""
    return cursor.take(length).decode("utf-8", "replace")


def _value(cursor: Cursor, order: str, kind: int) -> Any:
    """Return a number or a text; None for an array, which is passed over."""
    if kind in _NUMBERS:
        return cursor.unpack(order + _NUMBERS[kind])
    if kind == _STRING:
        return _string(cursor, order)
    if kind != _ARRAY:
        raise DocumentError(
            f"a value of its metadata has the type {kind}, which GGUF does not have"
        )
    inner, length = cursor.unpack(f"{order}I"), cursor.unpack(f"{order}Q")
    if inner in _NUMBERS:
        cursor.skip(length * struct.calcsize(f"={_NUMBERS[inner]}"))
    elif inner == _STRING and length <= _MOST_TEXTS:
        for _ in range(length):
            cursor.skip(cursor.unpack(f"{order}Q"))
    else:
        raise DocumentError(f"an array of its metadata claims {length:,} values of type {inner}")
    return None


#: Axes of a tensor (ggml.h, GGML_MAX_DIMS), with room for more.
_MOST_AXES = 8


def _entry(cursor: Cursor, order: str) -> tuple[int, StoredTensor]:
    """Return a tensor and the offset of its data."""
    name = _string(cursor, order)
    axes = cursor.unpack(f"{order}I")
    if axes > _MOST_AXES:
        raise DocumentError(f"{name[:80]!r} claims {axes:,} axes")
    elements = count_elements([cursor.unpack(f"{order}Q") for _ in range(axes)], name)
    kind, offset = cursor.unpack(f"{order}I"), cursor.unpack(f"{order}Q")
    if kind not in TYPES["ggml"]:
        raise DocumentError(f"{name[:80]!r} has the type {kind}, which opcheck does not have")
    dtype, block, nbytes = TYPES["ggml"][kind]
    if elements % block:
        raise DocumentError(f"{name[:80]!r} has {elements:,} elements, no multiple of {block}")
    stored = TYPES["plain"].get(dtype, dtype)
    return offset, StoredTensor(name, stored, elements, elements // block * nbytes)
