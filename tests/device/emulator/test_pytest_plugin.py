"""The fixture, as another project uses it."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest, torch

def test_runs(mps_emulated):
    assert torch.ones(2, device="mps").sum().item() == 2
    assert str(mps_emulated.target) == "torch 2.5, macOS 15.0"

@pytest.mark.mps_target(torch="2.13", macos="14")
def test_another_mac(mps_emulated):
    assert str(mps_emulated.target) == "torch 2.13, macOS 14.0"
    with pytest.raises(NotImplementedError, match="issues/141287"):
        torch.special.log_ndtr(torch.ones(2, device="mps"))
    assert mps_emulated.report.headline == "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1"

@pytest.mark.mps_target(fallback=True)
def test_with_the_variable(mps_emulated):
    with pytest.warns(UserWarning, match="log_ndtr"):
        torch.special.log_ndtr(torch.ones(2, device="mps"))

def test_without_the_fixture():
    assert torch.backends.mps.is_available() is torch._C._mps_is_available()
"""


def test_the_fixture_the_marker_and_the_options(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmps_torch = 2.5\nmps_macos = 15\naddopts = --strict-markers\n")
    pytester.runpytest_inprocess("-q").assert_outcomes(passed=4)


KEPT = """
import pytest, torch

model = torch.nn.Linear(8, 8)

@pytest.mark.mps_target(torch="2.13", macos="15")
def test_a_module_that_lives_until_python_ends(mps_emulated):
    model.to("mps")(torch.rand(2, 8, device="mps")).sum().backward()
"""


def test_a_tensor_that_lives_until_python_ends_prints_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(KEPT)
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    assert "Exception ignored" not in result.stderr.str()
