"""The published times, and what the shipped parameters make of them."""

from __future__ import annotations

import pytest

from opcheck.data.chips import CHIPS, FIT
from scripts import calibrate_time
from scripts.calibrate_time import Predicted, figures, median, predict, right_side, share


@pytest.fixture(scope="module")
def predicted() -> list[Predicted]:
    times = calibrate_time.measurements().times
    return predict(times, calibrate_time.workloads(), FIT.load().parameters)


def test_the_intervals_hold_and_the_faster_side_is_right(predicted: list[Predicted]) -> None:
    assert share(predicted) >= 0.8
    assert median(predicted) <= 0.5
    assert right_side(predicted) >= 0.85


def test_each_time_has_its_source_and_its_programs() -> None:
    content = calibrate_time.measurements()
    assert len({each.id for each in content.times}) == len(content.times)
    for each in content.times:
        assert each.url.startswith("https://github.com/")
        assert each.chip in CHIPS.load().chips
        assert each.cores in {0, *(gpu.cores for gpu in CHIPS.load().chips[each.chip].gpus)}
        assert {name for name, _ in each.parts} <= content.programs.keys()


def test_the_page_has_the_figures_of_the_shipped_parameters(predicted: list[Predicted]) -> None:
    text = (calibrate_time._PAGE).read_text(encoding="utf-8")
    assert figures(predicted) in text


def test_a_time_moves_the_fit() -> None:
    times = [each for each in calibrate_time.measurements().times if "zzc-65" in each.id]
    work = calibrate_time.workloads()
    (fitted, _), *_ = calibrate_time.without_each_source(
        [*times, *(each for each in calibrate_time.measurements().times if "gather" in each.id)], work
    )
    assert fitted.gpu_matrix == calibrate_time._PRIOR.gpu_matrix
    assert fitted.gpu_index != calibrate_time._PRIOR.gpu_index
