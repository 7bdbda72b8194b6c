"""A program that handles an error of a Mac runs on in its own handler; elsewhere the audit goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import opcheck
from opcheck.model.records import Report

MODELS = """
import contextlib
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)


class HandledHalf(Model):
    def forward(self, x):
        y = self.linear(x)
        try:
            z = torch.fft.rfft(y.half())
        except RuntimeError:
            z = torch.fft.rfft(y.float())
        return z.abs().sum()


class HandledDouble(Model):
    def forward(self, x):
        y = self.linear(x)
        with contextlib.suppress(TypeError):
            y = y.double()
        return y.sum()


class HandledFallback(Model):
    def call(self, y):
        return torch.linalg.eigvals(y)

    def forward(self, x):
        y = self.linear(x)
        try:
            z = self.call(y)
        except NotImplementedError:
            z = torch.linalg.eigvals(y.cpu()).to(y.device)
        return z.abs().sum()


class HandledShape(Model):
    def forward(self, x):
        y = self.linear(x)[None, None]
        try:
            return torch.nn.functional.adaptive_avg_pool2d(y, (3, 3)).sum()
        except Exception:
            return torch.nn.functional.adaptive_avg_pool2d(y.cpu(), (3, 3)).sum()


class RaisedAgain(Model):
    def forward(self, x):
        try:
            return torch.linalg.eigvals(self.linear(x)).abs().sum()
        except NotImplementedError as error:
            raise RuntimeError("this model needs a CPU") from error


class OtherType(Model):
    def forward(self, x):
        try:
            return torch.linalg.eigvals(self.linear(x)).abs().sum()
        except TypeError:
            return x.sum()


class FourFaults(Model):
    def forward(self, x):
        y = self.linear(x)
        a = y.double().sum()
        b = torch.linalg.eigvals(y).abs().sum()
        c = torch.fft.fft(y.half()).abs().sum()
        d = torch.nn.functional.adaptive_avg_pool2d(y[None, None], (3, 3)).sum()
        return a, b, c, d
"""


def audit(folder: Path, name: str) -> Report:
    path = folder / "models.py"
    path.write_text(MODELS)
    return opcheck.audit(f"{path}:{name}", inputs=["8x8"], torch="2.13", macos="15.0")


@pytest.mark.parametrize("name", ["HandledHalf", "HandledDouble", "HandledFallback", "HandledShape"])
def test_an_error_that_the_program_handles_is_no_finding(tmp_path: Path, name: str) -> None:
    report = audit(tmp_path, name)
    assert [finding.rule for finding in report.findings if finding.severity == "error"] == []
    assert {group.status for group in report.groups} == {"native"}


@pytest.mark.parametrize("name", ["RaisedAgain", "OtherType"])
def test_an_error_that_leaves_the_handler_is_one(tmp_path: Path, name: str) -> None:
    assert "OC102" in {finding.rule for finding in audit(tmp_path, name).findings}


def test_an_audit_goes_on_after_each_refused_call(tmp_path: Path) -> None:
    report = audit(tmp_path, "FourFaults")
    errors = {finding.rule for finding in report.findings if finding.severity == "error"}
    assert errors == {"OC102", "OC105", "OC106", "OC140"}
    lines = {place.line for finding in report.findings if finding.severity == "error" for place in finding.locations}
    assert len(lines) == len(errors)
