"""The published figures of the chips, and what was fitted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.data.chips import CHIPS, FIT, SPEED
from opcheck.data.macs import MACS
from opcheck.data.registrations import data_directory


def test_each_chip_that_is_sold_has_figures() -> None:
    assert list(CHIPS.load().chips) == list(MACS.load().chips.memory)


def test_more_cores_are_faster_and_no_bandwidth_shrinks() -> None:
    for name, chip in CHIPS.load().chips.items():
        rates = [(gpu.tflops, gpu.half, gpu.gb_s) for gpu in chip.gpus]
        assert rates == sorted(rates), name


def test_the_fit_has_at_most_twelve_parameters() -> None:
    values = json.loads((data_directory() / "speed_fit.json").read_text())["parameters"]
    assert 0 < len(values) <= 12
    assert all(0 < values[name] <= 1 for name in values if name.startswith(("gpu_", "cpu_m")))


def test_the_cpu_reaches_a_part_of_a_wide_memory() -> None:
    chips = CHIPS.load().chips
    assert chips["M1"].cpu.bandwidth(68.25) == 68.25e9
    assert chips["M2 Max"].cpu.bandwidth(409.6) < 300e9


def test_a_damaged_file_names_its_place(tmp_path: Path) -> None:
    text = (data_directory() / "chips.yaml").read_text(encoding="utf-8")
    wrong = text.replace("{cores: 7, tflops: 2.29", "{cores: 9, tflops: 2.29")
    assert wrong != text
    (tmp_path / "chips.yaml").write_text(wrong, encoding="utf-8")
    with pytest.raises(OpListError, match=r"chips\.yaml:\d+ chips\.M1\.gpus"):
        CHIPS.load(tmp_path)


def test_each_family_has_a_pattern_that_takes_its_own_names(tmp_path: Path) -> None:
    shutil.copy(data_directory() / "speed.yaml", tmp_path)
    speed = SPEED.load(tmp_path)
    for family, names in speed.families.items():
        first = names[0].replace("*", "")
        assert next(f for p, f in speed.patterns if p.fullmatch(first)) == family
    assert FIT.load().parameters.host > 0
