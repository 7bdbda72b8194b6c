"""What public threads reported of files of weights on Macs, and what opcheck answers for such files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.command_line import CommandLine
from tests.weights import making

THREADS = yaml.safe_load(Path(__file__).with_name("threads.yaml").read_text(encoding="utf-8"))
_ON_CUDA = {
    "a": {
        "archive/data.pkl": b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n"
        b"((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x06\x00\x00\x00cuda:0"
        b"K\x04tQK\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs.",
        "archive/data/0": bytes(16),
    }
}


def made(folder: Path, kind: str, words: list[str], arch: str) -> Path:
    """Write a file, or a folder, of the kind that a thread is about."""
    if kind == "safetensors":
        path = folder / "x.safetensors"
        path.write_bytes(making.safetensors({f"t{n}": (word, [4]) for n, word in enumerate(words)}))
    elif kind == "gguf":
        path = folder / "x.gguf"
        tensors = {f"t{n}": (word, [256]) for n, word in enumerate(words)}
        path.write_bytes(making.gguf(tensors, general__architecture=arch))
    elif kind == "workflow":
        path = folder / "x.json"
        node = {"type": "UNETLoader", "widgets_values": [words[0], "default"]}
        path.write_text(json.dumps({"nodes": [node]}))
    elif kind == "pt":
        path = folder / "x.pt"
        checkpoints: dict[str, Any] = {"module": torch.nn.Linear(2, 2), "numpy": None}
        if words == ["cuda"]:
            path.write_bytes(making.archive(_ON_CUDA["a"]))
        elif words == ["numpy"]:
            import numpy as np

            path.write_bytes(pickle.dumps({"best": np.float64(0.5)}, protocol=2))
        else:
            torch.save(checkpoints[words[0]], path)
    else:
        part = folder / "unet" if kind == "diffusers" else folder
        part.mkdir(exist_ok=True)
        config = {"quantization_config": {"quant_method": words[0], "load_in_4bit": True}}
        (part / "config.json").write_text(json.dumps(config))
        weights = making.safetensors({"a": ("U8", [4])})
        (part / f"{'diffusion_pytorch_' * (kind == 'diffusers')}model.safetensors").write_bytes(weights)
        if kind == "diffusers":
            (folder / "model_index.json").write_text(json.dumps({"unet": ["diffusers", "A"]}))
        path = folder
    return path


def test_there_are_thirty_threads() -> None:
    assert len({thread["where"] for thread in THREADS}) == len(THREADS) >= 30


@pytest.mark.parametrize("thread", THREADS, ids=lambda thread: thread["where"].rpartition("github.com/")[2])
def test_the_answer_is_that_of_the_thread(opcheck: CommandLine, tmp_path: Path, thread: dict[str, Any]) -> None:
    kind, *words = thread["file"]
    path = made(tmp_path, kind, words, thread.get("arch", "llama"))
    macos = ["--macos", thread["macos"]] if "macos" in thread else []
    result = opcheck("weights", str(path), "--torch", thread["torch"], "-f", "json", *macos)
    document = json.loads(result.out)
    assert document["outcome"] == thread["outcome"], document["because"]
    assert thread.get("text", "") in document["text"]
    assert thread.get("since", "") in document["since"]
    assert bool(document["instead"]) or document["outcome"] == "loads"
