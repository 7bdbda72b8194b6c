from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from opcheck.features.sweep.server import small
from opcheck.features.sweep.sweep_records import MissingVerdict, Model
from opcheck.features.sweep.sweep_summary import MODELS, OURS, PYTORCH, attribute

RAISED = MissingVerdict(
    targets=("2.13/15.0",), stage="run", problem="model_raised", message="the model raised ValueError: no"
)


OVERWRITTEN = "backward raised RuntimeError: one has been modified by an inplace operation"


def library(**settings: object) -> Any:
    """A library whose one model class has this configuration."""
    result = SimpleNamespace(Model=SimpleNamespace(__name__="Model", config_class=lambda: SimpleNamespace(**settings)))
    result.Model.config_class.__name__ = "Config"
    return result


def test_a_small_configuration_has_fewer_layers_and_keeps_each_kind_of_them() -> None:
    made = small(
        Model(spec="transformers:Model"),
        library(
            num_hidden_layers=6,
            layer_types=["a", "a", "b", "a", "a", "b"],
            hidden_size=512,
            num_experts=64,
            num_attention_heads=8,
        ),
    )
    assert made == {"num_hidden_layers": 3, "layer_types": ["a", "a", "b"], "num_experts": 16}


def test_of_layers_that_share_weights_two_are_kept() -> None:
    kinds = ["linear", "hybrid", "linear", "hybrid", "linear", "hybrid"]
    made = small(
        Model(spec="transformers:Model"),
        library(num_hidden_layers=6, layers_block_type=kinds, stage_names=["a", "b", "c", "d", "e", "f"]),
    )
    assert made["num_hidden_layers"] == 4
    assert made["layers_block_type"] == kinds[:4]


@pytest.mark.parametrize(
    ("change", "owner"),
    [
        ({"plain": "runs"}, OURS),
        ({"plain": "ValueError: no [x.py:1]"}, OURS),
        ({"stage": "inputs"}, OURS),
        ({"stage": "load", "plain": "ValueError: no [x.py:1]"}, MODELS),
        ({"stage": "load", "plain": "runs"}, OURS),
        ({"message": "raises ImportError: A requires the natten library"}, MODELS),
        ({"problem": "nothing_to_train"}, MODELS),
        ({"message": "the process that ran the model exited with code 3"}, MODELS),
        ({"message": "the process that ran the model exited with code 70"}, OURS),
        ({"message": "the process that ran the model was ended by SIGSEGV"}, OURS),
        ({"message": "the model raised NotImplementedError: Training is not implemented"}, MODELS),
        ({"message": "RuntimeError: unsupported autocast device_type 'mps'"}, PYTORCH),
        ({"message": OVERWRITTEN, "plain": "runs"}, OURS),
        ({"message": OVERWRITTEN, "plain": "RuntimeError: one of the variables [x.py:1]"}, MODELS),
    ],
)
def test_a_failure_is_ours_unless_the_model_does_not_build_without_us(change: dict[str, Any], owner: str) -> None:
    fields = {name: getattr(RAISED, name) for name in RAISED.__struct_fields__}
    assert attribute("timm:c", MissingVerdict(**{**fields, **change}))[0] == owner
