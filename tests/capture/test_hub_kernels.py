"""Kernels of the hub are read from settings, and left out of what a model is built from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from torch import nn

from opcheck.capture.child import run
from opcheck.capture.child.loading.load import load
from opcheck.capture.repository import USE_KERNELS, Repository, has_replaced_layers, hub_kernels_in, remove_kernels
from opcheck.capture.request import CaptureRequest
from opcheck.common.vocabulary import Mode
from opcheck.data.packages import PACKAGES
from opcheck.worker.protocol import silent
from tests.capture.child.loading.test_pretrained import LLAMA
from tests.made import make_target


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"attn_implementation": "org/name"}, ["org/name"]),
        ({"_attn_implementation": "org/name@v1:function"}, ["org/name"]),
        ({"attn_implementation": "paged|org/name"}, ["org/name"]),
        ({"attn_implementation": {"": "sdpa", "text_config": "org/name"}}, ["org/name"]),
        ({"text_config": {"attn_implementation": "org/name"}}, ["org/name"]),
        ({"use_kernels": True}, ["use_kernels"]),
        ({"use_kernels": False}, []),
        ({"attn_implementation": "flash_attention_2"}, []),
        ({"attn_implementation": 3, "text_config": None}, []),
        ({"other": "org/name"}, []),
    ],
)
def test_kernels_are_read_and_left_out(settings: dict[str, Any], names: list[str]) -> None:
    assert [*hub_kernels_in(settings)] == names
    assert [*hub_kernels_in(remove_kernels({**settings, "kept": 1}))] == []
    assert remove_kernels({**settings, "kept": 1})["kept"] == 1
    if not names:
        assert remove_kernels(settings) == settings


def test_a_kernel_in_the_configuration_is_named_and_the_model_built_without_it() -> None:
    config = json.dumps({**LLAMA, "attn_implementation": "kernels-community/flash-attn2"})
    described = Repository(name="org/model", files={"config.json": config})
    assert described.hub_kernels() == ("kernels-community/flash-attn2",)
    model: Any = load("org/model", repository=described).model
    assert model.config._attn_implementation == "sdpa"


def layer(module: str, name: str, **settings: Any) -> nn.Module:
    """Make a layer of transformers."""
    owner: Any = pytest.importorskip(f"transformers.models.{module}")
    made: nn.Module = getattr(owner, name)(8, **settings)
    return made


def test_layers_with_a_kernel_for_mps_are_read_from_their_source() -> None:
    layers = PACKAGES.load().kernels[USE_KERNELS].layers
    decorated = layer("llama.modeling_llama", "LlamaRMSNorm")
    assert has_replaced_layers(layers, [nn.Linear(2, 2), decorated])
    # A class that inherits from a decorated one has its name.
    assert has_replaced_layers(layers, [type("Own", (type(decorated),), {})(8)])
    assert not has_replaced_layers(["SwiGLUMLP"], [decorated])


def test_layers_without_a_kernel_for_mps_are_not_replaced() -> None:
    layers = PACKAGES.load().kernels[USE_KERNELS].layers
    zero_centred = layer("gemma.modeling_gemma", "GemmaRMSNorm")
    assert not has_replaced_layers(layers, [nn.RMSNorm(8), nn.Linear(2, 2), zero_centred])


@pytest.mark.parametrize(
    ("settings", "mode", "names"),
    [
        (LLAMA, "inference", ["use_kernels"]),
        # No layer has a kernel for training on mps.
        (LLAMA, "train", []),
        ({**LLAMA, "model_type": "gemma", "architectures": ["GemmaForCausalLM"]}, "inference", []),
    ],
)
def test_use_kernels_is_named_where_a_mac_replaces_a_layer(
    settings: dict[str, Any], mode: Mode, names: list[str]
) -> None:
    described = Repository(name="org/model", files={"config.json": json.dumps(settings)})
    request = CaptureRequest(
        model="org/model", target=make_target(), repository=described, config={"use_kernels": True}, mode=mode
    )
    prepared = run.prepare(request, request.target, silent)
    assert [problem.answered for problem in prepared.hub_kernels] == names
