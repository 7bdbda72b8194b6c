"""Operators without a derivative on the target: the gradient that is lost is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.capture.child.run import run
from opcheck.capture.request import CaptureRequest
from opcheck.common.vocabulary import Mode
from opcheck.model.records import Problem
from tests.made import make_target

MODEL = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.linalg.svd(self.layer(x)).S
"""


def say(text: str, *, seconds: float = 0.0) -> None:
    assert seconds >= 0


def lost(folder: Path, torch: str, *, mode: Mode = "train") -> list[Problem]:
    file = folder / "model.py"
    file.write_text(MODEL)
    request = CaptureRequest(model=f"{file}:Model", inputs=("4x4",), target=make_target(torch), mode=mode)
    problems = run(request, say).trace.problems
    return [problem for problem in problems if problem.kind == "gradient_lost"]


def test_the_fallback_of_svd_has_no_derivative(tmp_path: Path) -> None:
    (problem,) = lost(tmp_path, "2.13")
    assert problem.op == "aten::linalg_svd"
    assert problem.location is not None
    assert problem.location.text == "return torch.linalg.svd(self.layer(x)).S"
    assert problem.message == (
        "aten::linalg_svd: an autograd kernel was not registered to the Autograd key(s) but we "
        "are trying to backprop through it. This may lead to silently incorrect behavior."
    )


@pytest.mark.parametrize(("torch", "mode"), [("2.14", "train"), ("2.13", "inference")])
def test_nothing_is_lost_with_a_kernel_of_its_own_or_without_backward(tmp_path: Path, torch: str, mode: Mode) -> None:
    assert not lost(tmp_path, torch, mode=mode)
