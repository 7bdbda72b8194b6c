"""What the headers of each format state, and headers that lie."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import torch

from opcheck.common.errors import ModelLoadError
from opcheck.weights import reading
from opcheck.weights.stored import TYPES, StoredFile
from tests.weights import making


def read(content: bytes, name: str) -> StoredFile:
    return reading.read(io.BytesIO(content), len(content), name)


def test_a_safetensors_file_states_dtypes_and_bytes() -> None:
    content = making.safetensors({"a": ("F8_E4M3", [4, 4]), "b": ("BF16", [3])}, {"format": "pt"})
    stored = read(content, "x.safetensors")
    assert stored.format == "safetensors"
    assert stored.elements() == {"float8_e4m3fn": 16, "bfloat16": 3}
    assert stored.nbytes == 22
    assert stored.metadata == {"format": "pt"}


def test_the_content_decides_and_not_the_suffix() -> None:
    assert read(making.safetensors({"a": ("F16", [2])}), "x.bin").format == "safetensors"
    assert read(making.gguf({"a": ("Q8_0", [32])}), "x.bin").format == "gguf"


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_gguf_file_states_its_blocks(order: str) -> None:
    content = making.gguf(
        {"a": ("Q4_K", [256, 2]), "b": ("F32", [3]), "c": ("Q8_0", [64])},
        order=order,
        words=2_000,
        general__architecture="llama",
    )
    stored = read(content, "x.gguf")
    assert stored.elements() == {"Q4_K": 512, "float32": 3, "Q8_0": 64}
    assert stored.nbytes == 288 + 12 + 68
    assert stored.metadata["general.architecture"] == "llama"


def test_the_types_of_gguf_are_those_of_its_package() -> None:
    constants = pytest.importorskip("gguf.constants")
    sizes = {kind.value: [kind.name, *size] for kind, size in constants.GGML_QUANT_SIZES.items()}
    assert {number: row for number, row in TYPES["ggml"].items() if number in sizes} == sizes


@pytest.mark.parametrize("new", [True, False])
def test_a_checkpoint_of_torch_states_its_tensors(tmp_path: Path, new: bool) -> None:
    shared = torch.zeros(8, dtype=torch.bfloat16)
    tensors = {"a": torch.zeros(4, dtype=torch.float8_e4m3fn), "b": shared, "c": shared[:2]}
    path = tmp_path / "x.pt"
    torch.save({"state_dict": tensors, "epoch": 3}, path, _use_new_zipfile_serialization=new)
    stored = read(path.read_bytes(), "x.pt")
    assert stored.format == "pt"
    assert [(each.name, each.dtype, each.elements, each.nbytes) for each in stored.tensors] == [
        ("state_dict.a", "float8_e4m3fn", 4, 4),
        ("state_dict.b", "bfloat16", 8, 16),
        ("state_dict.c", "bfloat16", 2, 0),
    ]
    assert stored.locations == {"cpu"}


def test_a_pickled_module_states_its_tensors_and_its_classes(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    vars(module)["optimizer"] = torch.optim.AdamW(module.parameters()).state_dict()
    path = tmp_path / "x.pt"
    torch.save(module, path)
    stored = read(path.read_bytes(), "x.pt")
    assert stored.elements() == {"float32": 12 + 4 + 4 * 4, "int64": 1}
    assert "torch.nn.modules.linear.Linear" in stored.names


def test_an_exported_program_states_its_weights(tmp_path: Path) -> None:
    module = torch.nn.Linear(3, 4).eval()
    path = tmp_path / "x.pt2"
    torch.export.save(torch.export.export(module, (torch.zeros(2, 3),)), path)
    stored = read(path.read_bytes(), "x.pt2")
    assert stored.format == "pt2"
    assert stored.elements() == {"float32": 16}
    assert stored.nbytes == 64


def test_an_onnx_model_states_its_initializers() -> None:
    stored = read(making.onnx({"w": (10, [4, 4]), "n": (7, [2])}), "x.onnx")
    assert stored.elements() == {"float16": 16, "int64": 2}
    assert stored.metadata == {"producer": "a test"}


def test_no_code_of_a_pickle_runs(tmp_path: Path) -> None:
    called = tmp_path / "called"
    evil = making.calling(os.mkdir, str(called))
    for content in (evil, making.archive({"x/data.pkl": evil})):
        assert "posix.mkdir" in read(content, "x.pt").names
    assert not called.exists()


HUGE = 1 << 60
TEXT = struct.pack("<Q", 1) + b"a"
HEAD = b"GGUF" + struct.pack("<I", 3)
LIES = {
    "longer header": (making.framed(b"{}", length=HUGE), "a.safetensors"),
    "no header": (b"", "a.safetensors"),
    "no JSON": (making.framed(b'{"a":'), "a.safetensors"),
    "deep JSON": (making.framed(b'{"a":' + b"[" * 100_000), "a.safetensors"),
    "overlap": (
        making.framed(
            b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},'
            b'"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}',
            bytes(12),
        ),
        "a.safetensors",
    ),
    "beyond the end": (
        making.framed(b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}', bytes(4)),
        "a.safetensors",
    ),
    "another size": (
        making.framed(b'{"a":{"dtype":"F32","shape":[8],"data_offsets":[0,8]}}', bytes(8)),
        "a.safetensors",
    ),
    "a shape of all memory": (
        making.framed(b'{"a":{"dtype":"U8","shape":[1099511627776,1099511627776],"data_offsets":[0,8]}}'),
        "a.safetensors",
    ),
    "a negative size": (
        making.framed(b'{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,8]}}', bytes(8)),
        "a.safetensors",
    ),
    "2^60 tensors": (HEAD + struct.pack("<QQ", HUGE, 0), "a.gguf"),
    "2^60 values": (HEAD + struct.pack("<QQ", 0, HUGE), "a.gguf"),
    "a long text": (HEAD + struct.pack("<QQQ", 0, 1, HUGE) + bytes(64), "a.gguf"),
    "a long array": (
        HEAD + struct.pack("<QQ", 0, 1) + TEXT + struct.pack("<IIQ", 9, 8, HUGE) + bytes(64),
        "a.gguf",
    ),
    "arrays in arrays": (
        HEAD + struct.pack("<QQ", 0, 1) + TEXT + struct.pack("<IIQ", 9, 9, 4) + bytes(64),
        "a.gguf",
    ),
    "a tensor beyond the end": (
        HEAD + struct.pack("<QQ", 1, 0) + TEXT + struct.pack("<IQIQ", 1, 64, 0, 0) + bytes(32),
        "a.gguf",
    ),
    "an unknown type": (
        HEAD + struct.pack("<QQ", 1, 0) + TEXT + struct.pack("<IQIQ", 1, 8, 999, 0) + bytes(64),
        "a.gguf",
    ),
    "a version to come": (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "a.gguf"),
    "an archive bomb": (
        making.archive({"a/data.pkl": bytes(300 << 20)}, zipfile.ZIP_DEFLATED),
        "a.pt",
    ),
    "no pickle": (making.archive({"a/b": b""}), "a.pt"),
    "half a pickle": (pickle.dumps([1] * 100, 2)[:-20], "a.pt"),
    "a storage without a member": (
        making.archive({"a/data.pkl": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
                        b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x05tQ}q\x00ctorch._utils\n_rebuild_tensor_v2\n"
                        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
                        b"K\x05tQK\x00K\x05\x85K\x01\x85\x89}tR."}),
        "a.pt",
    ),
    "no protobuf": (b"\xff" * 100, "a.onnx"),
    "a long field": (making.varint(7 << 3 | 2) + making.varint(HUGE) + b"a", "a.onnx"),
    "no weights at all": (b"a text of some length", "a.bin"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_header_that_lies_is_refused_and_allocates_nothing(name: str) -> None:
    content, file = LIES[name]
    tracemalloc.start()
    try:
        with pytest.raises(ModelLoadError) as raised:
            read(content, file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(str(raised.value).splitlines()) == 3
    # The bomb's first 64 MiB are inflated, and no more.
    assert peak < (200 << 20 if "bomb" in name else 8 << 20)
