from __future__ import annotations

import time

import msgspec
import pytest

from opcheck.common.errors import UsageError
from opcheck.judge.policy import FAIL_ON, Judgement, Policy, exit_code, judge_report, limit
from opcheck.model.fingerprint import fingerprints
from opcheck.model.records import Lifetime, OpCall, Problem, Report
from tests.made import call, make_report, make_statement, spec

NATIVE = call("aten::mm")
ALWAYS = call("aten::embedding_renorm_")
ENV = call("aten::foo")
UNKNOWN = call("mylib::op")
RAISES = call("aten::stub")


@pytest.mark.parametrize(
    ("made", "codes"),
    [
        # for --fail-on never, unsupported, unknown, fallback, advisory
        (NATIVE, (0, 0, 0, 0, 0)),
        (ALWAYS, (0, 0, 0, 1, 1)),
        (ENV, (0, 1, 1, 1, 1)),
        (UNKNOWN, (0, 0, 1, 1, 1)),
        (RAISES, (0, 1, 1, 1, 1)),
    ],
)
def test_each_level_holds_the_levels_above_it(made: OpCall, codes: tuple[int, ...]) -> None:
    report = make_report(NATIVE, made)
    assert tuple(exit_code(report, fail_on=level, strict=False) for level in FAIL_ON) == codes


@pytest.mark.parametrize(("level", "code"), [("unsupported", 0), ("unknown", 0), ("fallback", 1)])
def test_the_variable_makes_a_fallback_out_of_an_error(level: str, code: int) -> None:
    report = make_report(NATIVE, ENV, cpu_fallback=True)
    assert exit_code(report, fail_on=level, strict=False) == code


def test_strict_makes_unknown_calls_exit_with_3() -> None:
    report = make_report(NATIVE, UNKNOWN)
    assert exit_code(report, fail_on="unsupported", strict=True) == 3
    assert exit_code(report, fail_on="unknown", strict=True) == 1
    assert exit_code(make_report(NATIVE), fail_on="unsupported", strict=True) == 0


def test_strict_makes_a_target_newer_than_the_lists_exit_with_3() -> None:
    report = make_report(NATIVE)
    target = msgspec.structs.replace(report.target, beyond="macOS 27 is newer than the op lists")
    newer = msgspec.structs.replace(report, target=target)
    assert exit_code(newer, fail_on="unsupported", strict=False) == 0
    assert exit_code(newer, fail_on="unsupported", strict=True) == 3


@pytest.mark.parametrize("level", FAIL_ON)
@pytest.mark.parametrize("strict", [False, True])
def test_a_run_not_seen_whole_never_passes(level: str, *, strict: bool) -> None:
    assert exit_code(make_report(NATIVE, complete=False), fail_on=level, strict=strict) == 3
    assert exit_code(make_report(), fail_on=level, strict=strict) == 3


def test_a_call_that_fails_is_an_answer_even_in_a_run_that_broke_off() -> None:
    report = make_report(RAISES, complete=False)
    assert exit_code(report, fail_on="unsupported", strict=True) == 1


@pytest.mark.parametrize(("mac", "code"), [(0, 0), (8, 1), (16, 0), (64, 0)])
def test_a_mac_that_was_asked_about_and_raises_is_a_finding(mac: int, code: int) -> None:
    lives = tuple(Lifetime(storage=number, nbytes=3 << 30, first=0, freed=None, kind="result") for number in range(4))
    report = make_report(NATIVE, lifetimes=lives, mac=mac)
    assert exit_code(report, fail_on="unsupported", strict=False) == code
    assert exit_code(report, fail_on="never", strict=False) == 0


def names(report: Report, rule: str) -> list[str]:
    """The fingerprints of what a rule found."""
    own = zip(report.findings, fingerprints(report.findings), strict=True)
    return [name for finding, of_finding in own for name in of_finding if finding.rule == rule]


TWO = make_report(call("aten::embedding_renorm_", 3), call("aten::embedding_renorm_", 4), NATIVE)


@pytest.mark.parametrize(
    ("limits", "reasons"),
    [
        ({}, ("fallback: 2 calls",)),
        ({"fallback": 1}, ("fallback: 2 calls, 1 allowed",)),
        ({"fallback": 2}, ()),
        ({"fallback": 2, "fallback_always": 0}, ("fallback_always: 2 calls",)),
        ({"fallback": 2, "transfers": 0}, ("transfers: 3 copies",)),
        ({"fallback": 2, "bytes": 10}, ("bytes: 72 bytes, 10 bytes allowed",)),
        ({"fallback": 2, "bytes": 100}, ()),
    ],
)
def test_limits_allow_and_forbid(limits: dict[str, int], reasons: tuple[str, ...]) -> None:
    moved = msgspec.structs.replace(
        TWO.partition, transfers_to_cpu=2, transfers_to_mps=1, bytes_to_cpu=48, bytes_to_mps=24
    )
    report = msgspec.structs.replace(TWO, partition=moved)
    result = judge_report(report, Policy(fail_on="fallback", limits=limits))
    assert (result.code, result.reasons) == (1 if reasons else 0, reasons)


def test_a_limit_holds_without_a_level() -> None:
    assert judge_report(TWO, Policy(fail_on="never", limits={"fallback": 1})).code == 1
    assert judge_report(TWO, Policy(fail_on="never", limits={"fallback": 2})).code == 0


def test_what_is_ignored_or_known_does_not_count() -> None:
    (finding,) = (item for item in TWO.findings if item.rule == "OC103")
    policy = Policy(fail_on="fallback")
    first, second = names(TWO, "OC103")
    assert judge_report(TWO, policy).against == (first, second)
    assert judge_report(TWO, policy, known=[first]) == Judgement(
        code=1, reasons=("fallback: 1 call",), against=(second,)
    )
    assert judge_report(TWO, policy, known=[first, second]).code == 0
    ignored = [msgspec.structs.replace(finding, ignored="why")]
    assert judge_report(msgspec.structs.replace(TWO, findings=tuple(ignored)), policy).code == 0


def test_a_call_that_no_finding_speaks_of_cannot_be_excused() -> None:
    silent = msgspec.structs.replace(TWO, findings=())
    assert judge_report(silent, Policy(fail_on="fallback")).code == 1


def test_calls_that_a_dtypes_origin_speaks_of_go_with_it() -> None:
    report = make_report(call("aten::mm", 3, inputs=(spec(1, dtype="float64"),)))
    (finding, *_) = (item for item in report.findings if item.severity == "error")
    moved = msgspec.structs.replace(finding, rule="OC140", locations=(), ignored="why")
    for ignored, code in (("", 1), ("why", 0)):
        findings = (msgspec.structs.replace(moved, ignored=ignored),)
        assert judge_report(msgspec.structs.replace(report, findings=findings), Policy()).code == code


def test_an_advisory_counts_where_it_is_met_for_certain() -> None:
    statement = make_statement("wrong", sort="advisory", effect="wrong_result", error=None)
    report = make_report(call("aten::mm", 3), call("aten::mm", 9), statements=(statement,))
    assert judge_report(report, Policy(fail_on="fallback")).code == 0
    result = judge_report(report, Policy(fail_on="advisory"))
    assert (result.code, result.reasons) == (1, ("advisory: 2 calls",))
    assert list(result.against) == names(report, "OC112")
    assert judge_report(report, Policy(fail_on="advisory", limits={"advisory": 2})).code == 0


@pytest.mark.parametrize(
    ("expect", "made", "code"),
    [
        ("fails", RAISES, 0),
        ("fails", NATIVE, 1),
        ("runs natively", NATIVE, 0),
        ("runs natively", RAISES, 1),
        ("could not tell", UNKNOWN, 0),
        ("runs natively", UNKNOWN, 3),
    ],
)
def test_an_expected_headline_is_what_passes(expect: str, made: OpCall, code: int) -> None:
    report = make_report(NATIVE, made)
    assert judge_report(report, Policy(fail_on="advisory", expect=expect)).code == code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fallback=3", ("fallback", 3)),
        ("fallback-always = 0", ("fallback_always", 0)),
        ("bytes=10MB", ("bytes", 10_000_000)),
        ("bytes=2KiB", ("bytes", 2048)),
        ("bytes=7", ("bytes", 7)),
    ],
)
def test_a_limit_is_a_name_and_a_number(text: str, expected: tuple[str, int]) -> None:
    assert limit(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fallbacks=3", "nothing to limit: 'fallbacks'"),
        ("fallback", "not a limit: ''"),
        ("fallback=-1", "not a limit: '-1'"),
        ("fallback=3MB", "not a limit: '3MB'"),
        ("bytes=10XB", "not a limit: '10XB'"),
    ],
)
def test_another_limit_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        limit(text)
    assert caught.value.message == message
    assert caught.value.context == f"--max {text}"
    assert caught.value.hint


@pytest.mark.parametrize(("level", "code"), [("never", 3), ("unsupported", 1), ("advisory", 1)])
def test_a_program_that_asks_for_cuda_is_a_finding_although_it_made_no_call(level: str, code: int) -> None:
    asks = Problem(kind="needs_cuda", message="AssertionError", answered="no CUDA")
    report = make_report(problems=(asks,), complete=False)
    assert report.headline == "fails"
    assert exit_code(report, fail_on=level, strict=False) == code
    (name,) = (n for f, own in zip(report.findings, fingerprints(report.findings), strict=True) for n in own if f.rule == "OC124")  # fmt: skip
    assert judge_report(report, Policy(fail_on=level)).against == ((name,) if code == 1 else ())
    # What is known is no finding, and the rest of the program is not known all the same.
    assert judge_report(report, Policy(fail_on=level), known=[name]).code == 3


def test_opchecks_own_limit_is_no_finding() -> None:
    limit_met = Problem(kind="opcheck_limit", message="a limit of opcheck")
    report = make_report(NATIVE, problems=(limit_met,), complete=False)
    assert report.headline == "could not tell"
    assert exit_code(report, fail_on="unsupported", strict=False) == 3


def test_a_group_without_a_line_counts() -> None:
    report = make_report(RAISES, complete=False)
    (group,) = report.groups
    report = msgspec.structs.replace(report, groups=(msgspec.structs.replace(group, locations=()),))
    assert exit_code(report, fail_on="unsupported", strict=False) == 1


def test_the_time_to_judge_grows_as_the_findings_do() -> None:
    report = make_report(RAISES)
    finding = report.findings[0]
    many = tuple(msgspec.structs.replace(finding, fingerprints=(f"{number:08}",)) for number in range(20_000))
    began = time.process_time()
    judgement = judge_report(msgspec.structs.replace(report, findings=many), Policy())
    assert len(judgement.against) == len(many)
    assert time.process_time() - began < 2
