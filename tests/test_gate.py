from __future__ import annotations

import pytest

from opcheck.gate import FAIL_ON, exit_code
from opcheck.model import Lifetime, OpCall
from tests.made import call, make_report

NATIVE = call("aten::mm")
ALWAYS = call("aten::embedding_renorm_")
ENV = call("aten::foo")
UNKNOWN = call("mylib::op")
RAISES = call("aten::stub")


@pytest.mark.parametrize(
    ("made", "codes"),
    [
        # for --fail-on never, unsupported, unknown, fallback
        (NATIVE, (0, 0, 0, 0)),
        (ALWAYS, (0, 0, 0, 1)),
        (ENV, (0, 1, 1, 1)),
        (UNKNOWN, (0, 0, 1, 1)),
        (RAISES, (0, 1, 1, 1)),
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
    lives = tuple(
        Lifetime(storage=number, nbytes=3 << 30, first=0, freed=None, kind="result")
        for number in range(4)
    )
    report = make_report(NATIVE, lifetimes=lives, mac=mac)
    assert exit_code(report, fail_on="unsupported", strict=False) == code
    assert exit_code(report, fail_on="never", strict=False) == 0
