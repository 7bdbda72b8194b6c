from __future__ import annotations

import pytest

from opcheck.common.versions import Target, Version
from opcheck.data.packages import PACKAGES
from opcheck.judge.assembly import headline
from opcheck.judge.policy import exit_code
from opcheck.judge.rules.capture_problems import quantized_headline
from opcheck.model.records import Problem, Trace
from tests.judge.rules.checking import findings_by
from tests.made import call, make_report

TARGET = Target(torch=Version.parse("2.13"), macos=Version.parse("15.0"))


def quantized(method: str) -> Problem:
    """What a capture says of such a model."""
    return Problem(kind="quantized", message="dense", answered=method)


@pytest.mark.parametrize(
    ("method", "severity", "answer"),
    [
        ("fp8", "note", "runs natively"),
        ("gptq", "warning", "could not tell"),
        ("a new one", "warning", "could not tell"),
        ("eetq", "error", "fails"),
    ],
)
def test_the_method_decides(method: str, severity: str, answer: str) -> None:
    (finding,) = findings_by("OC127", call("aten::mm"), problems=(quantized(method),))
    assert finding.severity == severity
    assert method in finding.message
    assert finding.hint.startswith("instead: ")
    trace = Trace(model="m", problems=(quantized(method),))
    assert headline(trace, {("native", None)}, TARGET, None) == answer


@pytest.mark.parametrize(("method", "code"), [("fp8", 0), ("gptq", 3), ("eetq", 1)])
def test_the_exit_code_is_that_of_the_headline(method: str, code: int) -> None:
    report = make_report(call("aten::mm"), problems=(quantized(method),))
    assert exit_code(report, fail_on="unsupported", strict=False) == code


@pytest.mark.parametrize(
    ("kernel", "severity", "answer"),
    [
        ("kernels-community/flash-attn2", "error", "fails"),
        ("kernels-community/metal-flash-sdpa", "warning", "could not tell"),
        ("somebody/kernel", "warning", "could not tell"),
        ("use_kernels", "warning", "could not tell"),
    ],
)
def test_a_kernel_of_the_hub_decides_as_a_method_does(kernel: str, severity: str, answer: str) -> None:
    ended = Problem(kind="hub_kernel", message="usual", answered=kernel)
    (finding,) = findings_by("OC127", call("aten::mm"), problems=(ended,))
    assert finding.severity == severity
    assert kernel in finding.message
    assert ("use_kernels=False" if kernel == "use_kernels" else "sdpa") in finding.hint
    trace = Trace(model="m", problems=(ended,))
    assert headline(trace, {("native", None)}, TARGET, None) == answer
    report = make_report(call("aten::mm"), problems=(ended,))
    assert exit_code(report, fail_on="unsupported", strict=False) == (1 if answer == "fails" else 3)


def test_silent_without_quantized_weights() -> None:
    assert not findings_by("OC127", call("aten::mm"))
    assert quantized_headline(Trace(model="m")) is None


def test_no_other_rule_reports_it() -> None:
    assert not findings_by("OC120", call("aten::mm"), problems=(quantized("gptq"),))


def test_each_method_has_its_evidence() -> None:
    for name, method in PACKAGES.load().methods.items():
        assert "quantizer_" in method.evidence, name
    for name, method in PACKAGES.load().kernels.items():
        assert " line" in method.evidence, name
