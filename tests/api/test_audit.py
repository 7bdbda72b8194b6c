"""``opcheck.audit`` of what this process has: it stays as it is."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import os
import pickle
import random
import sys
import threading
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import torch
from torch import nn

import opcheck
from opcheck.common.errors import CaptureError, InputError, UnknownTargetError, UsageError
from opcheck.model.records import FindingTable
from opcheck.model.saved import read
from opcheck.render import render
from tests.judge.audit_targets import models


def test_a_live_module_is_audited_and_stays_as_it_is() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    x = torch.rand(1, 3, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.get_rng_state()
    has_mps = torch.backends.mps.is_available()
    report = opcheck.audit(model, (x,), torch="2.13", macos="15", mode="train")
    assert report.headline == "runs natively"
    assert report.capture.mode == "train"
    assert {phase for group in report.groups for phase in group.phases} > {"backward"}
    assert report.model == "torch.nn.modules.container.Sequential"
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301 - made here
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.backends.mps.is_available() is has_mps


def test_inputs_by_name_and_a_function() -> None:
    def program(x: torch.Tensor, *, wide: bool) -> torch.Tensor:
        return x.double() if wide else x

    report = opcheck.audit(program, {"x": torch.rand(2), "wide": True}, torch="2.13", macos="15")
    assert report.headline == "fails"
    assert report.findings[0].locations[0].location is not None
    assert report.findings[0].locations[0].location.file.endswith("test_audit.py")


def test_a_run_that_ends_its_process_ends_a_fork() -> None:
    with pytest.raises(CaptureError, match="exited with code 3"):
        opcheck.audit(lambda _x: os._exit(3), torch.rand(2))


def test_a_name_is_loaded_in_a_child_process() -> None:
    report = opcheck.audit(f"{Path(models.__file__)}:plain", torch="2.13", macos="15")
    assert report.headline == "runs natively"
    assert report.totals["operators"] > 1


def test_what_cannot_be_audited() -> None:
    with pytest.raises(UsageError, match="int is no kind of model"):
        opcheck.audit(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no mode 'both'"):
        opcheck.audit("timm:resnet18", mode="both")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="are texts"):
        opcheck.audit("timm:resnet18", (torch.rand(1),))
    with pytest.raises(UsageError, match="goes with a model's name"):
        opcheck.audit(nn.Linear(2, 2), torch.rand(2), config={"a": 1})
    with pytest.raises(UnknownTargetError):
        opcheck.audit(nn.Linear(2, 2), torch.rand(2), torch="1.2")
    with pytest.raises(InputError):
        opcheck.audit(lambda first, second: first + second)


LIBRARY = """
import torch
OLD = torch.__version__ < "2.8"
class Layer(torch.nn.Module):
    def forward(self, x):
        return x if OLD else x.double()
"""


def test_a_library_that_was_imported_before_kept_what_it_computed_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "imported_before"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    model = importlib.import_module("imported_before").Layer()
    for release, headline in (("2.13", "fails"), ("2.6", "could not tell")):
        made = opcheck.audit(model, torch.randn(2), torch=release, macos="15")
        assert made.headline == headline
        differs = [each.message for each in made.findings if each.rule == "OC123"]
        assert any("imported_before was imported before" in each for each in differs) is (release == "2.6")
    del sys.modules["imported_before"]


def increment(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def _named_thread(name: bytes, started: threading.Event, ends: threading.Event) -> None:
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME of linux/prctl.h
    started.set()
    ends.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems copy no process")
@pytest.mark.parametrize("name", [b"pt_autograd_0", b"a_thread"])
def test_a_process_with_threads_of_autograd_audits_a_copy_of_the_model(name: bytes) -> None:
    class Noted(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            processes.append(os.getpid())
            self.note = x
            return super().forward(x)

    processes: list[int] = []
    model = Noted(2, 2)
    x = torch.rand(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.13 deprecates it
        scripted = torch.jit.script(increment)
    started, ends = threading.Event(), threading.Event()
    thread = threading.Thread(target=_named_thread, args=(name, started, ends))
    thread.start()
    started.wait()
    headlines = []
    drawn = torch.get_rng_state(), random.getstate()
    try:
        report = opcheck.audit(model, (x,), torch="2.13", macos="15", mode="train")
        model.note = (model.weight * 2).detach().requires_grad_() * 2  # no leaf can be copied
        if name == b"pt_autograd_0":
            with pytest.raises(CaptureError, match="the model cannot be copied") as raised:
                opcheck.audit(model, (x,), mode="train")
            assert "before the first backward pass" in raised.value.hint
            lazy = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                headlines += [opcheck.audit(each, (x,)).headline for each in (lazy, scripted)]
    finally:
        ends.set()
        thread.join()
    assert {report.headline, *headlines} == {"runs natively"}
    assert {*processes} == ({os.getpid()} if name == b"pt_autograd_0" else set())
    assert model.weight.grad is None
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert random.getstate() == drawn[1]


def test_a_report_is_shown_as_the_terminal_shows_it_and_saved_by_suffix(tmp_path: Path) -> None:
    report = opcheck.audit(torch.linalg.eigvals, torch.rand(3, 3), torch="2.13", macos="15")
    saved = report.save(tmp_path / "report.json")
    assert str(report).startswith("runs only with PYTORCH_ENABLE_MPS_FALLBACK=1: ")
    assert str(report) == render(report, "text").rstrip("\n")
    assert read(str(saved)).findings == report.findings
    assert report.to_html().startswith("<!doctype html>")
    assert report.save(str(tmp_path / "page.html")).read_text().startswith("<!doctype html>")
    with pytest.raises(UsageError, match="no format has the suffix"):
        report.save(tmp_path / "report.doc")
    table = str(report.findings)
    assert table.split()[:4] == ["severity", "rule", "operator", "message"]
    assert len(table.splitlines()) == 1 + len(report.findings)


def test_a_notebook_shows_a_fragment_of_html_with_the_headline() -> None:
    report = opcheck.audit(nn.Linear(2, 2), torch.rand(1, 2), torch="2.13", macos="15")
    findings = report.findings
    assert isinstance(findings, FindingTable)
    for shown in (report._repr_html_(), findings._repr_html_()):
        # Well-formed, without a page's head and without scripts.
        ET.fromstring(shown)  # noqa: S314  (made here)
        assert "<script" not in shown
        assert "<html" not in shown
    assert "runs natively: torch.nn.modules.linear.Linear on torch 2.13" in report._repr_html_()
    assert len(report._repr_html_()) < len(report.to_html()) / 5


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"torch": "two"}, UsageError, "in: torch"),
        ({"macos": "x"}, UsageError, "in: macos"),
        ({"torch": 2.13}, UsageError, 'write torch="2.13"'),
        ({"torch": "1.2"}, UnknownTargetError, "no op list for torch 1.2"),
        ({"torhc": "2.13"}, TypeError, "did you mean torch?"),
    ],
)
def test_errors_name_the_keyword_and_not_the_flag(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        opcheck.audit(nn.Linear(2, 2), torch.rand(2), **options)
    assert words in str(caught.value)
    assert "--" not in str(caught.value)


def test_the_public_functions_say_what_they_take_and_raise() -> None:
    assert dir(opcheck) == sorted(opcheck.__all__)
    for name in ("audit", "emulate"):
        text = inspect.getdoc(getattr(opcheck, name)) or ""
        for title in ("Args:", "Raises:", "Example:"):
            assert title in text, (name, title)
