"""What the simulation leaves behind: nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tests.simulate.mac import recorded

OPERATORS = ("aten::linear", "aten::max_pool2d", "aten::add.Tensor", "aten::gru.input")


def _tables() -> list[str]:
    return [torch._C._dispatch_dump_table(name) for name in OPERATORS]


def test_dispatch_tables_and_backend_are_as_before() -> None:
    tables, available = _tables(), torch.backends.mps.is_available()
    recorded(lambda x: x + 1, torch.ones(2))
    assert _tables() == tables
    assert torch.backends.mps.is_available() is available
    assert not torch.mps.is_available()


def test_results_on_the_cpu_are_as_before() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    before = model(x)
    recorded(torch.nn.functional.gelu, torch.ones(4))
    assert torch.equal(model(x), before)


def test_an_exception_leaves_nothing_behind_either() -> None:
    tables = _tables()
    with pytest.raises(ZeroDivisionError):
        recorded(lambda _: 1 / 0, torch.ones(2))
    assert _tables() == tables


def test_the_backend_says_that_it_is_there() -> None:
    def run(_: torch.Tensor) -> None:
        assert torch.backends.mps.is_available()
        assert torch.backends.mps.is_macos_or_newer(14, 4)
        assert not torch.backends.mps.is_macos_or_newer(15, 1)
        torch.mps.synchronize()
        torch.mps.set_rng_state(torch.mps.get_rng_state())

    recorded(run, torch.ones(1), macos="15.0")


def test_dynamo_is_not_imported() -> None:
    # Its import takes longer than the whole audit (torch/utils/_python_dispatch.py, _should_skip_dynamo).
    code = """
import sys, torch
from opcheck.capture.imports import without_compiler
from tests.simulate.mac import recorded
with without_compiler():
    recorded(lambda x, w: torch.relu(torch.nn.functional.linear(x, w) + 1), torch.ones(2, 3), torch.ones(4, 3))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
