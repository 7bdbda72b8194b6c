"""An index out of range: a Mac raises torch.AcceleratorError, or goes on with what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import opcheck
from opcheck.model.records import Report


def _rows() -> torch.Tensor:
    return torch.ones(4, 3, device="mps")


def _at(*places: int) -> torch.Tensor:
    return torch.tensor(places, device="mps")


CALLS: dict[str, Callable[[], Any]] = {
    "bag": lambda: F.embedding_bag(_at(0, 9), _rows(), _at(0)),
    "embedding": lambda: F.embedding(_at(0, 9), _rows()),
    "index": lambda: _rows()[_at(0, 9)],
    "second index": lambda: _rows()[:, _at(0, 9)],
    "index_put": lambda: _rows().index_put_((_at(9),), torch.tensor(1.0, device="mps")),
    "index_select": lambda: _rows().index_select(0, _at(0, 9)),
    "index_add": lambda: _rows().index_add_(0, _at(0, 9), torch.ones(2, 3, device="mps")),
    "gather": lambda: _rows().gather(0, _at(9)[None]),
    "scatter": lambda: _rows().scatter_(0, _at(9)[None], 1.0),
    "cross_entropy": lambda: F.cross_entropy(_rows(), _at(0, 1, 2, 7)),
}


def run(call: Callable[[], Any], release: str) -> tuple[BaseException | None, Report]:
    with opcheck.emulate(torch=release, macos="15") as emulation:
        try:
            call()
        except (RuntimeError, IndexError, TypeError) as error:
            return error, emulation.report
    return None, emulation.report


@pytest.mark.parametrize(
    ("name", "release", "text"),
    [
        ("bag", "2.13", "Index 1 is out of bounds: 9, range 0 to 4"),
        ("embedding", "2.14", "index 9 is out of bounds for dimension with size 4"),
        ("index", "2.10", "Index 9 is out of bounds: 0, range 0 to 4"),
        ("index", "2.13", "index 9 is out of bounds for dimension 0 with size 4"),
        ("second index", "2.13", "index 9 is out of bounds for dimension 1 with size 3"),
        ("index_put", "2.13", "index 9 is out of bounds for dimension 0 with size 4"),
        ("index_add", "2.14", "index 9 is out of bounds for dimension with size 4"),
        ("gather", "2.13", "gather: index 9 is out of bounds for dimension with size 4"),
        ("scatter", "2.13", "scatter: index 9 is out of bounds for dimension with size 4"),
        ("cross_entropy", "2.15", "Target 7 is out of bounds."),
    ],
)
def test_where_the_kernel_checks_the_program_gets_its_text(name: str, release: str, text: str) -> None:
    error, report = run(CALLS[name], release)
    assert type(error) is torch.AcceleratorError
    assert str(error) == text
    assert report.headline == "fails"
    assert text in {group.verdict.prints for group in report.groups}


@pytest.mark.parametrize(
    ("name", "release"), [("embedding", "2.13"), ("index_add", "2.13"), ("gather", "2.12"), ("scatter", "2.12")]
)
def test_where_the_kernel_has_no_check_the_program_goes_on_and_its_numbers_are_not_known(
    name: str, release: str
) -> None:
    error, report = run(CALLS[name], release)
    assert error is None
    (unknown,) = [group.verdict for group in report.groups if group.verdict.status == "unknown"]
    assert "a Mac does not check" in unknown.because


@pytest.mark.parametrize(
    ("name", "release", "advisory"),
    [
        ("index", "2.9", "index-put-no-bounds-check"),
        ("index_put", "2.9", "index-put-no-bounds-check"),
        ("index_select", "2.13", "index-select-no-bounds-check"),
        ("cross_entropy", "2.14", "nll-loss-no-bounds-check"),
    ],
)
def test_where_an_advisory_states_the_missing_check_the_result_is_wrong(name: str, release: str, advisory: str) -> None:
    error, report = run(CALLS[name], release)
    assert error is None
    assert [each.ids for each in report.wrong] == [(advisory,)]


def test_an_advisory_that_knows_the_result_is_the_verdict() -> None:
    error, report = run(lambda: F.embedding_bag(_at(4), _rows(), _at(0)), "2.13")
    assert error is None
    evidence = {entry.detail for group in report.groups for entry in group.verdict.evidence}
    assert "embedding-bag-index-boundary" in evidence


@pytest.mark.parametrize("release", ["2.9", "2.15"])
def test_an_index_in_range_is_native(release: str) -> None:
    error, report = run(lambda: _rows()[_at(-4, 3)].gather(1, _at(0, 2)[None]), release)
    assert error is None
    assert {group.verdict.status for group in report.groups} == {"native"}


def test_another_error_stays_the_programs() -> None:
    error, _ = run(lambda: _rows().index_select(0, _at(0, 1).float()), "2.13")
    assert type(error) is RuntimeError
    assert "index" in str(error)
    assert "bounds" not in str(error)


@pytest.mark.parametrize(("release", "headline"), [("2.13", "fails"), ("2.14", "runs natively"), ("2.15", "fails")])
def test_a_copy_to_float64_on_the_cpu_is_judged_by_release(release: str, headline: str) -> None:
    _, report = run(lambda: _rows().to("cpu", torch.float64), release)
    assert report.headline == headline
    certain = {entry.detail for group in report.groups for entry in group.verdict.evidence}
    assert ("to-cpu-float64" in certain) is (release == "2.14")
    _, report = run(lambda: _rows().cpu().double(), release)
    assert report.headline == "runs natively"
