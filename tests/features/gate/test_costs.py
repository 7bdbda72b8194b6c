"""Launches and estimated time next to those of the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from opcheck.features.gate.assemble import Cost, compare_costs
from tests.features.gate.conftest import Project
from tests.made import call

BASELINE = ("--torch", "2.14", "--macos", "26", "--baseline", "known.yaml")


@pytest.fixture
def grown(project: Project) -> Project:
    """A model with three times the calls that its baseline has."""
    project.configure("native")
    project.calls["native"] = (call("aten::relu"),) * 40
    assert project(*BASELINE, "--update-baseline").code == 0
    project.calls["native"] = (call("aten::relu"),) * 124
    return project


def test_the_baseline_has_the_cost_of_each_cell(grown: Project) -> None:
    del grown
    (cost,) = yaml.safe_load(Path("known.yaml").read_text())["costs"]["native"].values()
    assert (cost["launches"], cost["waits"]) == (40, 0)
    assert cost["seconds"] > 0


def test_growth_is_noted_and_passes(grown: Project) -> None:
    result = grown(*BASELINE)
    assert result.code == 0
    assert "3.1 times more launches than the baseline (40 then, 124 now)" in " ".join(result.out.split())


def test_growth_beyond_the_limit_fails(grown: Project) -> None:
    failed = grown(*BASELINE, "--max-slowdown", "2")
    assert failed.code == 1
    assert "3.1 times more launches than the baseline" in failed.out
    assert grown(*BASELINE, "--max-slowdown", "5").code == 0


def test_the_same_cost_is_not_mentioned(grown: Project) -> None:
    grown(*BASELINE, "--update-baseline")
    result = grown(*BASELINE, "--max-slowdown", "1.1")
    assert result.code == 0
    assert "than the baseline" not in result.out


def test_a_baseline_without_costs_compares_nothing(grown: Project) -> None:
    content = yaml.safe_load(Path("known.yaml").read_text())
    del content["costs"]
    Path("known.yaml").write_text(yaml.safe_dump(content))
    assert grown(*BASELINE, "--max-slowdown", "2").code == 0


def test_a_model_that_got_faster_is_not_mentioned() -> None:
    before, after = Cost(launches=9, waits=2, seconds=1.0), Cost(launches=3, waits=0, seconds=0.1)
    assert compare_costs(before, after, None) == ()


def test_each_cost_is_compared() -> None:
    before, after = Cost(launches=1, waits=1, seconds=1.0), Cost(launches=1, waits=4, seconds=1.2)
    (line,) = compare_costs(before, after, None)
    assert line.startswith("4.0 times more waits for the GPU than the baseline (1 then, 4 now)")
    assert len(compare_costs(before, after, 1.1)) == 2


def test_a_limit_needs_a_baseline(project: Project) -> None:
    project.configure("native")
    result = project("--max-slowdown", "2")
    assert result.code == 2
    assert result.err.splitlines()[0] == "there is no baseline to compare with"
