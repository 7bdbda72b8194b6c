"""Kernels of the hub are read from settings, and left out of what a model is built from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opcheck.capture.loading.hub_kernels import kernels, without
from opcheck.capture.loading.load import load
from opcheck.capture.loading.repository import Repository
from tests.capture.test_pretrained import LLAMA


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
    assert [*kernels(settings)] == names
    assert [*kernels(without({**settings, "kept": 1}))] == []
    assert without({**settings, "kept": 1})["kept"] == 1
    if not names:
        assert without(settings) == settings


def test_a_kernel_in_the_configuration_is_named_and_the_model_built_without_it() -> None:
    config = json.dumps({**LLAMA, "attn_implementation": "kernels-community/flash-attn2"})
    described = Repository(name="org/model", files={"config.json": config})
    assert described.hub_kernels() == ("kernels-community/flash-attn2",)
    model: Any = load("org/model", repository=described).model
    assert model.config._attn_implementation == "sdpa"
