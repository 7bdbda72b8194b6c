"""The headers of safetensors, GGUF, ONNX and torch.export files, and the format of a file by its first bytes."""

import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO, NamedTuple

import msgspec

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.errors import ModelLoadError
from opcheck.common.names import DTYPES
from opcheck.common.text import one_line
from opcheck.weights import pickled, stored
from opcheck.weights.stored import TYPES, StoredFile, StoredTensor

#: Bytes of a header (safetensors 0.8, tensor.rs, MAX_HEADER_SIZE).
LONGEST = 100_000_000
_Size = Annotated[int, msgspec.Meta(ge=0)]


class _HeaderEntry(msgspec.Struct):
    dtype: str
    shape: tuple[_Size, ...]
    data_offsets: tuple[_Size, _Size]


def read_safetensors(stream: BinaryIO, size: int, *, is_whole: bool = True) -> StoredFile:
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
        raise DocumentError(f"its header has {length:,} bytes by its first eight, and the file {max(size - 8, 0):,}")
    header = documents.from_json(stream.read(length), dict[str, msgspec.Raw])
    if len(header) > stored.MOST_TENSORS:
        raise DocumentError(f"it names more than {stored.MOST_TENSORS:,} tensors")
    described = header.pop("__metadata__", None)
    metadata = documents.from_json(bytes(described), dict[str, str]) if described else {}
    tensors, spans = [], []
    for name, raw in header.items():
        entry = documents.from_json(bytes(raw), _HeaderEntry)
        elements = stored.count_elements(entry.shape, name)
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
        stored.check_spans(spans, size - 8 - length)
    return StoredFile("safetensors", tuple(tensors), metadata)


class _WeightIndex(msgspec.Struct):
    weight_map: dict[str, str]


def files_of_index(content: bytes) -> tuple[str, ...]:
    """Return the files that an index names, each once.

    Raises:
        DocumentError: it is no index.
    """
    return tuple(dict.fromkeys(documents.from_json(content, _WeightIndex).weight_map.values()))


# -- Reads the header of a GGUF file: its metadata and its tensors (ggml's docs/gguf.md, versions 2 and 3) --


GGUF_MAGIC = b"GGUF"
#: Bytes of a header: vocabularies of 300,000 words take some 10 MB.
_GGUF_LONGEST = 512 << 20
#: Values of metadata, elements of an array of texts, and characters of a text that is kept.
_MOST_VALUES, _MOST_TEXTS, _LONGEST_TEXT = 1 << 16, 4 << 20, 1 << 10
#: The type of a value -> its form in ``struct``.
_NUMBERS = dict(enumerate("BbHhIif?")) | dict(enumerate("Qqd", 10))
_STRING, _ARRAY = 8, 9
#: Bytes that a value and a tensor take at least.
_SMALLEST_VALUE, _SMALLEST_TENSOR = 13, 24
_ALIGNMENT = 32


def read_gguf(stream: BinaryIO, size: int) -> StoredFile:
    """Return the tensors of a GGUF file.

    Args:
        stream: at the start of the file.
        size: bytes of the file.

    Raises:
        DocumentError: counts, lengths, offsets and shapes do not agree with each other or with the file.
    """
    cursor = stored.Cursor(stream, size, _GGUF_LONGEST)
    cursor.take(len(GGUF_MAGIC))
    version = cursor.take(4)
    order = "<" if version[0] else ">"
    number = int.from_bytes(version, "little" if version[0] else "big")
    if number not in {2, 3}:
        raise DocumentError(f"its version of GGUF is {number}; 2 and 3 are read")
    count, values = cursor.unpack(f"{order}Q"), cursor.unpack(f"{order}Q")
    if count * _SMALLEST_TENSOR + values * _SMALLEST_VALUE > size or count > stored.MOST_TENSORS:
        raise DocumentError(f"it claims {count:,} tensors and {values:,} values, more than its {size:,} bytes can have")
    if values > _MOST_VALUES:
        raise DocumentError(f"it claims {values:,} values")
    metadata = {}
    for _ in range(values):
        name = _gguf_string(cursor, order)
        value = _gguf_value(cursor, order, cursor.unpack(f"{order}I"))
        if value is not None:
            metadata[name] = str(value)
    entries = [_gguf_entry(cursor, order) for _ in range(count)]
    alignment = max(1, int(metadata.get("general.alignment", _ALIGNMENT)))
    data = size - -(-cursor.position // alignment) * alignment
    stored.check_spans([(at, at + tensor.nbytes, tensor.name) for at, tensor in entries], max(data, 0))
    return StoredFile("gguf", tuple(tensor for _, tensor in entries), metadata)


def _gguf_string(cursor: stored.Cursor, order: str) -> str:
    length = cursor.unpack(f"{order}Q")
    if length > _LONGEST_TEXT:
        cursor.skip(length)
        return ""
    return cursor.take(length).decode("utf-8", "replace")


def _gguf_value(cursor: stored.Cursor, order: str, kind: int) -> Any:
    """Return a number or a text; None for an array, which is passed over."""
    if kind in _NUMBERS:
        return cursor.unpack(order + _NUMBERS[kind])
    if kind == _STRING:
        return _gguf_string(cursor, order)
    if kind != _ARRAY:
        raise DocumentError(f"a value of its metadata has the type {kind}, which GGUF does not have")
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


def _gguf_entry(cursor: stored.Cursor, order: str) -> tuple[int, StoredTensor]:
    """Return a tensor and the offset of its data."""
    name = _gguf_string(cursor, order)
    axes = cursor.unpack(f"{order}I")
    if axes > _MOST_AXES:
        raise DocumentError(f"{name[:80]!r} claims {axes:,} axes")
    elements = stored.count_elements([cursor.unpack(f"{order}Q") for _ in range(axes)], name)
    kind, offset = cursor.unpack(f"{order}I"), cursor.unpack(f"{order}Q")
    if kind not in TYPES["ggml"]:
        raise DocumentError(f"{name[:80]!r} has the type {kind}, which opcheck does not have")
    dtype, block, nbytes = TYPES["ggml"][kind]
    if elements % block:
        raise DocumentError(f"{name[:80]!r} has {elements:,} elements, no multiple of {block}")
    plain = TYPES["plain"].get(dtype, dtype)
    return offset, StoredTensor(name, plain, elements, elements // block * nbytes)


# -- Reads the tensors of an ONNX model: the messages of its file (onnx.proto), without their values --


#: Fields of messages that are passed: a graph of 100,000 nodes has a million.
_MOST_FIELDS = 4 << 20
_ONNX_TEXT = 1 << 10
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
        return self.stream.read(min(field.value, _ONNX_TEXT)).decode("utf-8", "replace")

    def read_packed(self, field: _MessageField) -> list[int]:
        """Return the numbers of a repeated field, which may be one number or many in a row."""
        if field.is_number:
            return [field.value]
        self.stream.seek(field.position)
        numbers = []
        while self.stream.tell() < field.position + min(field.value, _ONNX_TEXT):
            numbers.append(self.varint())
        return numbers


def read_onnx(stream: BinaryIO, size: int) -> StoredFile:
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
                    tensors.append(_onnx_tensor(reader, inner))
                    if len(tensors) > stored.MOST_TENSORS:
                        raise DocumentError(f"it has more than {stored.MOST_TENSORS:,} tensors")
    stream.seek(0, io.SEEK_SET)
    if not (tensors or metadata):
        raise DocumentError("it has no graph")
    return StoredFile("onnx", tuple(tensors), metadata)


def _onnx_tensor(reader: _MessageReader, message: _MessageField) -> StoredTensor:
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
    elements = stored.count_elements(sizes, name)
    return StoredTensor(name, dtype, elements, (elements * bits + 7) // 8)


# -- Reads the weights that an archive of ``torch.export`` states (torch/export/pt2_archive, torch 2.6 and later) --


_CONFIGURATION_LONGEST = 64 << 20
_BLOCK = 1 << 16
#: Members with the names of weights and their meta data; archives before torch 2.9 have one of the others.
_CONFIGURATION = "_config.json"
_STATES = ("serialized_state_dict.pt", "serialized_constants.pt", "data/weights/model.pt", "data/constants/model.pt")


class _ExportedSize(msgspec.Struct):
    as_int: Annotated[int, msgspec.Meta(ge=0)]


class _Meta(msgspec.Struct):
    dtype: int
    sizes: tuple[_ExportedSize, ...]


class _Weight(msgspec.Struct):
    path_name: str
    tensor_meta: _Meta | None = None


class _Configuration(msgspec.Struct):
    config: dict[str, _Weight]


def is_pt2(archive: zipfile.ZipFile) -> bool:
    """Return whether the archive is a program of ``torch.export``."""
    members = {name.partition("/")[2] for name in archive.namelist()} | {*archive.namelist()}
    return bool(members & {"archive_format", "serialized_exported_program.json"})


def read_exported(archive: zipfile.ZipFile, stream: BinaryIO) -> StoredFile:
    """Return the weights and the constants of the program.

    Raises:
        DocumentError: a member is damaged.
    """
    tensors: list[StoredTensor] = []
    paths: dict[str, int] = {}
    for info in archive.infolist():
        member = info.filename.partition("/")[2] or info.filename
        if member.startswith("data/") and member.endswith(_CONFIGURATION):
            tensors += _read_configuration(archive, info, paths)
        elif member in _STATES and info.file_size and info.compress_type == zipfile.ZIP_STORED:
            tensors += pickled.read(*_member(stream, info)).tensors
    return StoredFile("pt2", tuple(tensors), {})


def _read_configuration(archive: zipfile.ZipFile, info: zipfile.ZipInfo, paths: dict[str, int]) -> list[StoredTensor]:
    content = stored.read_member(archive, info, _CONFIGURATION_LONGEST)
    tensors = []
    for name, weight in documents.from_json(content, _Configuration).config.items():
        if weight.tensor_meta is None:
            continue
        dtype = TYPES["export"].get(weight.tensor_meta.dtype, f"type {weight.tensor_meta.dtype}")
        elements = stored.count_elements([size.as_int for size in weight.tensor_meta.sizes], name)
        is_new = weight.path_name not in paths
        paths[weight.path_name] = elements
        itemsize = DTYPES[dtype].itemsize if dtype in DTYPES else 0
        tensors.append(StoredTensor(name, dtype, elements, elements * itemsize * is_new))
    return tensors


def _member(stream: BinaryIO, info: zipfile.ZipInfo) -> tuple[BinaryIO, int]:
    """Return a stream of a member that is stored as it is: behind its own header of 30 bytes, its name and more."""
    stream.seek(info.header_offset)
    header = stream.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise DocumentError(f"{info.filename[:80]} has no header")
    start = info.header_offset + 30 + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))

    def fetch(offset: int, count: int) -> bytes:
        stream.seek(start + offset)
        return stream.read(count)

    return stored.open_fetched(fetch, info.file_size, _BLOCK), info.file_size


# -- Finds the format of a file of weights by its first bytes, and reads its header --


#: Suffixes of files that hold weights.
SUFFIXES = (".safetensors", ".gguf", ".pt", ".pth", ".bin", ".ckpt", ".pt2", ".onnx")


def read(stream: BinaryIO, size: int, name: str, *, is_whole: bool = True) -> StoredFile:
    """Return what the header of a file states.

    Args:
        stream: the file, which can be read from any place.
        size: its bytes.
        name: what the user calls it, for errors and for a suffix.
        is_whole: whether the data of all tensors must lie in the file.

    Raises:
        ModelLoadError: it is damaged, or of no format that opcheck reads.
    """
    try:
        return _read(stream, size, name, is_whole=is_whole)
    except (OSError, ValueError, RuntimeError, OverflowError, zipfile.BadZipFile, struct.error) as error:
        raise make_damaged_error(name, one_line(error)) from error


def make_damaged_error(name: str, why: str) -> ModelLoadError:
    """Return the error for a file that cannot be read."""
    problem = f"{PurePosixPath(name).name} cannot be read: {why}"
    hint = "download it again; a file of another program is not read"
    return ModelLoadError(problem, context=f"file {name}", hint=hint)


def _read(stream: BinaryIO, size: int, name: str, *, is_whole: bool) -> StoredFile:
    start = stream.read(16)
    stream.seek(0)
    suffix = PurePosixPath(name.lower()).suffix
    if start.startswith(GGUF_MAGIC):
        return read_gguf(stream, size)
    if start[:2] == b"PK":
        archive = documents.open_zip(stream)
        return read_exported(archive, stream) if is_pt2(archive) else pickled.read(stream, size)
    if suffix == ".safetensors" or start[8:9] == b"{":
        return read_safetensors(stream, size, is_whole=is_whole)
    if start[:1] == b"\x80":
        return pickled.read(stream, size)
    if suffix == ".onnx":
        return read_onnx(stream, size)
    formats = ", ".join(suffix.removeprefix(".") for suffix in SUFFIXES)
    raise DocumentError(f"it begins as none of the formats that opcheck reads ({formats})")
