"""A command line whose captures are made, not run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.cli import invoke
from opcheck.data.registrations import OpLists
from opcheck.model.records import Report
from opcheck.worker.protocol import NO_DISPLAY, ProcessDisplay
from tests.made import call, make_report


class Result(NamedTuple):
    code: int
    out: str
    err: str


class CommandLine:
    """Runs opcheck in this process; ``report`` is what every audit gives, ``requests`` what was asked."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.report = make_report(call("aten::mm"))
        self.failure: BaseException | None = None
        self.requests: list[CaptureRequest] = []
        #: what --memory asked for
        self.mac = 0
        self._capsys = capsys

    def audit(
        self,
        request: CaptureRequest,
        lists: OpLists,  # noqa: ARG002  (the signature of audit)
        *,
        mac: int = 0,
        display: ProcessDisplay = NO_DISPLAY,
    ) -> Report:
        self.requests.append(request)
        self.mac = mac
        if display.progress is not None:
            display.progress("building the model")
        if self.failure is not None:
            raise self.failure
        target = msgspec.structs.replace(self.report.target, cpu_fallback=request.target.cpu_fallback)
        return msgspec.structs.replace(self.report, model=request.model, target=target)

    def __call__(self, *args: str) -> Result:
        code = invoke(args)
        return Result(code, *self._capsys.readouterr())


@pytest.fixture
def opcheck(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """The command line, in an empty directory."""
    line = CommandLine(capsys)
    monkeypatch.setattr("opcheck.orchestrator.audit", line.audit)
    monkeypatch.chdir(tmp_path)
    return line
