"""The fixture ``opcheck_mps`` and its function, as another project uses them."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest, torch
from opcheck.common.errors import UsageError
from opcheck.device.pytest_plugin import assert_runs_on_mps

X = torch.rand(4)

def test_runs(opcheck_mps):
    report = opcheck_mps(torch.nn.Linear(4, 2), (X,))
    assert report.target.torch == "2.5"

@pytest.mark.opcheck_mps(torch="2.13", macos="14")
def test_fails(opcheck_mps):
    opcheck_mps(lambda x: torch.special.log_ndtr(x), X)

@pytest.mark.opcheck_mps(torch="2.13", macos="14", fail_on="unsupported", fallback=True)
def test_with_the_variable(opcheck_mps):
    assert opcheck_mps(lambda x: torch.special.log_ndtr(x), X).headline == "runs, partly on the CPU"

def test_no_such_policy():
    with pytest.raises(UsageError, match="fail_on='all'"):
        assert_runs_on_mps(torch.nn.Linear(4, 2), X, fail_on="all")
"""


def test_the_fixture_the_marker_and_the_message(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmps_torch = 2.5\nmps_macos = 15\naddopts = --strict-markers\n")
    result = pytester.runpytest_inprocess("-q")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*runs only with PYTORCH_ENABLE_MPS_FALLBACK=1: *on torch 2.13, macOS 14.0",
            "E*error OC102 aten::special_log_ndtr: *",
            "E*test_the_fixture_the_marker_and_the_message.py:* in *<lambda>*",
            "E*(nothing was observed on a Mac)",
        ]
    )
