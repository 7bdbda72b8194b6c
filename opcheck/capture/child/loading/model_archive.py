"""Archives with a model: their members, read within limits and without running code of theirs."""

import io
import json
import weakref
import zipfile
from pathlib import Path
from typing import Any

import torch

from opcheck.capture.naming import is_inner
from opcheck.common import documents
from opcheck.common.errors import ModelLoadError
from opcheck.common.text import one_line
from opcheck.tracing.torch_private.export import RECONSTRUCT_FAKE_TENSOR, dtypes_by_number

#: Bytes of a member that is parsed.  The graph of a program with 100,000 operators takes about 100 MB.
TEXT_LIMIT = 256 << 20

#: PyTorch stores members as they are; TorchScript's writer alone compresses some (source and debug information).
_COMPRESSED_LIMIT = 256 << 20
_MEMBERS_LIMIT = 1_000_000

_PLAIN_TENSORS = "save it again with plain tensors as parameters, buffers and example inputs"


class ModelArchive:
    """The members of a zip file, by their names without the folder that all of them are in."""

    def __init__(self, file: Path | bytes, name: str) -> None:
        """Read the directory.

        Args:
            file: its path or its content.
            name: what messages call it.

        Raises:
            ModelLoadError: it is no zip file, or its directory is not that of a file that PyTorch wrote.
        """
        self.name = name
        size = len(file) if isinstance(file, bytes) else file.stat().st_size
        try:
            stream = io.BytesIO(file) if isinstance(file, bytes) else documents.open_file(file)
            weakref.finalize(self, stream.close)
            self._zip = documents.open_zip(stream)
            members = [info for info in self._zip.infolist() if not info.is_dir()]
        except Exception as error:
            raise make_damaged_error(name, f"it is no whole zip file: {one_line(error)}") from error
        self._check(members, size)
        root = {info.filename.partition("/")[0] for info in members}
        prefix = f"{root.pop()}/" if len(root) == 1 else ""
        self._members = {info.filename.removeprefix(prefix): info for info in members}
        if len(self._members) < len(members):
            raise make_damaged_error(name, "two of its members have one name")

    def __contains__(self, member: str) -> bool:
        """Return whether there is such a member."""
        return member in self._members

    def below(self, folder: str) -> list[str]:
        """Return the names of the members in a folder, ``models/``."""
        return [member for member in self._members if member.startswith(folder)]

    def size(self, member: str) -> int:
        """Return the size of the member in bytes.

        Raises:
            ModelLoadError: there is none of that name.
        """
        return self._info(member).file_size

    def read(self, member: str) -> bytes:
        """Return the content of the member.

        Raises:
            ModelLoadError: there is none of that name, or it is damaged.
        """
        info = self._info(member)
        try:
            return self._zip.read(info)
        except Exception as error:
            raise make_damaged_error(self.name, f"{member} cannot be read: {one_line(error)}") from error

    def text(self, member: str) -> str:
        """Return a member that is text.

        Raises:
            ModelLoadError: there is none of that name, it is damaged, or it is larger than any of its kind.
        """
        if self.size(member) > TEXT_LIMIT:
            raise make_damaged_error(self.name, f"{member} has {self.size(member):,} bytes")
        return self.read(member).decode(errors="replace")

    def json(self, member: str) -> Any:
        """Return a member that is JSON.

        Raises:
            ModelLoadError: as ``text``, or it is no JSON.
        """
        try:
            return json.loads(self.text(member))
        except (ValueError, RecursionError) as error:
            raise make_damaged_error(self.name, f"{member} is no JSON: {one_line(error)}") from error

    def tensors(self, member: str) -> Any:
        """Return what ``torch.save`` wrote into a member: tensors, numbers, texts and containers of them.

        Raises:
            ModelLoadError: it is damaged, or contains anything else: nothing that a pickle names is called.
        """
        content = self.read(member)
        ModelArchive(content, f"{member} of {self.name}")
        allowed = torch.serialization.safe_globals([(_fake_tensor, RECONSTRUCT_FAKE_TENSOR)])
        try:
            with allowed:
                return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except Exception as error:
            names = _name_objects(content)
            what = f"holds {names}" if names else f"cannot be read as tensors: {one_line(error)}"
            raise make_refused_error(self.name, f"{member} {what}", _PLAIN_TENSORS) from error

    def _info(self, member: str) -> zipfile.ZipInfo:
        info = self._members.get(member)
        if info is None:
            raise make_damaged_error(self.name, f"it has no member {member}")
        return info

    def _check(self, members: list[zipfile.ZipInfo], size: int) -> None:
        if not members or is_inner(members):
            raise make_damaged_error(self.name, "it is no whole zip file: its directory is missing")
        for info in members:
            if info.filename.startswith("/") or ".." in info.filename.replace("\\", "/").split("/"):
                raise make_damaged_error(self.name, f"the name of its member {info.filename!r} leaves the archive")
            if info.flag_bits & 1:
                raise make_damaged_error(self.name, f"its member {info.filename!r} is encrypted")
        unpacked = sum(info.file_size for info in members if info.compress_type != zipfile.ZIP_STORED)
        total = sum(info.file_size for info in members)
        if total - unpacked > size or unpacked > _COMPRESSED_LIMIT or len(members) > _MEMBERS_LIMIT:
            why = f"its {len(members):,} members would unpack to {total:,} bytes from {size:,}"
            raise make_damaged_error(self.name, why)


def make_damaged_error(name: str, why: str) -> ModelLoadError:
    """Return the error of a file that is not what PyTorch writes."""
    return ModelLoadError(
        f"{name} cannot be read: {why}",
        context=f"torch {torch.__version__}",
        hint="save it again, with this torch, by torch.export.save()",
    )


def make_refused_error(name: str, why: str, hint: str) -> ModelLoadError:
    """Return the error for a file with content that would have to be run."""
    return ModelLoadError(
        f"{name} is not read: {why}",
        context="opcheck reads the tensors and the graph of an archive, and runs no code of it",
        hint=f"{hint}, or name the model as file.py:attribute",
    )


def _name_objects(content: bytes) -> str:
    """Return the Python objects that a pickle names and that are no tensors."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content))
    except Exception:  # noqa: BLE001 - a damaged pickle
        return ""
    return ", ".join(sorted(names)[:5])


def _fake_tensor(meta: bytes, is_parameter: bool) -> torch.Tensor:  # noqa: FBT001  (torch calls it)
    """Return a tensor without values (torch/_export/serde/serialize.py, ``_reduce_fake_tensor``)."""
    described = json.loads(meta)
    sizes, strides = ([each["as_int"] for each in described[key]] for key in ("sizes", "strides"))
    tensor = torch.empty_strided(sizes, strides, dtype=dtypes_by_number()[described["dtype"]], device="meta")
    return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
