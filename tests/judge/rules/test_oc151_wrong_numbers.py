from __future__ import annotations

from opcheck.judge.policy import exit_code
from opcheck.model.records import CheckedShare, GroupLocation, KernelNumbers, WrongNumbers, WrongSample
from tests.judge.rules.checking import findings_by
from tests.made import call, make_report

SHARE = CheckedShare(checked=3, all=4)
LINE = WrongNumbers(
    op="aten::erfc",
    kernel="erfc_dense_scalar_float_float",
    dtype="float32",
    calls=2,
    elements=5,
    compared=9,
    error=1.0,
    smallest=WrongSample(operands=("6",), result="0", expected="2e-17"),
    worst=WrongSample(operands=("4",), result="0", expected="1e-8"),
    mended="2.14",
    place=GroupLocation.at(None, module="tail"),
)
RUN = KernelNumbers(torch="2.13.0", mode="shadow", seed=1, calls=SHARE, elements=SHARE, flops=SHARE, wrong=(LINE,))


def test_a_line_with_wrong_numbers_is_named_with_its_operands_and_the_release_that_is_right() -> None:
    (found,) = findings_by("OC151", call("aten::erfc"), numbers=(RUN,))
    assert found.severity == "error"
    assert "5 of 9 results in float32 are wrong: 6 gives 0, right 2e-17" in found.message
    assert "the worst: 4 gives 0" in found.message
    assert "the kernel of torch 2.14 is right here" in found.hint
    assert found.locations == (LINE.place,)


def test_the_headline_and_the_exit_code_follow_the_numbers() -> None:
    report = make_report(call("aten::erfc"), numbers=(RUN,))
    assert [(each.op, each.calls, each.frequency) for each in report.wrong] == [("aten::erfc", 2, "always")]
    assert exit_code(report, fail_on="unsupported", strict=False) == 1
    assert exit_code(report, fail_on="never", strict=False) == 0


def test_numbers_within_the_band_are_no_finding() -> None:
    quiet = KernelNumbers(torch="2.14.1", mode="shadow", seed=1, calls=SHARE, elements=SHARE, flops=SHARE)
    assert not findings_by("OC151", call("aten::erfc"), numbers=(quiet,))
