"""Reads the weights that an archive of ``torch.export`` states (torch/export/pt2_archive, torch 2.6 and later)."""

import zipfile
from typing import Annotated, BinaryIO

import msgspec

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.names import DTYPES
from opcheck.weights import pickled
from opcheck.weights.stored import (
    TYPES,
    StoredFile,
    StoredTensor,
    count_elements,
    open_fetched,
    read_member,
)

_LONGEST = 64 << 20
_BLOCK = 1 << 16
#: Members with the names of weights and their meta data; archives before torch 2.9 have one of the others.
_CONFIGURATION = "_config.json"
_STATES = (
    "serialized_state_dict.pt",
    "serialized_constants.pt",
    "data/weights/model.pt",
    "data/constants/model.pt",
)


class _Size(msgspec.Struct):
    as_int: Annotated[int, msgspec.Meta(ge=0)]


class _Meta(msgspec.Struct):
    dtype: int
    sizes: tuple[_Size, ...]


class _Weight(msgspec.Struct):
    path_name: str
    tensor_meta: _Meta | None = None


class _Configuration(msgspec.Struct):
    config: dict[str, _Weight]


def is_pt2(archive: zipfile.ZipFile) -> bool:
    """Return whether the archive is a program of ``torch.export``."""
    members = {name.partition("/")[2] for name in archive.namelist()} | {*archive.namelist()}
    return bool(members & {"archive_format", "serialized_exported_program.json"})


def read(archive: zipfile.ZipFile, stream: BinaryIO) -> StoredFile:
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


def _read_configuration(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, paths: dict[str, int]
) -> list[StoredTensor]:
    content = read_member(archive, info, _LONGEST)
    tensors = []
    for name, weight in documents.from_json(content, _Configuration).config.items():
        if weight.tensor_meta is None:
            continue
        dtype = TYPES["export"].get(weight.tensor_meta.dtype, f"type {weight.tensor_meta.dtype}")
        elements = count_elements([size.as_int for size in weight.tensor_meta.sizes], name)
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
    start = (
        info.header_offset
        + 30
        + sum(int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    )

    def fetch(offset: int, count: int) -> bytes:
        stream.seek(start + offset)
        return stream.read(count)

    return open_fetched(fetch, info.file_size, _BLOCK), info.file_size
