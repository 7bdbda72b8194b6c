"""Reads the header of a safetensors file, and the index of a model in several files."""

import struct
from typing import Annotated, BinaryIO

import msgspec

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.weights.stored import (
    MOST_TENSORS,
    TYPES,
    StoredFile,
    StoredTensor,
    check_spans,
    count_elements,
)

#: Bytes of a header (safetensors 0.8, tensor.rs, MAX_HEADER_SIZE).
LONGEST = 100_000_000
_Size = Annotated[int, msgspec.Meta(ge=0)]


class _HeaderEntry(msgspec.Struct):
    dtype: str
    shape: tuple[_Size, ...]
    data_offsets: tuple[_Size, _Size]


def read(stream: BinaryIO, size: int, *, is_whole: bool = True) -> StoredFile:
    """Return the tensors of a safetensors file: JSON behind its length in eight bytes.

    Args:
        stream: at the start of the file.
        size: bytes of the file.
        is_whole: whether the data is here, so that the offsets must agree with the shapes and with the file.

    Raises:
        DocumentError: lengths, offsets and shapes do not agree with each other or with the file.
    """
    (length,) = struct.unpack("<Q", stream.read(8).ljust(8, b"\xff"))
    if length > min(size - 8, LONGEST):
        raise DocumentError(
            f"its header has {length:,} bytes by its first eight, and the file {max(size - 8, 0):,}"
        )
    header = documents.from_json(stream.read(length), dict[str, msgspec.Raw])
    if len(header) > MOST_TENSORS:
        raise DocumentError(f"it names more than {MOST_TENSORS:,} tensors")
    described = header.pop("__metadata__", None)
    metadata = documents.from_json(bytes(described), dict[str, str]) if described else {}
    tensors, spans = [], []
    for name, raw in header.items():
        entry = documents.from_json(bytes(raw), _HeaderEntry)
        elements = count_elements(entry.shape, name)
        first, last = entry.data_offsets
        bits, dtype = TYPES["safetensors"].get(entry.dtype, (0, ""))
        expected = (elements * bits + 7) // 8 if bits else max(last - first, 0)
        if is_whole and last - first != expected:
            raise DocumentError(
                f"{name[:80]!r} has {elements:,} elements of {entry.dtype}, {expected:,} bytes, "
                f"and its offsets span {last - first:,}"
            )
        tensors.append(StoredTensor(name, dtype or entry.dtype, elements, expected))
        spans.append((first, last, name))
    if is_whole:
        check_spans(spans, size - 8 - length)
    return StoredFile("safetensors", tuple(tensors), metadata)


class _WeightIndex(msgspec.Struct):
    weight_map: dict[str, str]


def files_of_index(content: bytes) -> tuple[str, ...]:
    """Return the files that an index names, each once.

    Raises:
        DocumentError: it is no index.
    """
    return tuple(dict.fromkeys(documents.from_json(content, _WeightIndex).weight_map.values()))
