"""The dtypes in a checkpoint file: read without its values, and without running code of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from opcheck.capture.repository import safetensors_header
from opcheck.common import documents
from opcheck.common.errors import InputError
from opcheck.common.files import is_file
from opcheck.model.records import WATCHED, Birth

#: safetensors writes dtypes in its own spelling (its README, "Format"); those that MPS may refuse.
_SAFETENSORS = {
    "F64": "float64",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def births(file: str) -> tuple[Birth, ...]:
    """Return a birth for each tensor in the file whose dtype MPS may refuse, in the file's order.

    Args:
        file: written by torch.save (a state dict, or a container of it), or a .safetensors file.

    Raises:
        InputError: no such file, or it cannot be read as either.
    """
    path = Path(file)
    if not is_file(path):
        raise InputError(
            f"there is no file {file}",
            context=f"--checkpoint {file}, working directory {Path.cwd()}",
            hint="give the path from the working directory",
        )
    read = _of_safetensors if path.suffix == ".safetensors" else _of_torch
    try:
        dtypes = dict(read(path))
    except Exception as error:
        raise InputError(
            f"cannot read the checkpoint: {' '.join(str(error).split())[:200]}",
            context=f"--checkpoint {file}",
            hint="give a state dict written by torch.save, or a .safetensors file",
        ) from error
    return tuple(
        Birth(tensor=0, dtype=dtype, how="file", api=path.name, name=name)
        for name, dtype in dtypes.items()
        if dtype in WATCHED
    )


def _of_safetensors(path: Path) -> Iterator[tuple[str, str]]:
    for name, entry in json.loads(safetensors_header(path)).items():
        if name != "__metadata__":
            yield name, _SAFETENSORS.get(entry["dtype"], "")


def _of_torch(path: Path) -> Iterator[tuple[str, str]]:
    # On meta no value is read; weights_only refuses a pickle that would run code.
    with documents.open_file(path) as file:
        yield from _tensors("", torch.load(file, map_location="meta", weights_only=True))


def _tensors(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, torch.Tensor):
        yield prefix, str(value.dtype).removeprefix("torch.")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(f"{prefix}.{key}".lstrip("."), item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors(f"{prefix}[{index}]", item)
