"""TorchScript of this process: scripted and traced modules and functions on the simulated Mac."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import opcheck
from opcheck.common.errors import ModelLoadError
from opcheck.model.records import Report

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


class Net(nn.Module):
    """Convolution, batch norm, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify."""
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        out: torch.Tensor = self.head(y)
        return out


class Devices(nn.Module):
    """Makes tensors where its input is, and looks where that is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add."""
        for _ in range(2):
            x = x + torch.zeros(3, device=x.device)
        if x.is_cuda:
            x = x.double()
        return x + torch.ones(3, dtype=x.dtype, device=x.device)


class OnCpu(nn.Module):
    """Makes a tensor on the CPU, whatever its input is on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add."""
        return x + torch.zeros(3)


def _image() -> torch.Tensor:
    return torch.ones(2, 3, 8, 8)


def _audit(model: Any, *inputs: torch.Tensor, **options: Any) -> Report:
    return opcheck.audit(model, inputs, torch="2.13", macos="15", **options)


def _calls(report: Report) -> dict[str, int]:
    return {group.op: group.count for group in report.groups}


@pytest.mark.parametrize("ran_before", [False, True])
@pytest.mark.parametrize("how", ["scripted", "traced", "inside"])
def test_modules_run_natively(how: str, *, ran_before: bool) -> None:
    net = Net().eval()
    script: Any = torch.jit.trace(net, _image()) if how == "traced" else torch.jit.script(net)
    model = nn.Sequential(script, nn.ReLU()) if how == "inside" else script
    if ran_before:
        model(_image())
    report = _audit(model, _image())
    assert report.headline == "runs natively"
    assert report.capture.tracer == "TorchScript"
    assert _calls(report).keys() >= {"aten::native_batch_norm", "aten::linear", "aten::mean.dim"}
    assert not [finding for finding in report.findings if finding.rule == "OC121"]
    assert any("what TorchScript fixed" in line for line in report.not_checked)


def test_calls_are_of_the_scripted_class_and_of_no_line_of_the_caller() -> None:
    report = _audit(torch.jit.script(Net().eval()), _image())
    places = [place for group in report.groups for place in group.locations]
    assert {(place.module, place.location) for place in places} == {("Net", None)}


def test_the_device_of_a_tensor_is_mps_in_a_script() -> None:
    scripted = torch.jit.script(Devices())
    scripted(torch.ones(3))
    report = _audit(scripted, torch.ones(3))
    assert report.headline == "runs natively"
    # Its optimizer makes one tensor of the two of the loop.
    assert _calls(report) == {"aten::add.Tensor": 3, "aten::zeros": 1, "aten::ones": 1}


def test_the_device_of_a_trace_stays_what_it_was() -> None:
    report = _audit(torch.jit.trace(Devices(), torch.ones(3)), torch.ones(3))
    assert report.headline == "fails"
    assert "two devices" in report.findings[0].message


def test_tensors_of_the_cpu_are_refused_in_a_script() -> None:
    assert _audit(torch.jit.script(OnCpu()), torch.ones(3)).headline == "fails"


def _function(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + torch.ones(3, device=x.device)


def test_a_scripted_function() -> None:
    function = torch.jit.script(_function)
    assert function(torch.ones(3)).tolist() == [3, 3, 3]
    report = _audit(function, torch.ones(3))
    assert report.headline == "runs natively"
    assert _calls(report)["aten::ones"] == 1


@pytest.mark.parametrize(
    ("make", "options", "what"),
    [
        (
            lambda: torch.jit.freeze(torch.jit.script(Net().eval())),
            {},
            "a frozen TorchScript module cannot be moved: its weights are constants of the CPU",
        ),
        (
            lambda: torch.jit.optimize_for_inference(torch.jit.script(Net().eval())),
            {},
            "a frozen TorchScript module cannot be moved: its weights are constants of the CPU",
        ),
        (
            lambda: torch.jit.script(Net()),
            {"mode": "train"},
            "a TorchScript module is audited for inference only, not for training",
        ),
        (
            lambda: nn.Sequential(torch.jit.trace(Net().eval(), _image())),
            {"mode": "train"},
            "a TorchScript module is audited for inference only, not for training",
        ),
        (
            lambda: torch.jit.script(nn.LSTM(3, 3)),
            {},
            "this TorchScript module has no method forward that Python could call",
        ),
    ],
)
def test_what_is_refused_in_three_lines(make: Any, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        _audit(make(), _image(), **options)
    lines = str(caught.value).splitlines()
    assert lines[0] == what
    assert lines[1].startswith("  in: model ")
    assert lines[2].startswith("  help: ")


def test_the_module_itself_stays_as_it_was() -> None:
    scripted = torch.jit.script(Devices())
    before = str(scripted.graph)
    _audit(scripted, torch.ones(3))
    assert str(scripted.graph) == before
