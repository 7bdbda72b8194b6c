"""TorchScript inside of a program, and what was scripted before it."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import opcheck
from opcheck.simulator.errors import NotSimulatedError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.zeros(3, device=x.device)


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_torchscript_as_python_is_said() -> None:
    with opcheck.emulate(torch="2.13", macos="15") as run:
        model, x = Net().eval().to("mps"), torch.randn(2, 4, device="mps")
        scripted = torch.jit.script(model)
        assert torch.equal(torch.jit.freeze(scripted)(x).cpu(), model(x).cpu())
        torch.jit.trace(model, x)
    texts = [problem.message for problem in run.report.problems]
    assert [text.partition(" was left out")[0] for text in texts] == ["torch.jit.script", "torch.jit.trace"]


def test_a_program_loads_a_script(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(4, 3)), str(tmp_path / "net.pt"))
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "net = torch.jit.load('net.pt', map_location='mps')\n"
        "assert net(torch.ones(2, 4, device='mps')).is_mps\n"
    )
    command = [sys.executable, "-m", "opcheck", "run", "-q", "--torch=2.6", "program.py"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.stderr.startswith("runs natively"), ended.stderr


def test_after_the_block_torchscript_is_as_before() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        assert not isinstance(torch.jit.script(Net()), torch.jit.ScriptModule)
    assert isinstance(torch.jit.script(Net()), torch.jit.ScriptModule)


def test_what_was_scripted_before_runs_and_is_written_from_the_cpu_alone(tmp_path: Path) -> None:
    scripted, function = torch.jit.script(torch.nn.Linear(4, 3)), torch.jit.script(_double)
    file = str(tmp_path / "net.pt")
    # torch 2.6 has no torch.compiler.is_exporting, which the installed C++ reads.
    with opcheck.emulate(torch="2.6", macos="15"):
        x = function(torch.ones(2, 4, device="mps"))
        torch.jit.save(scripted, file)
        loaded = torch.jit.load(file, map_location="mps")
        assert loaded(x).is_mps
        assert {parameter.device.type for parameter in loaded.parameters()} == {"mps"}
        assert torch.jit.load(file)(x.cpu()).is_cpu
        with pytest.raises(NotSimulatedError, match=r"torch\.jit\.save"):
            torch.jit.save(loaded, file)
        with pytest.raises(NotSimulatedError, match=r"torch\.jit\.save"):
            loaded.save(file)


def _zeros_beside(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(1, device=x.device)


def test_a_script_that_reads_the_device_of_a_tensor_on_mps_is_not_emulated() -> None:
    scripted = torch.jit.script(_zeros_beside)
    with opcheck.emulate(torch="2.13", macos="15"):
        assert scripted(torch.ones(1)).is_cpu
        with pytest.raises(NotSimulatedError, match="reads a tensor's device"):
            scripted(torch.ones(1, device="mps"))


def _reload(save: Callable[[io.BytesIO], None], map_location: str | None = None) -> Any:
    file = io.BytesIO()
    save(file)
    file.seek(0)
    return torch.jit.load(file, map_location)


def test_what_is_scripted_or_traced_on_mps_is_written_and_loads_there() -> None:
    with opcheck.emulate(torch="2.13", macos="15"):
        linear, x = torch.nn.Linear(4, 3).to("mps"), torch.ones(2, 4, device="mps")
        scripted: Any = torch.jit.script(linear)
        traced: Any = torch.jit.trace(linear, x)
        for save in (functools.partial(torch.jit.save, scripted), traced.save):
            loaded = _reload(save)
            assert torch.equal(loaded(x).cpu(), linear(x).cpu())
            assert {weight.device.type for weight in loaded.parameters()} == {"mps"}
            assert {weight.device.type for weight in _reload(save, "cpu").parameters()} == {"cpu"}
        assert not hasattr(torch.nn.Linear(4, 3), "save")


@pytest.mark.parametrize(
    "trace",
    [
        lambda *arguments: torch.jit.trace(*arguments),  # noqa: PLW0108 - of the emulation
        lambda module, x: torch.jit.trace(module, example_kwarg_inputs={"input": x}),
        lambda module, x: torch.jit.trace_module(module, {"forward": (x,)}),
    ],
    ids=["trace", "keywords", "trace_module"],
)
def test_a_trace_calls_the_module_as_on_a_mac(trace: Callable[..., object]) -> None:
    with opcheck.emulate(torch="2.13", macos="15") as run:
        trace(torch.nn.Linear(4, 3).to("mps"), torch.ones(2, 4, device="mps"))
    assert "aten::linear" in {group.op for group in run.report.groups}


def test_a_trace_that_keeps_a_device_is_not_written() -> None:
    with (
        opcheck.emulate(torch="2.13", macos="15"),
        pytest.raises(NotSimulatedError, match="a graph that names a device"),
    ):
        torch.jit.trace(Net().to("mps"), torch.ones(2, 4, device="mps")).save(io.BytesIO())


def test_no_script_loads_on_mps_before_2_1() -> None:
    scripted = torch.jit.script(torch.nn.Linear(4, 3))
    with opcheck.emulate(torch="2.0", macos="13"), pytest.raises(RuntimeError, match="however got MPS"):
        _reload(functools.partial(torch.jit.save, scripted), "mps")
    with opcheck.emulate(torch="2.1", macos="13"):
        _reload(functools.partial(torch.jit.save, scripted), "mps")
