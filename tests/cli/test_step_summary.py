"""The summary of a step of GitHub Actions is a file; whatever else its variable names is refused and never waited for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from opcheck.cli.streams import step_summary
from opcheck.common.errors import UsageError


@pytest.fixture(autouse=True)
def rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opcheck.render.step_summary", lambda record: record)


def test_a_report_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    step_summary("first", "github")  # type: ignore[arg-type]
    step_summary("half \ud800", "github")  # type: ignore[arg-type]
    assert file.read_text(encoding="utf-8") == "first\nhalf \\ud800\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a null character", "no folder", "full"])
def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    path = str(tmp_path / "summary")
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        Path(path).mkdir()
    elif kind == "no folder":
        path += "/none/summary"
    elif kind == "full":
        path = "/dev/full"
        if not Path(path).exists():
            pytest.skip("this system has no full device")
    if kind != "a null character":
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", path)
    else:  # no variable can hold one
        monkeypatch.setattr(os, "environ", {"GITHUB_STEP_SUMMARY": f"{path}\0"})
    record: Any = "report"
    with pytest.raises(UsageError, match="cannot write the step's summary") as caught:
        step_summary(record, "github")
    assert len(str(caught.value).splitlines()) == 3
