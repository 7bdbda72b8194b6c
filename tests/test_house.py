"""The figures of the house stay within their budgets, which only fall (scripts/house.yaml)."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import yaml

from scripts.house import figures, over_budget

ROOT = Path(__file__).parents[1]


def test_the_package_stays_within_its_budgets() -> None:
    budget = yaml.safe_load((ROOT / "scripts" / "house.yaml").read_text(encoding="utf-8"))
    assert over_budget(figures(ROOT / "opcheck"), budget) == []


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "toy"
    (folder / "room").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "room" / "run.py").write_text(
        textwrap.dedent(
            """
            class Place:
                '''Says what nobody knows, and of which program.'''

            def written(given):
                return given
            """
        )
    )
    (folder / "room" / "verb.py").write_text("class _Place:\n    pass\n")
    (folder / "other").mkdir()
    (folder / "other" / "verb.py").write_text("from toy.room import run\n")
    return folder


def test_names_and_prose_are_counted(package: Path) -> None:
    measured = figures(package)
    assert measured["code lines"] == 6
    assert measured["class names used twice"] == 1
    assert measured["file names used twice"] == 0  # each feature has a verb.py
    assert measured["files named by shape"] == 1
    assert measured["one-word participles"] == 1
    assert measured["bindings that name nothing"] == 1
    assert measured["dialect in docstrings"] == 500.0
    assert measured["import cycles"] == 0


@pytest.mark.parametrize(
    ("reached", "allowed", "problem"),
    [
        (11, 10, "x: 11 is above the budget of 10 in scripts/house.yaml"),
        (10, 10, ""),
        (9, 10, ""),
        (7, 10, "x: 7 is reached; lower the budget of 10"),
    ],
)
def test_a_budget_only_falls(reached: float, allowed: float, problem: str) -> None:
    assert over_budget({"x": reached}, {"x": allowed}) == ([problem] if problem else [])


def test_a_figure_without_a_budget_is_an_error() -> None:
    assert over_budget({"x": 1}, {}) == ["x: house.yaml and house.py differ"]
