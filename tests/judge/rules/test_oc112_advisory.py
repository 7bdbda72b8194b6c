from __future__ import annotations

import msgspec

from opcheck.render import report as page
from opcheck.render import summary
from tests.judge.rules.checking import findings_by
from tests.made import call, make_report, make_statement, spec

WRONG = make_statement(
    "mm-strided", sort="advisory", effect="wrong_result", error=None, condition="not self.contiguous"
)
STRIDED = call("aten::mm", inputs=(spec(1, argument="self", stride=(1, 2)),))
PLAIN = call("aten::mm", inputs=(spec(1, argument="self", stride=(3, 1)),))


def test_fires_on_a_call_that_meets_the_condition() -> None:
    (finding,) = findings_by("OC112", STRIDED, PLAIN, statements=(WRONG,))
    assert finding.message == "aten::mm: The kernel refuses mm-strided (mm-strided)"
    assert (finding.severity, finding.count) == ("warning", 1)


def test_what_a_run_on_shapes_cannot_tell_is_no_finding_and_stands_among_the_statements() -> None:
    other = make_statement("mm-values", sort="advisory", effect="wrong_result", when="duplicates")
    assert not findings_by("OC112", call("aten::mm"), statements=(WRONG, other))
    assert {"mm-strided", "mm-values"} == {*make_report(call("aten::mm"), statements=(WRONG, other)).statements}


def test_silent_on_calls_that_do_not_meet_it() -> None:
    assert not findings_by("OC112", PLAIN, statements=(WRONG,))
    assert not findings_by("OC112", call("aten::relu"), statements=(WRONG,))


def test_an_advisory_that_decides_is_said_once() -> None:
    ends = make_statement("mm-ends", sort="advisory", effect="aborts", error=None)
    assert not findings_by("OC112", call("aten::mm"), statements=(ends,))
    assert findings_by("OC106", call("aten::mm"), statements=(ends,))


def test_a_call_inside_of_a_composite_is_judged_by_its_own_arguments() -> None:
    strided, plain = (call("aten::comp", inner=("aten::mm",), inside=(inner,)) for inner in (STRIDED, PLAIN))
    (finding,) = findings_by("OC112", strided, statements=(WRONG,))
    assert finding.op == "aten::comp"
    assert not make_report(plain, statements=(WRONG,)).statements


def test_a_double_that_only_the_body_makes_says_nothing() -> None:
    makes = make_statement("no-double", ops=("*",), dtypes=("float64",), effect="raises")
    double = call("aten::mm", inputs=(spec(1, dtype="float64"),), outputs=())
    made = call("aten::comp", inner=("aten::mm",), inside=(double,))
    assert make_report(made, statements=(makes,)).headline == "runs natively"
    assert make_report(double, statements=(makes,)).headline == "fails"


def test_a_wrong_result_is_in_the_headline_of_a_run_that_is_native() -> None:
    report = make_report(STRIDED, statements=(WRONG,))
    assert summary.headline(report).startswith("runs natively, wrong results in 1 call: ")
    assert page.title(report).answer.style == "raises"
    assert report.headline == "runs natively"
    (wrong,) = report.wrong
    assert (wrong.op, wrong.ids, wrong.calls, wrong.frequency) == ("aten::mm", ("mm-strided",), 1, "always")
    assert not make_report(PLAIN, statements=(WRONG,)).wrong


def test_a_rare_wrong_result_is_named_and_leaves_the_headline_as_it_is() -> None:
    values = make_statement("mm-values", sort="advisory", effect="wrong_result", error=None, when="duplicates")
    rare = msgspec.structs.replace(values, rare=True)
    some, seldom = (make_report(PLAIN, PLAIN, statements=(each,)) for each in (values, rare))
    assert summary.answer(some) == "runs natively, wrong results for some inputs in 2 calls"
    assert page.title(some).answer.style == "cpu"
    assert summary.answer(seldom) == "runs natively"
    assert summary.deciding_numbers(seldom) == "all 2 calls native, wrong results in rare cases in 2 calls"
    assert page.title(seldom).answer.style == "mps"
    assert [each.condition for each in seldom.wrong] == ["duplicates"]


def test_a_call_on_the_cpu_has_no_wrong_result_of_mps() -> None:
    wrong = make_statement("foo", ops=("aten::foo",), sort="advisory", effect="wrong_result")
    assert not make_report(call("aten::foo"), statements=(wrong,)).wrong


def test_what_a_run_on_shapes_cannot_tell_is_named_once_in_the_short_summary() -> None:
    other = make_statement("mm-values", sort="advisory", effect="wrong_result", when="duplicates")
    report = make_report(PLAIN, PLAIN, statements=(WRONG, other))
    rows = dict(summary.facts(report, short=True).items)
    assert "wrong" in rows
    assert str(rows["wrong"]).count("mm-strided") == 0
    assert str(rows["wrong"]).startswith("mm-values (duplicates)")
    silent = make_report(PLAIN, statements=(WRONG,))
    assert "wrong" not in dict(summary.facts(silent, short=True).items)
