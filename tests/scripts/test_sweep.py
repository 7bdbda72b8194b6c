"""The sweep of the zoo: small configurations, whose failure it is, and a table that says the same each time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opcheck.versions import Target, Version
from scripts.sweep import table
from scripts.sweep.attribution import MODELS, OURS, attribute
from scripts.sweep.records import Job, Result
from scripts.sweep.server import results
from scripts.sweep.shrink import small

TARGET = Target(torch=Version.parse("2.13"), macos=Version.parse("15"), cpu_fallback=False)

GOOD = Result(
    spec="timm:a", family="a", headline="runs natively", complete=True, calls=9, operators=3
)
FAILS = Result(
    spec="timm:b", family="b", headline="fails", complete=False, overloads={"unsupported": ["x"]}
)
RAISED = Result(
    spec="timm:c",
    family="c",
    headline="could not tell",
    problem="model_raised",
    message="the model raised ValueError: no",
    stage="run",
)


def test_a_small_configuration_has_fewer_layers_and_keeps_each_kind_of_them() -> None:
    library = SimpleNamespace(
        Model=SimpleNamespace(
            __name__="Model",
            config_class=lambda: SimpleNamespace(
                num_hidden_layers=6,
                layer_types=["a", "a", "b", "a", "a", "b"],
                hidden_size=512,
                num_experts=64,
                num_attention_heads=8,
            ),
        )
    )
    library.Model.config_class.__name__ = "Config"
    made = small(Job(spec="transformers:Model", family="Config"), library)  # type: ignore[arg-type]
    assert made == {"num_hidden_layers": 3, "layer_types": ["a", "a", "b"], "num_experts": 16}


def test_of_layers_that_share_weights_two_are_kept() -> None:
    kinds = ["linear", "hybrid", "linear", "hybrid", "linear", "hybrid"]
    config = SimpleNamespace(
        num_hidden_layers=6, layers_block_type=kinds, stage_names=["a", "b", "c", "d", "e", "f"]
    )
    library = SimpleNamespace(Model=SimpleNamespace(__name__="Model", config_class=lambda: config))
    library.Model.config_class.__name__ = "Config"
    made = small(Job(spec="transformers:Model", family="Config"), library)  # type: ignore[arg-type]
    assert made["num_hidden_layers"] == 4
    assert made["layers_block_type"] == kinds[:4]


def test_a_model_is_audited_when_it_ran_to_its_end_or_an_operator_fails() -> None:
    assert GOOD.audited
    assert FAILS.audited
    assert not RAISED.audited


@pytest.mark.parametrize(
    ("change", "owner"),
    [
        ({"plain": "runs"}, OURS),
        ({"plain": "ValueError: no [x.py:1]"}, OURS),
        ({"stage": "inputs"}, OURS),
        ({"stage": "load", "plain": "ValueError: no [x.py:1]"}, MODELS),
        ({"stage": "load", "plain": "runs"}, OURS),
        ({"message": "raises ImportError: A requires the natten library"}, MODELS),
    ],
)
def test_a_failure_is_ours_unless_the_model_does_not_build_without_us(
    change: dict[str, Any], owner: str
) -> None:
    fields = {name: getattr(RAISED, name) for name in RAISED.__struct_fields__}
    assert attribute(Result(**{**fields, **change})).owner == owner


def test_the_table_counts_and_lists_every_failure() -> None:
    text = table.document([GOOD, FAILS, RAISED], TARGET)
    assert "**2 of 3 model classes (66.7%) were audited with a verdict" in text
    assert "timm:c" in text
    assert text == table.document([GOOD, FAILS, RAISED], TARGET)


def test_children_that_die_or_hang_are_results(tmp_path: Path) -> None:
    def work(job: Job) -> Result:
        if job.family == "dies":
            os._exit(3)
        while job.family == "hangs":
            time.sleep(1)
        return Result(spec=job.spec, family=job.family, headline="runs natively", complete=True)

    jobs = [Job(spec=f"timm:{name}", family=name) for name in ("dies", "hangs", "runs")]
    found = {one.family: one for one in results(jobs, work, limit=2.0, at_once=2, scratch=tmp_path)}
    assert found["dies"].problem == "died"
    assert found["hangs"].problem == "hung"
    assert found["runs"].audited
