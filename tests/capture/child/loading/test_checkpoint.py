"""The dtypes in checkpoint files."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch

from opcheck.capture.child.recording.dtype_origins import births_in_checkpoint as births
from opcheck.common.errors import InputError


def test_a_file_of_torch_save(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    state = {"w": torch.ones(2), "m": {"mean": torch.ones(2, dtype=torch.float64)}, "n": 3}
    torch.save(state, file)
    assert [(birth.name, birth.dtype, birth.api) for birth in births(str(file))] == [("m.mean", "float64", "model.pt")]


def test_a_safetensors_file_is_read_by_its_header_alone(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F64", "shape": [1 << 40], "data_offsets": [0, 1 << 43]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    }
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    assert [(birth.name, birth.dtype) for birth in births(str(file))] == [("a", "float64")]


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
def test_a_damaged_file_is_a_clear_error(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"not a checkpoint, not at all")
    with pytest.raises(InputError, match="cannot read the checkpoint"):
        births(str(file))
    with pytest.raises(InputError, match="there is no file"):
        births(str(tmp_path / "none.pt"))
