"""Reads the tensors of an ONNX model: the messages of its file (onnx.proto), without their values."""

import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from opcheck.common.documents import DocumentError
from opcheck.weights.stored import (
    MOST_TENSORS,
    TYPES,
    StoredFile,
    StoredTensor,
    count_elements,
)

#: Fields of messages that are passed: a graph of 100,000 nodes has a million.
_MOST_FIELDS = 4 << 20
_LONGEST_TEXT = 1 << 10
#: Numbers of fields: of ModelProto, GraphProto and TensorProto.
_PRODUCER, _GRAPH, _INITIALIZER = 2, 7, 5
_DIMS, _TYPE, _NAME = 1, 2, 8
#: Wire types of protobuf.
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_VARINT_BYTES = 10


class _MessageField(NamedTuple):
    number: int
    #: of a number its value, of bytes their length
    value: int
    position: int
    is_number: bool = False


class _MessageReader:
    """Passes over the fields of messages."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self._left = _MOST_FIELDS

    def varint(self) -> int:
        """Return the next number."""
        value = 0
        for index in range(_VARINT_BYTES):
            byte = self.stream.read(1)
            if not byte:
                raise DocumentError("the file ends within a number")
            value |= (byte[0] & 0x7F) << 7 * index
            if byte[0] < 0x80:
                return value
        raise DocumentError("a number has more than ten bytes")

    def fields(self, start: int, end: int) -> Iterator[_MessageField]:
        """Yield the fields of the message in these bytes; the stream may be moved between them."""
        position = start
        while position < end:
            self._left -= 1
            if self._left < 0:
                raise DocumentError("it has too many fields")
            self.stream.seek(position)
            number, wire = divmod(self.varint(), 8)
            if wire == _VARINT:
                value = self.varint()
                position = self.stream.tell()
                yield _MessageField(number, value, position, is_number=True)
                continue
            if wire not in {_EIGHT, _BYTES, _FOUR}:
                raise DocumentError(f"a field has the wire type {wire}")
            length = self.varint() if wire == _BYTES else {_EIGHT: 8, _FOUR: 4}[wire]
            at = self.stream.tell()
            position = at + length
            if position > end:
                raise DocumentError(f"a field claims {length:,} bytes, more than its message has")
            yield _MessageField(number, length, at)

    def text(self, field: _MessageField) -> str:
        """Return a short text."""
        self.stream.seek(field.position)
        return self.stream.read(min(field.value, _LONGEST_TEXT)).decode("utf-8", "replace")

    def read_packed(self, field: _MessageField) -> list[int]:
        """Return the numbers of a repeated field, which may be one number or many in a row."""
        if field.is_number:
            return [field.value]
        self.stream.seek(field.position)
        numbers = []
        while self.stream.tell() < field.position + min(field.value, _LONGEST_TEXT):
            numbers.append(self.varint())
        return numbers


def read(stream: BinaryIO, size: int) -> StoredFile:
    """Return the initializers of the model's graph.

    Raises:
        DocumentError: it is no ONNX model.
    """
    reader = _MessageReader(stream)
    tensors: list[StoredTensor] = []
    metadata = {}
    for field in reader.fields(0, size):
        if field.number == _PRODUCER and not field.is_number:
            metadata["producer"] = reader.text(field)
        elif field.number == _GRAPH and not field.is_number:
            for inner in reader.fields(field.position, field.position + field.value):
                if inner.number == _INITIALIZER and not inner.is_number:
                    tensors.append(_tensor(reader, inner))
                    if len(tensors) > MOST_TENSORS:
                        raise DocumentError(f"it has more than {MOST_TENSORS:,} tensors")
    stream.seek(0, io.SEEK_SET)
    if not (tensors or metadata):
        raise DocumentError("it has no graph")
    return StoredFile("onnx", tuple(tensors), metadata)


def _tensor(reader: _MessageReader, message: _MessageField) -> StoredTensor:
    sizes: list[int] = []
    kind, name = 0, ""
    for field in reader.fields(message.position, message.position + message.value):
        if field.number == _DIMS:
            sizes += reader.read_packed(field)
        elif field.number == _TYPE and field.is_number:
            kind = field.value
        elif field.number == _NAME and not field.is_number:
            name = reader.text(field)
    bits, dtype = TYPES["onnx"].get(kind, (0, f"type {kind}"))
    elements = count_elements(sizes, name)
    return StoredTensor(name, dtype, elements, (elements * bits + 7) // 8)
