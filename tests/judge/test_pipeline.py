from __future__ import annotations

import pickle

import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.common.vocabulary import HEADLINES
from opcheck.data.registrations import OpLists
from opcheck.model.records import OpCall, OpListFacts, Trace
from opcheck.orchestrator import audit
from opcheck.render.summary import next_command
from tests.made import call, make_report, make_target, make_trace

NATIVE = call("aten::mm")
ALWAYS = call("aten::embedding_renorm_")
ENV = call("aten::foo")
UNKNOWN = call("mylib::op")
RAISES = call("aten::stub")


@pytest.mark.parametrize(
    ("calls", "headline"),
    [
        ((NATIVE,), "runs natively"),
        ((NATIVE, ALWAYS), "runs, partly on the CPU"),
        ((ALWAYS, ENV), "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1"),
        ((ENV, UNKNOWN), "could not tell"),
        ((UNKNOWN, RAISES), "fails"),
        ((), "could not tell"),
    ],
)
def test_the_worst_call_makes_the_headline(calls: tuple[OpCall, ...], headline: str) -> None:
    assert make_report(*calls).headline == headline
    assert make_report(*calls[::-1]).headline == headline
    assert headline in HEADLINES


def test_the_variable_turns_only_with_into_partly() -> None:
    assert make_report(NATIVE, ENV, cpu_fallback=True).headline == "runs, partly on the CPU"


def test_a_run_that_broke_off_is_not_native() -> None:
    assert make_report(NATIVE, complete=False).headline == "could not tell"
    assert make_report(NATIVE, RAISES, complete=False).headline == "fails"


def test_equal_calls_are_one_group_with_each_line_once() -> None:
    report = make_report(call("aten::mm", 4), call("aten::foo", 5), call("aten::mm", 4), call("aten::mm", 3))
    foo, mm = report.groups
    assert (foo.op, mm.op, mm.count) == ("aten::foo", "aten::mm", 3)
    assert [(str(p.location), p.count) for p in mm.locations] == [("model.py:4", 2), ("model.py:3", 1)]


def test_phases_are_in_the_order_of_a_program() -> None:
    (group,) = make_report(call("aten::mm", 1, phase="backward"), call("aten::mm", 1, phase="forward")).groups
    assert group.phases == ("forward", "backward")


def test_totals_count_calls_by_status() -> None:
    totals = make_report(NATIVE, NATIVE, ALWAYS, ENV, UNKNOWN, RAISES).totals
    assert totals == {
        "calls": 6,
        "operators": 5,
        "native": 2,
        "fallback_internal": 0,
        "fallback_always": 1,
        "fallback_env": 1,
        "unknown": 1,
        "unsupported": 1,
    }


def test_errors_come_before_warnings_before_notes() -> None:
    report = make_report(ALWAYS, UNKNOWN, RAISES, ENV)
    rules = [finding.rule for finding in report.findings]
    assert rules == ["OC101", "OC102", "OC103", "OC104", "OC110"]


def test_what_was_not_checked_is_said() -> None:
    whole = make_report(NATIVE).not_checked
    assert whole[0].startswith("nothing was observed on a Mac")
    broken = make_report(NATIVE, complete=False, installed_torch="2.9.1").not_checked
    assert broken[: len(whole)] == whole
    assert broken[len(whole) :] == (
        "everything after the point where the run broke off",
        "Python code of torch 2.13: the model ran on the installed 2.9.1",
    )


def test_the_report_names_the_data_it_rests_on() -> None:
    assert make_report(NATIVE).op_lists == OpListFacts(
        digest="ab" * 6,
        torch="2.13.0",
        wheel="torch-2.13.0-cp311-none-macosx_14_0_arm64.whl",
        sha256="cd" * 32,
        commit="0123456789abcdef" * 2 + "01234567",
        built="2026-07-03",
    )


def test_the_next_command_asks_for_the_same_capture_again(lists: OpLists, monkeypatch: pytest.MonkeyPatch) -> None:
    def capture_many(request: CaptureRequest, *_: object, **__: object) -> tuple[Trace]:
        return (make_trace(NATIVE, model=request.model),)

    monkeypatch.setattr("opcheck.capture.parent.capture_many", capture_many)
    request = CaptureRequest(
        model="m.py:Net",
        target=make_target(cpu_fallback=True),
        inputs=("1x3", "x=2:int64"),
        config={"layers": [1, 2]},
        dtype="float16",
        tracer="fx",
        grad=True,
    )
    assert next_command(audit(request, lists)) == (
        "opcheck audit m.py:Net --input=1x3 --input=x=2:int64 '--config=layers=[1, 2]' "
        "--dtype=float16 --grad --tracer=fx --fallback --torch 2.13 --macos 15.0 "
        "--fail-on fallback"
    )


def test_a_report_survives_pickling() -> None:
    report = make_report(NATIVE, ENV, UNKNOWN)
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301
