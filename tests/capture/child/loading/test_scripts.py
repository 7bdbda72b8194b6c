"""A script or a notebook without a name: the module that it calls first, or the one that it builds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from opcheck.capture.child.inputs.specs import inputs_for
from opcheck.capture.child.loading.load import load
from opcheck.capture.naming import full_name
from opcheck.common import notebooks
from opcheck.common.errors import ModelLoadError, UsageError

SCRIPT = """
import sys

import torch
from torch import nn


def main():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    for step in range(10**9):
        try:
            model(torch.ones(5, 4)).sum().backward()
        except Exception:
            raise SystemExit(7)


if __name__ == "__main__":
    main()
"""


@pytest.fixture(autouse=True)
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory, and the import path as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def cells(*texts: str) -> str:
    """A notebook of a text and these code cells."""
    made: list[dict[str, Any]] = [{"cell_type": "markdown", "source": ["# A title"]}]
    made += [{"cell_type": "code", "source": text.splitlines(keepends=True)} for text in texts]
    return json.dumps({"nbformat": 4, "cells": made})


def test_the_module_that_a_script_calls_first_with_its_inputs() -> None:
    Path("train.py").write_text(SCRIPT)
    main, arguments = sys.modules["__main__"], sys.argv
    made = load("train.py")
    assert type(made.model).__name__ == "Sequential"
    inputs = inputs_for(made)
    assert inputs.specs == ("5x4:float32",)
    assert inputs.note == "as the file first calls its Sequential"
    assert (sys.modules["__main__"], sys.argv) == (main, arguments)
    model: Any = made.model
    assert model(torch.ones(1, 4)).shape == (1, 8)  # modules are called again


def test_the_only_module_that_a_file_builds() -> None:
    Path("net.py").write_text("from torch import nn\npart = nn.Linear(2, 3)\nnet = same = nn.Sequential(part)\n")
    assert type(load("net.py").model).__name__ == "Sequential"


def test_several_modules_are_offered() -> None:
    Path("net.py").write_text("from torch import nn\na = nn.Linear(2, 3)\nb = nn.ReLU()\n")
    with pytest.raises(ModelLoadError, match=r"net\.py builds 2 modules") as raised:
        load("net.py")
    assert raised.value.hint == "name one: net.py:a (Linear), net.py:b (ReLU)"


NOTEBOOK = cells(
    "%matplotlib inline\n!pip install torch\nfrom torch import nn\n", "net = nn.Linear(3, 2)\n", "raise_later = 1\n"
)


def test_a_name_in_a_notebook() -> None:
    Path("net.ipynb").write_text(NOTEBOOK)
    for name in ("net.ipynb:net", "net.ipynb"):
        model: Any = load(name).model
        assert model.in_features == 3


def test_an_error_names_its_cell() -> None:
    Path("net.ipynb").write_text(cells("one = 1", "one\none / 0\n"))
    with pytest.raises(ModelLoadError, match="ZeroDivisionError") as raised:
        load("net.ipynb:net")
    assert raised.value.context == "net.ipynb#cell-3:2 in <module>: one / 0"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"cells": [1]}', "[" * 100_000])
def test_what_is_no_notebook(content: str) -> None:
    Path("net.ipynb").write_text(content)
    with pytest.raises(UsageError, match=r"net\.ipynb is not a notebook") as raised:
        load("net.ipynb:net")
    assert raised.value.hint


def test_cells_run_in_one_namespace() -> None:
    Path("net.ipynb").write_text(cells("a = 1", "%%bash\nrm -rf nothing", "b = a + 1"))
    names: dict[str, Any] = {}
    notebooks.run(Path("net.ipynb"), names)
    assert names["b"] == 2


def test_a_notebook_that_does_not_exist() -> None:
    with pytest.raises(ModelLoadError, match=r"there is no file nett\.ipynb"):
        load("nett.ipynb:net")


def test_a_script_and_a_notebook_are_names_as_they_are() -> None:
    Path("train.py").write_text(SCRIPT)
    Path("net.ipynb").write_text(NOTEBOOK)
    assert full_name("train.py") == "train.py"
    assert full_name("net.ipynb") == "net.ipynb"
