"""One job: what is kept is not audited again, and what goes wrong names no folder of this machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import ModelLoadError
from opcheck.common.versions import Target
from opcheck.features.gate.assemble import Job, read_cached, work
from opcheck.model.records import Report
from tests.features.gate.conftest import made
from tests.made import call, make_target

JOB = Job(
    name="net",
    request=CaptureRequest(model="net.py:Net", target=make_target("2.12")),
    targets=(make_target("2.12"), make_target("2.14")),
)


@pytest.fixture
def audits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Target, ...]]:
    """The targets of each audit that is made; each says that it read nothing."""
    asked: list[tuple[Target, ...]] = []

    def many(request: CaptureRequest, targets: list[Target], *_: object, **_options: object) -> tuple[Report, ...]:
        asked.append(tuple(targets))
        if request.notes:
            Path(request.notes).write_text('["start"]\n')
        return tuple(made((call("aten::mm"),), target) for target in targets)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("opcheck.orchestrator.audit_targets", many)
    return asked


def test_without_a_cache_all_is_audited(audits: list[tuple[Target, ...]]) -> None:
    for _ in range(2):
        assert len(work(JOB, print).reports) == 2
    assert audits == [JOB.targets] * 2
    assert read_cached(JOB) is None


def test_only_what_is_missing_is_audited_and_comes_in_the_order_of_the_targets(
    audits: list[tuple[Target, ...]], tmp_path: Path
) -> None:
    job = msgspec.structs.replace(JOB, cache=str(tmp_path / "cache"))
    first = msgspec.structs.replace(job, targets=job.targets[1:])
    assert work(first, print).kept == 0
    whole = work(job, print)
    assert audits == [job.targets[1:], job.targets[:1]]
    assert [report.target.torch for report in whole.reports] == ["2.12", "2.14"]
    assert whole.kept == 1
    assert read_cached(job) == msgspec.structs.replace(whole, kept=2)


def test_an_error_names_no_folder_of_this_machine(
    audits: list[tuple[Target, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise ModelLoadError("no file", context=f"working directory {Path.cwd()}", hint="look")

    monkeypatch.setattr("opcheck.orchestrator.audit_targets", fail)
    failed = work(JOB, print).failed
    assert failed is not None
    assert (failed.message, failed.context, failed.hint) == ("no file", "working directory .", "look")
