"""The short way to a headline says what the whole report says, for every target."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from opcheck.capture.parent import capture
from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import report
from opcheck.judge.policy import Policy, judge_report
from opcheck.judge.target_summary import summaries
from opcheck.model.records import SourceLocation, Trace
from tests.judge.audit_targets import models
from tests.made import call, make_target, make_trace, spec


def _targets(lists: OpLists) -> list[Target]:
    return [
        Target(torch=Version.parse(release.line), macos=Version(major, 0), cpu_fallback=fallback)
        for release in lists.releases
        for major in (13, 14, 15, 26)
        for fallback in (False, True)
    ]


def _agree(trace: Trace, lists: OpLists) -> None:
    targets = _targets(lists)
    for target, item in zip(targets, summaries(trace, targets, lists), strict=True):
        whole = report(trace, target, lists)
        assert item.target == target
        assert item.headline == whole.headline, target
        assert item.totals == whole.totals, target
        counts: dict[tuple[str, str, str | None], int] = {}
        for group in whole.groups:
            if group.verdict.status != "native":
                row = (group.op, group.verdict.status, group.verdict.kind)
                counts[row] = counts.get(row, 0) + group.count
        assert item.operators == tuple((*row, count) for row, count in counts.items()), target


@pytest.mark.parametrize("model", ["old", "transformed"])
def test_it_agrees_with_the_report_on_every_target(model: str, lists: OpLists) -> None:
    request = CaptureRequest(model=f"{Path(models.__file__)}:{model}", target=make_target("2.4", "14.0"))
    trace = capture(request)
    assert trace.complete
    _agree(trace, lists)


def test_what_is_unknown_or_broke_off_or_empty(lists: OpLists) -> None:
    _agree(make_trace(call("mylib::op"), call("aten::mm")), lists)
    _agree(make_trace(call("aten::mm"), complete=False), lists)
    _agree(make_trace(), lists)
    assert summaries(make_trace(), (), lists) == ()


def test_what_a_library_may_not_call_on_the_target_is_unknown(lists: OpLists) -> None:
    there = call(
        "aten::_to_copy",
        outputs=(msgspec.structs.replace(spec(2), dtype="float64"),),
        location=SourceLocation(file="some_library/a.py", line=3),
    )
    here = call("aten::mm", location=SourceLocation(file="model.py", line=3))
    for library, headline in (("some_library", "could not tell"), ("another", "fails")):
        trace = make_trace(there, here, differing_libraries=(library,), differences=("it differs",))
        _agree(trace, lists)
        made = report(trace, Target(torch=Version(2, 6), macos=Version(15)), lists)
        assert made.headline == headline
        errors = [finding for finding in made.findings if finding.severity == "error"]
        assert bool(errors) is (headline == "fails")
        assert judge_report(made, Policy()).code == (1 if headline == "fails" else 3)
