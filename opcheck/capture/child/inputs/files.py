"""Reads inputs from a user's files: .pt and .pth of torch.save, .npy, .npz, .safetensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from opcheck.common import documents
from opcheck.common.errors import InputError
from opcheck.common.files import is_file
from opcheck.common.text import type_and_text

GRAMMAR = "write FILE or NAME=FILE, with a suffix of "


def read(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments in these files: ``FILE``, or ``NAME=FILE`` for the argument of that name.

    A file of one tensor is one argument, a file of named tensors gives each to the argument of its name, a list of
    tensors goes by position.

    Raises:
        InputError: no such file, no such format, or it contains something else.
    """
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        content = _content(Path(path if equals else text), text)
        if equals:
            kwargs[name] = content
        elif isinstance(content, Mapping):
            kwargs.update(content)
        elif isinstance(content, (list, tuple)):
            args += content
        else:
            args.append(content)
    return tuple(args), kwargs


def _content(path: Path, text: str) -> Any:
    reader = _READERS.get(path.suffix.lower())
    if reader is None or not is_file(path):
        raise InputError(
            f"there is no file {path}" if reader else f"cannot read inputs from {path.name}",
            context=f"--input-file {text}",
            hint=GRAMMAR + ", ".join(_READERS),
        )
    try:
        return reader(path)
    except Exception as error:
        raise InputError(
            f"cannot read {path.name}: {type_and_text(error)}",
            context=f"--input-file {text}",
            hint="save tensors alone, in a list or in a dict by the names of the arguments",
        ) from error


def _numpy(path: Path) -> Any:
    with documents.open_file(path) as file:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return torch.from_numpy(content)
        size = sum(member.file_size for member in content.zip.infolist())
        if size > documents.MOST_LARGE:
            message = f"its arrays unpack to {size:,} bytes"
            raise ValueError(message)
        return {name: torch.from_numpy(content[name]) for name in content.files}


def _torch(path: Path) -> Any:
    with documents.open_file(path) as file:
        return torch.load(file, map_location="cpu", weights_only=True)


def _safetensors(path: Path) -> Any:
    from safetensors.torch import load

    return load(documents.read(path, documents.MOST_LARGE))


_READERS: dict[str, Callable[[Path], Any]] = {
    ".pt": _torch,
    ".pth": _torch,
    ".npy": _numpy,
    ".npz": _numpy,
    ".safetensors": _safetensors,
}
