"""A second audit of an unchanged model takes its report from the cache, and a watched model is audited again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opcheck import orchestrator
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import ModelLoadError
from opcheck.data.registrations import OpLists
from opcheck.features.audit.verb import changes
from opcheck.model.records import Report
from opcheck.orchestrator import audit_or_reuse
from opcheck.report_cache import Cache
from opcheck.worker.dependency_tracking import Dependencies
from opcheck.worker.protocol import ProcessDisplay
from tests.made import call, make_report, make_target

REQUEST = CaptureRequest(model="net.py:Net", target=make_target())


@pytest.fixture
def audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[CaptureRequest]:
    """The audits that were really made: each reads net.py."""
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("one = 1\n")
    made: list[CaptureRequest] = []

    def audited(request: CaptureRequest, *_arguments: Any, **_options: Any) -> Report:
        made.append(request)
        result = Path("net.py").stat()
        line = f'["file", "{Path("net.py").absolute()}", {result.st_mtime_ns}, {result.st_size}]'
        Path(request.notes).write_text(f'["start"]\n{line}\n')
        if Path("net.py").read_text() == "broken":
            raise ModelLoadError("broken", context="net.py")
        return make_report(call("aten::mm"))

    monkeypatch.setattr(orchestrator, "audit", audited)
    return made


def test_an_unchanged_model_is_audited_once(audits: list[CaptureRequest], lists: OpLists, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    first, second = (audit_or_reuse(REQUEST, lists, cache=cache) for _ in range(2))
    assert (first.report, first.kept, second.kept) == (second.report, False, True)
    Path("net.py").write_text("one = 2\n")
    assert not audit_or_reuse(REQUEST, lists, cache=cache).kept
    assert len(audits) == 2


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (REQUEST, {"mac": 16}),
        (REQUEST, {"display": ProcessDisplay(output=True)}),
        (CaptureRequest(model="net.py:Net", target=make_target(), save_graph="g.py"), {}),
        (CaptureRequest(model="net.py:Net", target=make_target(), call=("forward",)), {}),
    ],
)
def test_another_question_is_another_audit(
    audits: list[CaptureRequest], lists: OpLists, tmp_path: Path, request_: CaptureRequest, options: dict[str, Any]
) -> None:
    cache = Cache(tmp_path / "cache")
    audit_or_reuse(REQUEST, lists, cache=cache)
    audit_or_reuse(request_, lists, cache=cache, **options)
    assert len(audits) == 2


def test_without_a_cache_nothing_is_kept(audits: list[CaptureRequest], lists: OpLists) -> None:
    assert not any(audit_or_reuse(REQUEST, lists, cache=None).kept for _ in range(2))
    assert len(audits) == 2


def test_a_failed_audit_tells_what_it_read(audits: list[CaptureRequest], lists: OpLists) -> None:
    Path("net.py").write_text("broken")
    read: list[Dependencies] = []
    with pytest.raises(ModelLoadError):
        audit_or_reuse(REQUEST, lists, cache=None, failed=read.append)
    assert [Path(name).name for _, name, _ in read[0].seen] == ["net.py"]
    assert len(audits) == 1


def _after(seconds: float, change: Callable[[], object]) -> None:
    threading.Timer(seconds, change).start()


def test_a_change_is_seen(tmp_path: Path) -> None:
    file, beside = tmp_path / "net.py", tmp_path / "other.py"
    file.write_text("")
    read = Dependencies(seen=(("file", str(file), ""), ("file", str(beside), None)))
    seen = changes(read, "package:name")
    _after(0.1, lambda: file.write_text("changed"))
    assert next(seen) == "net.py"
    _after(0.1, lambda: beside.write_text("new"))
    assert next(seen) == "other.py"


def test_the_file_of_the_model_counts_even_if_nothing_was_read(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("")
    _after(0.1, lambda: file.write_text("changed"))
    start = time.monotonic()
    assert next(changes(Dependencies(), f"{file}:net")) == "net.py"
    assert time.monotonic() - start < 30
