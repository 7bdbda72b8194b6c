"""Inputs out of files, by position and by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from opcheck.capture.child.inputs.specs import read_files as read
from opcheck.common.errors import InputError

X, Y = torch.arange(6.0).view(2, 3), torch.arange(4)


def kept(path: Path, suffix: str) -> Any:
    """X and Y by their names in a file of that kind."""
    if suffix == ".npz":
        np.savez(path, x=X.numpy(), y=Y.numpy())
    elif suffix == ".safetensors":
        save_file({"x": X, "y": Y}, path)
    else:
        torch.save({"x": X, "y": Y}, path)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".npz", ".safetensors"])
def test_named_tensors_go_by_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"inputs{suffix}"
    kept(path, suffix)
    args, kwargs = read([str(path)])
    assert not args
    assert torch.equal(kwargs["x"], X)
    assert torch.equal(kwargs["y"], Y)


def test_one_tensor_is_one_argument_and_a_list_goes_by_position(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    torch.save([X, Y], tmp_path / "both.pt")
    args, kwargs = read([str(tmp_path / "x.npy"), str(tmp_path / "both.pt"), f"z={tmp_path}/x.npy"])
    assert [tuple(arg.shape) for arg in args] == [(2, 3), (2, 3), (4,)]
    assert torch.equal(kwargs["z"], X)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "1 2", "cannot read inputs from x.txt"),
        ("gone.npy", None, "there is no file"),
        ("bad.npy", "no array", "cannot read bad.npy: "),
        ("bad.pt", "no tensor", "cannot read bad.pt: "),
    ],
)
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as caught:
        read([str(path)])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(message)
    assert len(lines) == 3
