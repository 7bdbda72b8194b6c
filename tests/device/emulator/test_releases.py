"""What differs by release, by macOS and by the variable."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch

import opcheck


def there(*shape: int) -> torch.Tensor:
    return torch.ones(shape or (2, 2), device="mps")


@pytest.mark.parametrize(
    ("release", "words", "commit"), [("2.5", "issues/77764", False), ("2.13", "issues/141287", True)]
)
def test_the_text_is_that_of_the_release(release: str, words: str, *, commit: bool) -> None:
    with opcheck.emulate(torch=release, macos="15"), pytest.raises(NotImplementedError) as caught:
        torch.special.airy_ai(there())
    assert words in str(caught.value)
    assert bool(re.search(r"commit hash [0-9a-f]{40}\.", str(caught.value))) is commit


def test_bfloat16_needs_macos_14() -> None:
    with (
        opcheck.emulate(torch="2.4", macos="13"),
        pytest.raises(TypeError, match="MPS BFloat16 is only supported on MacOS 14 or newer"),
    ):
        torch.ones(2, device="mps", dtype=torch.bfloat16)


def test_with_the_variable_every_fallback_warns_once_a_line() -> None:
    with (
        opcheck.emulate(torch="2.13", macos="15", fallback=True) as run,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.special.airy_ai(there()).is_mps
            torch.special.log_ndtr(there())
    texts = [str(item.message).split("'")[1] for item in caught]
    assert texts == ["aten::special_airy_ai.out", "aten::special_log_ndtr.out"]
    assert {item.category for item in caught} == {UserWarning}
    assert {item.filename for item in caught} == {__file__}
    assert run.report.totals["fallback_env"] == 6
    assert run.report.partition.transfers_to_cpu == 6
    assert run.report.headline == "runs, partly on the CPU"


def test_some_fall_back_without_the_variable() -> None:
    with opcheck.emulate(torch="2.8", macos="15") as run, pytest.warns(UserWarning, match="aten::linalg_svd"):
        torch.linalg.svd(there())
    assert run.report.totals["fallback_always"] > 0


@pytest.mark.parametrize(
    ("release", "name", "there_is"),
    [
        ("2.0", "manual_seed", True),
        ("2.0", "Event", False),
        ("2.3", "device_count", False),
        ("2.4", "device_count", True),
        ("2.4", "recommended_max_memory", False),
        ("2.6", "compile_shader", False),
        ("2.13", "compile_shader", True),
    ],
)
def test_torch_mps_has_the_names_of_the_release(release: str, name: str, *, there_is: bool) -> None:
    had = hasattr(torch.mps, name)
    with opcheck.emulate(torch=release, macos="15"):
        assert hasattr(torch.mps, name) is there_is
    assert hasattr(torch.mps, name) is had


def test_afterwards_the_process_is_as_before() -> None:
    before = torch.backends.mps.is_available(), torch.Generator, torch.Event, torch.compile
    with opcheck.emulate():
        assert torch.backends.mps.is_available()
        x = there()
    assert (torch.backends.mps.is_available(), torch.Generator, torch.Event, torch.compile) == before
    with pytest.raises(RuntimeError):
        x.add_(1)


def test_the_report_counts_a_loop_and_grows_no_longer_with_it() -> None:
    with opcheck.emulate(torch="2.13", macos="15") as run:
        x = there()
        for step in range(200):
            x.mul_(1 / (step + 1))
    report = run.report
    group = next(group for group in report.groups if group.op == "aten::mul_.Tensor")
    assert group.count == 200
    assert len(group.locations) == 1
    assert str(group.locations[0].location).endswith(f".py:{_line_of('x.mul_(1 /')}")
    assert report.headline == "runs natively"
    assert any("gets the same numbers" in text for text in report.not_checked)
    assert any("nothing was observed on a Mac" in text for text in report.not_checked)


def _line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_cat_looks_at_empty_tensors_of_the_cpu_before_2_10() -> None:
    empty, number = torch.tensor([]), torch.tensor([1.0])
    with opcheck.emulate(torch="2.9", macos="15"), pytest.raises(RuntimeError, match="must be on the same device"):
        torch.cat([empty, there(2)])
    with opcheck.emulate(torch="2.10", macos="15"):
        assert torch.cat([empty, there(2)]).is_mps
        with pytest.raises(RuntimeError):
            torch.cat([empty, number, there(2)])
