"""What the simulation leaves behind: nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from tests.simulator.mac import no_default_device, recorded

OPERATORS = ("aten::linear", "aten::max_pool2d", "aten::add.Tensor", "aten::gru.input")


def _tables() -> list[str]:
    return [torch._C._dispatch_dump_table(name) for name in OPERATORS]


def test_dispatch_tables_and_backend_are_as_before() -> None:
    tables, available = _tables(), torch.backends.mps.is_available()
    recorded(lambda x: x + 1, torch.ones(2))
    assert _tables() == tables
    assert torch.backends.mps.is_available() is available
    assert torch.mps.is_available() is available


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


@pytest.mark.parametrize(
    ("release", "place", "refused"),
    [
        ("2.15", "mps:0", "Invalid device, must be cuda device"),
        ("2.5", "mps:0", "Invalid device, must be cuda device"),
        ("2.4", None, "Torch not compiled with CUDA enabled"),
    ],
)
def test_an_index_alone_is_a_device_of_mps_since_2_5(release: str, place: str | None, refused: str) -> None:
    def run(tensor: torch.Tensor) -> None:
        with pytest.raises((RuntimeError, AssertionError), match=refused):
            tensor.cuda(0)
        with pytest.raises((RuntimeError, AssertionError), match=refused):
            torch.nn.Linear(1, 1).cuda(0)
        with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
            tensor.cuda()
        moves: list[Callable[[], torch.Tensor]] = [
            lambda: torch.ones(1).to(0),
            lambda: torch.ones(1, device=0),
            lambda: torch.nn.Linear(1, 1).to(0).weight,
        ]
        for move in moves:
            if place is None:
                with pytest.raises(AssertionError, match=refused):
                    move()
            else:
                assert str(move().device) == place

    recorded(run, torch.ones(1), release=release)


def test_dynamo_is_not_imported() -> None:
    # Its import takes longer than the whole audit (torch/utils/_python_dispatch.py, _should_skip_dynamo).
    code = """
import sys, torch
from opcheck.capture.child.build import without_compiler
from tests.simulator.mac import recorded
with without_compiler():
    recorded(lambda x, w: torch.relu(torch.nn.functional.linear(x, w) + 1), torch.ones(2, 3), torch.ones(4, 3))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_module_moved_to_the_cpu_is_there() -> None:
    layer = torch.nn.Linear(3, 3)

    def run(x: torch.Tensor) -> None:
        layer.to("mps")(x)
        layer.to("cpu")(x.cpu())

    calls = recorded(run, torch.randn(2, 3)).calls
    assert [entry.call.route.name for entry in calls].count("aten::linear") == 1
    assert not any(entry.call.refusal for entry in calls)


def test_the_default_device_can_be_mps() -> None:
    def run(x: torch.Tensor) -> None:
        torch.set_default_device("mps")
        try:
            torch.add(x, torch.zeros(3))
        finally:
            no_default_device()

    calls = recorded(run, torch.randn(3)).calls
    assert not any(entry.call.refusal for entry in calls)
    assert [entry.call.route.name for entry in calls] == ["aten::zeros", "aten::add.Tensor"]


@pytest.mark.parametrize(("place", "refused"), [("mps", False), ("cpu", True)])
def test_a_generator_has_to_be_on_the_device(place: str, *, refused: bool) -> None:
    def run(_: torch.Tensor) -> None:
        generator = torch.Generator(device=place).manual_seed(1)
        torch.randn(3, generator=generator, device="mps")
        torch.randn(3, generator=torch.Generator())

    calls = recorded(run, torch.randn(3)).calls
    assert [bool(entry.call.refusal) for entry in calls] == [refused]


def test_pinning_asks_for_no_accelerator() -> None:
    run = recorded(lambda _: torch.zeros(3).pin_memory().to("mps"), torch.ones(1), release="2.14")
    assert [entry.call.route.name for entry in run.calls] == ["aten::_to_copy"]


@pytest.mark.skipif(not hasattr(torch.nn.functional, "grouped_mm"), reason="this torch (before 2.10) lacks it")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_products_take_more_than_bfloat16(dtype: torch.dtype) -> None:
    offs = torch.tensor([2, 4], dtype=torch.int32)

    def run(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> None:
        assert torch.nn.functional.grouped_mm(a, b, offs=ends).shape == (4, 16)

    a, b = torch.randn(4, 8, dtype=dtype), torch.randn(2, 8, 16, dtype=dtype)
    (entry,) = recorded(run, a, b, offs).calls
    assert entry.call.inner == ("aten::empty_strided", "aten::mm.out")
