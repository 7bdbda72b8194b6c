"""Which change removes what, and what it breaks."""

from __future__ import annotations

import msgspec
import pytest

from opcheck.common.versions import Span, Target, Version
from opcheck.data.registrations import OpLists
from opcheck.features.upgrade.upgrade_advice import Advice, advise, targets
from opcheck.judge.assembly import report
from opcheck.judge.target_change import VersionChange
from opcheck.model.records import OpCall, Report
from tests.made import call, make_lists, make_statement, make_target, make_trace

HERE = make_target("2.12", "14.4")


def advice(lists: OpLists, *calls: OpCall, here: Target = HERE, complete: bool = True) -> Advice:
    result, impossible = targets(here, map(_line, ("2.12", "2.13", "2.14")), lists)
    trace = make_trace(*calls, complete=complete)
    reports: dict[Target, Report] = {item: report(trace, item, lists) for item in result}
    return advise(reports, impossible, here, lists)


def _line(text: str) -> Version:
    return Version.parse(text)


def registered(*values: str) -> dict[str, dict[str, str]]:
    return {"aten::new": dict(zip(("2.12", "2.13", "2.14"), values, strict=True))}


def test_the_pairs_are_releases_by_macos_and_those_that_cannot_be_are_said() -> None:
    result, impossible = targets(HERE, [Version(2, 12)], make_lists())
    assert result[0] == HERE
    assert [str(item.macos) for item in result] == ["14.4", "15.0", "26.0"]
    assert {(cell.macos, cell.impossible) for cell in impossible} == {
        ("12.0", "needs macOS 14.0"),
        ("13.0", "needs macOS 14.0"),
    }


def test_the_release_that_one_is_on_is_always_looked_at() -> None:
    result, _ = targets(HERE, [Version(2, 14)], make_lists())
    assert {str(item.torch) for item in result} == {"2.12", "2.14"}


def test_torch_alone() -> None:
    lists = make_lists(registered("cpu_only", "cpu_only", "kernel"))
    result = advice(lists, call("aten::new"))
    (removal,) = result.findings
    assert (removal.rule, removal.line) == ("OC102", "model.py:1")
    assert removal.torch_alone == VersionChange(torch="2.14")
    assert (removal.macos_alone, removal.both, removal.older) == (None, None, None)
    assert result.upgrade is not None
    assert result.upgrade.change == VersionChange(torch="2.14")
    assert (result.upgrade.removed, result.upgrade.kept, result.upgrade.new) == (1, 0, ())
    assert result.upgrade.headline == "runs natively"


def test_macos_alone_is_smaller_than_torch() -> None:
    old = make_statement("old", macos=Span(until=Version(15)))
    result = advice(make_lists(statements=(old,)), call("aten::mm"))
    assert result.findings[0].macos_alone == VersionChange(macos="15.0")
    assert result.upgrade is not None
    assert result.upgrade.change == VersionChange(macos="15.0")


def test_both_where_neither_alone_is_enough() -> None:
    by_torch = make_statement("by-torch", torch=Span(until=Version(2, 14)), macos=Span(until=Version(26)))
    by_macos = make_statement("by-macos", torch=Span(since=Version(2, 14)), macos=Span(until=Version(15)))
    always = make_statement("always", torch=Span(until=Version(2, 14)), macos=Span(since=Version(26)))
    result = advice(make_lists(statements=(by_torch, by_macos, always)), call("aten::mm"))
    assert result.findings[0].both == VersionChange(torch="2.14", macos="15.0")
    assert (result.findings[0].torch_alone, result.findings[0].macos_alone) == (None, None)


def test_a_finding_that_only_changes_its_rule_is_not_removed() -> None:
    lists = make_lists(registered("cpu_only", "cpu_fallback", "kernel"))
    result = advice(lists, call("aten::new"))
    assert result.findings[0].torch_alone == VersionChange(torch="2.14")
    cells = {cell.torch: cell for cell in result.grid if cell.macos == "14.4"}
    assert [cell.headline for cell in cells.values()] == [
        "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1",
        "runs, partly on the CPU",
        "runs natively",
    ]
    assert (cells["2.13"].removed, cells["2.13"].new) == (0, 1)
    assert cells["2.12"].current


def test_what_an_upgrade_breaks_is_told() -> None:
    columns = {
        **registered("cpu_only", "kernel", "kernel"),
        "aten::lost": {"2.12": "kernel", "2.13": "cpu_fallback", "2.14": "cpu_fallback"},
    }
    result = advice(make_lists(columns), call("aten::new", 1), call("aten::lost", 2))
    assert result.upgrade is not None
    assert result.upgrade.change == VersionChange(torch="2.13")
    assert [(item.rule, item.op) for item in result.upgrade.new] == [("OC103", "aten::lost")]
    assert result.newest is not None
    assert result.newest.change == VersionChange(torch="2.14", macos="26.0")
    assert [item.op for item in result.newest.new] == ["aten::lost"]


def test_what_only_an_older_release_takes_is_said() -> None:
    lists = make_lists(registered("kernel", "cpu_only", "cpu_only"))
    result = advice(lists, call("aten::new"), here=make_target("2.13", "15.0"))
    assert result.findings[0].older == VersionChange(torch="2.12")
    assert result.upgrade is None
    assert result.newest is not None
    assert result.newest.kept == 1


def test_nothing_to_upgrade_for() -> None:
    result = advice(make_lists(), call("aten::mm"))
    assert (result.findings, result.upgrade) == ((), None)


def test_a_run_that_broke_off_removes_nothing() -> None:
    lists = make_lists(registered("cpu_only", "kernel", "kernel"))
    result, impossible = targets(HERE, map(_line, ("2.12", "2.13", "2.14")), lists)
    reports = {}
    for item in result:
        calls = (call("aten::new"),) if item.torch != Version(2, 13) else ()
        trace = make_trace(*calls, complete=bool(calls))
        reports[item] = report(trace, item, lists)
    outcome = advise(reports, impossible, HERE, lists)
    assert outcome.findings[0].torch_alone == VersionChange(torch="2.14")
    assert outcome.upgrade is not None
    assert outcome.upgrade.change == VersionChange(torch="2.14")


def test_what_is_ignored_is_no_reason_to_upgrade() -> None:
    lists = make_lists(registered("cpu_only", "cpu_only", "kernel"))
    result, impossible = targets(HERE, map(_line, ("2.12", "2.14")), lists)
    reports = {item: report(make_trace(call("aten::new")), item, lists) for item in result}
    reports[HERE] = msgspec.structs.replace(
        reports[HERE],
        findings=tuple(msgspec.structs.replace(finding, ignored="known") for finding in reports[HERE].findings),
    )
    outcome = advise(reports, impossible, HERE, lists)
    assert (outcome.findings, outcome.upgrade) == ((), None)


@pytest.mark.parametrize("complete", [True, False])
def test_a_run_that_broke_off_is_told(complete: bool) -> None:
    assert advice(make_lists(), call("aten::mm"), complete=complete).complete is complete
