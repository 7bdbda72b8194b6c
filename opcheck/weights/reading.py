"""Finds the format of a file of weights by its first bytes, and reads its header."""

import struct
import zipfile
from pathlib import PurePosixPath
from typing import BinaryIO

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.errors import ModelLoadError
from opcheck.common.text import one_line
from opcheck.weights import exported, gguf, onnx, pickled, safetensors
from opcheck.weights.stored import StoredFile

#: What libraries raise of a damaged file, besides Python's own errors.
_DAMAGES = (zipfile.BadZipFile, struct.error)
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
    except (OSError, ValueError, RuntimeError, OverflowError, *_DAMAGES) as error:
        raise make_damaged_error(name, one_line(error)) from error


def make_damaged_error(name: str, why: str) -> ModelLoadError:
    """Return the error for a file that cannot be read."""
    return ModelLoadError(
        f"{PurePosixPath(name).name} cannot be read: {why}",
        context=f"file {name}",
        hint="download it again; a file of another program is not read",
    )


def _read(stream: BinaryIO, size: int, name: str, *, is_whole: bool) -> StoredFile:
    start = stream.read(16)
    stream.seek(0)
    suffix = PurePosixPath(name.lower()).suffix
    if start.startswith(gguf.MAGIC):
        return gguf.read(stream, size)
    if start[:2] == b"PK":
        archive = documents.open_zip(stream)
        return (
            exported.read(archive, stream)
            if exported.is_pt2(archive)
            else pickled.read(stream, size)
        )
    if suffix == ".safetensors" or start[8:9] == b"{":
        return safetensors.read(stream, size, is_whole=is_whole)
    if start[:1] == b"\x80":
        return pickled.read(stream, size)
    if suffix == ".onnx":
        return onnx.read(stream, size)
    formats = ", ".join(suffix.removeprefix(".") for suffix in SUFFIXES)
    raise DocumentError(f"it begins as none of the formats that opcheck reads ({formats})")
