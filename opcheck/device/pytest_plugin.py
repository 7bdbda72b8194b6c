"""Pytest fixtures: ``mps_emulated`` runs a test on an emulated Mac, ``opcheck_mps`` audits a model.

The target of the first comes from the test's marker ``mps_target(torch=..., macos=...,
fallback=...)``, that of the second from ``opcheck_mps(torch=..., macos=..., fallback=...,
fail_on=...)``, else from the ini options ``mps_torch``, ``mps_macos`` and ``mps_fallback``, else it
is the newest in the op lists.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

import opcheck
from opcheck.model.records import Report

_MARKERS = (
    "mps_target(torch=None, macos=None, fallback=False): the Mac that mps_emulated is",
    ("opcheck_mps(torch=None, macos=None, fallback=False, fail_on='fallback'): the Mac that opcheck_mps audits for"),
)
#: how many findings a failed assertion shows, and how many lines of each
_SHOWN, _PLACES = 5, 2


class RunsOnMps(Protocol):
    """The value of the fixture ``opcheck_mps``: ``assert_runs_on_mps`` with the test's target."""

    def __call__(self, model: str | Callable[..., Any], inputs: Any = None, **options: Any) -> Report:
        """Assert that the model runs on MPS, and return the report."""


def assert_runs_on_mps(
    model: str | Callable[..., Any], inputs: Any = None, *, fail_on: str = "fallback", **options: Any
) -> Report:
    """Assert that a model runs on a Mac's GPU, as ``opcheck audit --fail-on`` judges it.

    Args:
        model: a module, a function of tensors, or a model's name; see ``opcheck.audit``.
        inputs: its inputs, as there.
        fail_on: ``fallback``, ``unsupported`` ...: what must not be; as the flag takes it.
        options: torch, macos, fallback, mode ...: the others of ``opcheck.audit``.

    Raises:
        AssertionError: it does not, or that is unknown; the message has the findings.
        OpcheckError: as ``opcheck.audit`` does.
        UsageError: no such ``fail_on``.
    """
    __tracebackhide__ = True
    from opcheck.common.errors import UsageError
    from opcheck.judge.policy import FAIL_ON, PASSED, Policy, judge_report

    if fail_on not in FAIL_ON:
        raise UsageError(
            f"there is no fail_on={fail_on!r}", context="assert_runs_on_mps", hint=f"one of {', '.join(FAIL_ON)}"
        )
    report = opcheck.audit(model, inputs, **options)
    judgement = judge_report(report, Policy(fail_on=fail_on, newest_known=True))
    if judgement.code != PASSED:
        raise AssertionError(_message(report, judgement.reasons))
    return report


def _message(report: Report, reasons: tuple[str, ...]) -> str:
    findings = [finding for finding in report.findings if finding.severity != "note"]
    lines = [f"{report.headline}: {report.model} on {report.target}", *(f"  {reason}" for reason in reasons)]
    for finding in findings[:_SHOWN]:
        lines.append(f"  {finding.severity} {finding.rule} {finding.message}")
        places = [place for place in finding.locations if place.line]
        for place in places[:_PLACES]:
            module = f" ({place.module})" if place.module else ""
            lines.append(f"    {place.line} in {place.function}{module}")
        lines += [f"    help: {finding.hint}"] if finding.hint else []
    if len(findings) > _SHOWN:
        lines.append(f"  and {len(findings) - _SHOWN} more")
    lines += [f"  {problem.message}" for problem in report.problems[-1:] if not findings]
    return "\n".join([*lines, "  (nothing was observed on a Mac)"])


def pytest_addoption(parser: pytest.Parser) -> None:
    """The defaults of a project."""
    parser.addini("mps_torch", "torch release that the fixtures of opcheck follow", default="")
    parser.addini("mps_macos", "macOS of the fixtures of opcheck", default="")
    parser.addini("mps_fallback", "PYTORCH_ENABLE_MPS_FALLBACK=1 on it", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """The markers, for --strict-markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture
def mps_emulated(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The emulated Mac that the test runs on; its ``report`` has the calls so far.

    The Mac's errors are raised in the test; its fallback warnings are warnings of the test.  See
    ``opcheck.emulate`` for its exceptions.
    """
    from opcheck.device.emulator.child.session import emulate

    with emulate(**_target(request, "mps_target"), name=request.node.name) as run:
        yield run


@pytest.fixture
def opcheck_mps(request: pytest.FixtureRequest) -> RunsOnMps:
    """``assert_runs_on_mps`` for the target of the test's marker, or of the project."""
    marker = request.node.get_closest_marker("opcheck_mps")
    options = dict(marker.kwargs) if marker else {}
    asked = {**options, **_target(request, "opcheck_mps")}

    def runs(model: str | Callable[..., Any], inputs: Any = None, **options: Any) -> Report:
        __tracebackhide__ = True
        return assert_runs_on_mps(model, inputs, **{**asked, **options})

    return runs


def _target(request: pytest.FixtureRequest, marker_name: str) -> dict[str, Any]:
    config = request.config
    marker = request.node.get_closest_marker(marker_name)
    asked = dict(marker.kwargs) if marker else {}
    return {
        "torch": asked.get("torch") or config.getini("mps_torch") or None,
        "macos": asked.get("macos") or config.getini("mps_macos") or None,
        "fallback": bool(asked.get("fallback", config.getini("mps_fallback"))),
    }
