"""Every model of the samples builds without memory and comes with real inputs that its forward takes."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from opcheck.capture.child.inputs.specs import inputs_for
from opcheck.capture.child.loading.load import load

ZOO = Path(__file__).parents[1] / "examples" / "models" / "zoo.py"

#: Name -> family, and millions of parameters as published (or counted, for the small ones).
MODELS = {
    "bert_base": ("transformers", 109.5),
    "gpt2": ("transformers", 124.4),
    "llama3_8b": ("transformers", 8030.3),
    "mixtral_8x7b": ("transformers", 46702.8),
    "mamba_130m": ("transformers", 129.1),
    "whisper_small": ("transformers", 241.7),
    "vit_b16": ("transformers", 86.6),
    "wav2vec2_base": ("transformers", 94.4),
    "wav2vec2_ctc": ("transformers", 94.4),
    "fnet_base": ("transformers", 82.9),
    "resnet50": ("timm", 25.6),
    "detr_r50": ("transformers", 41.5),
    "sam_vit_b": ("transformers", 93.7),
    "sd15_unet": ("diffusers", 859.5),
    "unet3d": ("user", 1.5),
    "lstm_tagger": ("user", 15.7),
    "graph_network": ("user", 0.1),
    "spectral": ("user", 0.0),
    "linear_algebra": ("user", 0.0),
    "custom_operator": ("user", 0.0),
}


def test_the_table_names_every_model() -> None:
    assert list(runpy.run_path(str(ZOO))["ZOO"]) == list(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_zoo(name: str) -> None:
    family, millions = MODELS[name]
    if family != "user":
        pytest.importorskip(family)
    loaded = load(f"{ZOO}:{name}")
    model: Any = loaded.model
    assert loaded.family == family
    weights = list(model.parameters())
    assert round(sum(weight.numel() for weight in weights) / 1e6, 1) == millions
    assert sum(weight.nbytes for weight in weights if not weight.is_meta) < 25_000_000
    inputs = inputs_for(loaded)
    assert not inputs.args
    assert not any(value.is_meta for value in inputs.kwargs.values())
    inspect.signature(model.forward).bind(**inputs.kwargs)


@pytest.mark.parametrize("name", ["spectral", "linear_algebra", "custom_operator", "graph_network"])
def test_a_small_model_runs(name: str) -> None:
    loaded = load(f"{ZOO}:{name}")
    made = loaded.model(**inputs_for(loaded).kwargs)
    results = made if isinstance(made, tuple) else (made,)
    assert all(torch.isfinite(result.abs()).all() for result in results)
