"""Files of weights, made byte by byte: what headers claim need not be true."""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
import zipfile
from typing import Any

from opcheck.weights.stored import TYPES

#: name -> (type, elements of a block, bytes of a block) by the names of GGUF.
_BLOCKS = {name: (number, block, size) for number, (name, block, size) in TYPES["ggml"].items()}


def safetensors(tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None = None) -> bytes:
    """A file with these tensors (dtype, shape)."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * TYPES["safetensors"][dtype][0] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return framed(json.dumps(header).encode(), bytes(at))


def framed(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A header of safetensors behind a length, which may be another."""
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def text(value: str) -> bytes:
    """A text of GGUF."""
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors: dict[str, tuple[str, list[int]]], *, order: str = "<", words: int = 3, **metadata: str) -> bytes:
    """A file with these tensors (type, shape) and texts of metadata; ``general__name`` is ``general.name``."""
    values = b"".join(
        _string(key.replace("__", "."), order) + struct.pack(f"{order}I", 8) + _string(value, order)
        for key, value in metadata.items()
    )
    vocabulary = b"".join(_string(f"word{number}", order) for number in range(words))
    values += _string("tokenizer.ggml.tokens", order)
    values += struct.pack(f"{order}IIQ", 9, 8, words) + vocabulary
    entries, at = b"", 0
    for name, (kind, shape) in tensors.items():
        number, block, size = _BLOCKS[kind]
        entries += _string(name, order) + struct.pack(f"{order}I", len(shape))
        entries += struct.pack(f"{order}{len(shape)}Q", *shape)
        entries += struct.pack(f"{order}IQ", number, at)
        at += math.prod(shape) // block * size
        at += -at % 32
    head = b"GGUF" + struct.pack(f"{order}IQQ", 3, len(tensors), len(metadata) + 1)
    head += values + entries
    return head + bytes(-len(head) % 32) + bytes(at)


def _string(value: str, order: str) -> bytes:
    return struct.pack(f"{order}Q", len(value)) + value.encode()


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return content.getvalue()


class _Reduced:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._state = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._state


def calling(function: Any, *arguments: Any) -> bytes:
    """A pickle that calls a function."""
    return pickle.dumps(_Reduced(function, *arguments), protocol=2)


def varint(number: int) -> bytes:
    """A number of protobuf."""
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, content: bytes | int) -> bytes:
    """A field of protobuf."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx(tensors: dict[str, tuple[int, list[int]]]) -> bytes:
    """A model of ONNX with these initializers (number of the type, shape)."""
    graph = b"".join(
        field(
            5,
            b"".join(field(1, size) for size in shape) + field(2, kind) + field(8, name.encode()) + field(9, bytes(8)),
        )
        for name, (kind, shape) in tensors.items()
    )
    return field(1, 10) + field(2, b"a test") + field(7, graph)
