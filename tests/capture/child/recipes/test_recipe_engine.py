"""The recipes are read as data: every name that they use is known, and the more specific one counts."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from torch import nn

from opcheck.capture.child.recipes import recipe_engine
from opcheck.capture.child.recipes.pipelines import DiffusersScope
from opcheck.capture.child.recipes.recipe_engine import Recipes, RecipeScope, recipes
from opcheck.capture.child.recipes.transformers import TransformersScope

SCOPES = {"transformers": TransformersScope, "diffusers": DiffusersScope}


def expressions(library: str) -> Iterator[tuple[str, CodeType]]:
    known = recipes(library)
    tables = [("names", known.names), *known.exact.items(), *known.patterns.items()]
    for owner, table in tables:
        for name, value in table.items():
            if isinstance(value, CodeType):
                yield f"{owner}.{name}", value


def loaded(code: CodeType) -> set[str]:
    return {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_NAME"}


@pytest.mark.parametrize("library", SCOPES)
def test_every_name_of_an_expression_is_a_recipe_or_a_function(library: str) -> None:
    known = recipes(library)
    tables = [known.names, *known.exact.values(), *known.patterns.values()]
    names = {name for table in tables for name in table} | {"config", "dtype"}
    functions = {name for name, _ in inspect.getmembers(SCOPES[library], inspect.isfunction)}
    for place, code in expressions(library):
        assert loaded(code) <= names | functions | recipe_engine.FUNCTIONS.keys(), place


@pytest.mark.parametrize("library", SCOPES)
def test_every_helper_is_used(library: str) -> None:
    known = recipes(library)
    used = {name for _, code in expressions(library) for name in loaded(code)}
    words = {"_offered", "_offered_with_sound", "_parts", "_lengths", "_placeholders"}
    read_by_the_code = {"_main_inputs", "_image_size", *words}
    helpers = {name for name in known.names if name.startswith("_")}
    assert helpers <= used | read_by_the_code


class Model(nn.Module):
    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = config

    def forward(self, size: torch.Tensor, mask: torch.Tensor, extra: int = 0) -> None:
        """Take what the recipes below make."""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipes:
    text = """
names:
  WIDTH: 3
  size: _base + 1
  _base: 1
  mask: ones(1, WIDTH)
models:
  "*odel, *other*": {_base: 10, mask: "zeros(1, WIDTH)"}
  "Mo*": {_base: 100}
  kind: {size: _base + 5, extra: 7, absent: 1}
settings:
  Model, Kind: {depth: [1]}
"""
    (tmp_path / "small.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(recipe_engine, "__file__", str(tmp_path / "engine.py"))
    made = Recipes("small")
    monkeypatch.setattr(recipe_engine, "recipes", lambda _library: made)
    return made


@pytest.mark.usefixtures("small")
def test_an_exact_name_goes_before_a_pattern_and_a_pattern_before_the_rest() -> None:
    scope = RecipeScope("small", Model(), "kind")
    assert scope["size"] == 15
    assert RecipeScope("small", Model())["size"] == 11
    assert RecipeScope("small", Model())["mask"].sum() == 0
    assert RecipeScope("small", nn_module_named("Unlike"))["mask"].sum() == 3


@pytest.mark.usefixtures("small")
def test_only_an_exact_entry_adds_arguments_and_only_those_that_forward_takes() -> None:
    assert RecipeScope("small", Model(), "kind").own_arguments == ["size", "extra"]
    assert RecipeScope("small", Model()).own_arguments == []


def test_settings_are_copies(small: Recipes) -> None:
    small.open_settings("Kind")["depth"].append(2)
    assert small.open_settings("Other", "Kind") == {"depth": [1]}


@pytest.mark.usefixtures("small")
def test_a_name_that_no_recipe_has_is_an_error() -> None:
    with pytest.raises(KeyError, match="absent"):
        RecipeScope("small", Model())["absent"]
    # An attribute of the scope is no function of recipes.
    with pytest.raises(KeyError, match="own_arguments"):
        RecipeScope("small", Model())["own_arguments"]


def nn_module_named(name: str) -> nn.Module:
    made: nn.Module = type(name, (Model,), {})()
    return made
