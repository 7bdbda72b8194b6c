"""The tensors that a file states, and streams whose reads are checked against the file's size."""

import io
import math
import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple

from opcheck.common.documents import DocumentError
from opcheck.common.yaml_text import load_shipped

#: The tables of stored_types.yaml.
TYPES: dict[str, dict[Any, Any]] = load_shipped(__file__, "stored_types.yaml")
#: Axes of a shape, and elements of a tensor: more than any file has.
_MOST_AXES, _MOST_ELEMENTS = 64, 1 << 53
#: Tensors of a file: the largest checkpoints have 100,000.
MOST_TENSORS = 1 << 20


class StoredTensor(NamedTuple):
    """A tensor as a file states it."""

    name: str
    #: of torch, or the name of a type that torch has not, as the file writes it
    dtype: str
    elements: int
    #: in the file; 0 where another tensor has the same memory
    nbytes: int


class StoredFile(NamedTuple):
    """What the header of a file states."""

    #: safetensors, pt, gguf, onnx, pt2
    format: str
    tensors: tuple[StoredTensor, ...]
    #: texts and numbers of the header
    metadata: dict[str, str]
    #: the classes and functions that a pickle names: ``torch._utils._rebuild_tensor_v2``
    names: frozenset[str] = frozenset()
    #: devices that the storages of a pickle were on
    locations: frozenset[str] = frozenset()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def elements(self) -> Counter[str]:
        """Return the elements of each dtype."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors:
            counts[tensor.dtype] += tensor.elements
        return counts


def count_elements(shape: Sequence[int], name: str) -> int:
    """Return the elements of a shape.

    Raises:
        DocumentError: no file has as many.
    """
    if len(shape) > _MOST_AXES or any(size < 0 for size in shape):
        raise DocumentError(f"the shape of {name[:80]!r} is none")
    elements = math.prod(shape)
    if elements > _MOST_ELEMENTS:
        raise DocumentError(f"{name[:80]!r} has more elements than a file can have")
    return elements


def check_spans(spans: Sequence[tuple[int, int, str]], end: int) -> None:
    """Check that the bytes of tensors lie in the file and do not overlap.

    Args:
        spans: first byte, byte after the last, and name of each tensor.
        end: bytes that the file has for them.

    Raises:
        DocumentError: they do not.
    """
    before = 0
    for first, last, name in sorted(spans):
        if last > end:
            raise DocumentError(f"the data of {name[:80]!r} ends at byte {last:,}, and the file has {end:,} for data")
        if first < before and last > first:
            raise DocumentError(f"the data of {name[:80]!r} overlaps that of another tensor")
        before = max(before, last)


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    """Return the content of a member.

    Raises:
        DocumentError: it is longer, whatever the directory claims.
    """
    with archive.open(member) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise DocumentError(f"its member {member.filename[-80:]} is longer than {most >> 20} MiB")
    return content


class Cursor:
    """Reads a stream forward, and no more than it has."""

    def __init__(self, stream: BinaryIO, size: int, limit: int) -> None:
        """Begin at the start of the stream.

        Args:
            stream: the file.
            size: its bytes.
            limit: bytes that may be read or skipped.
        """
        self._stream = stream
        self._size = size
        self._limit = limit
        self.position = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes.

        Raises:
            DocumentError: there are fewer.
        """
        self._advance(count)
        content = self._stream.read(count)
        if len(content) != count:
            raise DocumentError("the file ends within its header")
        return content

    def skip(self, count: int) -> None:
        """Pass over bytes.

        Raises:
            DocumentError: there are fewer.
        """
        self._advance(count)
        self._stream.seek(count, io.SEEK_CUR)

    def unpack(self, form: str) -> Any:
        """Return the next number, in the notation of ``struct``."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def _advance(self, count: int) -> None:
        if count > (left := self._size - self.position):
            raise DocumentError(f"its header claims {count:,} bytes where {left:,} are left")
        self.position += count
        if self.position > self._limit:
            raise DocumentError(f"its header is longer than {self._limit >> 20} MiB")


class FetchedStream(io.RawIOBase):
    """A stream over bytes that a function fetches: a part of a file, or a file on a server."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        """Take the function, which returns the bytes from an offset on, and the size in bytes."""
        self._fetch = fetch
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, as a file does."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, as far as there are bytes."""
        count = max(0, min(len(buffer), self._size - self._position))
        content = self._fetch(self._position, count) if count else b""
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


def open_fetched(fetch: Callable[[int, int], bytes], size: int, block: int) -> BinaryIO:
    """Return a buffered stream that fetches blocks of so many bytes."""
    return io.BufferedReader(FetchedStream(fetch, size), block)
