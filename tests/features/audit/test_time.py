"""``opcheck audit --mac`` and ``--time``: the estimate in JSON and in text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opcheck.data.chips import CHIPS
from tests.command_line import CommandLine
from tests.made import call, make_report

KEYS = {*("mac", "unit", "low_seconds", "high_seconds", "cpu_low_seconds", "cpu_high_seconds"), *("bound", "shares")}


def times(opcheck: CommandLine, *flags: str) -> list[dict[str, Any]]:
    result = opcheck("audit", "m.py:Net", *flags, "-f", "json")
    assert result.code == 0, result.err
    answer: list[dict[str, Any]] = json.loads(result.out)["time"]
    return answer


def test_a_mac_has_an_interval(opcheck: CommandLine) -> None:
    (entry,) = times(opcheck, "--mac", "m4 pro")
    assert entry.keys() >= KEYS
    assert (entry["mac"], entry["unit"]) == ("M4 Pro", "pass")
    assert 0 < entry["low_seconds"] < entry["high_seconds"]
    assert 0 < entry["cpu_low_seconds"] < entry["cpu_high_seconds"]
    assert sum(entry["shares"].values()) == pytest.approx(1, abs=0.01)


def test_nothing_is_estimated_that_was_not_asked_for(opcheck: CommandLine) -> None:
    assert times(opcheck) == []
    assert times(opcheck, "--memory", "24") == []


@pytest.mark.parametrize("flags", [("--time",), ("--mac", "all")])
def test_every_chip_has_a_row(opcheck: CommandLine, flags: tuple[str, ...]) -> None:
    assert [entry["mac"] for entry in times(opcheck, *flags)] == list(CHIPS.load().chips)


def test_a_memory_means_the_chips_that_are_sold_with_it(opcheck: CommandLine) -> None:
    names = [entry["mac"] for entry in times(opcheck, "--time", "--mac", "18 GB")]
    assert names == ["M3 Pro"]


def test_the_answer_is_short_and_the_table_is_there_for_all(opcheck: CommandLine) -> None:
    short = opcheck("audit", "m.py:Net", "--mac", "M4 Pro").out
    assert "  time         M4 Pro: " in short
    assert " a pass (16 or 20 GPU cores); its CPU: " in short
    assert "numbers and speed" not in short
    assert "Time (an estimate" not in short
    every = opcheck("audit", "m.py:Net", "--time").out
    assert all(f"\n  {name} " in every for name in CHIPS.load().chips)


def test_a_chip_that_does_not_exist_lists_those_that_do(opcheck: CommandLine) -> None:
    result = opcheck("audit", "m.py:Net", "--mac", "M9 Pro")
    assert result.code == 2
    assert len(result.err.splitlines()) == 3
    assert all(name in result.err for name in CHIPS.load().chips)
    assert result.out == ""


def test_what_raises_and_what_has_no_formula_is_stated(opcheck: CommandLine) -> None:
    opcheck.report = make_report(call("aten::stub"), call("mylib::op"), call("aten::mm", flops=8))
    result = opcheck("audit", "m.py:Net", "--mac", "M4", "-f", "json")
    (entry,) = json.loads(result.out)["time"]
    assert (entry["left_out"], entry["without_formula"]) == (1, 1)
    text = opcheck("audit", "m.py:Net", "--mac", "M4", "--show", "time").out
    assert "1 call without a formula" in text
    assert "1 call that would raise" in text


def test_small_calls_are_to_be_batched(opcheck: CommandLine) -> None:
    opcheck.report = make_report(*(call("aten::relu", line) for line in range(1, 400)))
    (entry,) = times(opcheck, "--mac", "M4")
    assert entry["bound"] == "launch"
    assert any("batch" in line for line in entry["advice"])
    assert any("CPU" in line for line in entry["advice"])


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_a_page_has_the_table(opcheck: CommandLine, form: str) -> None:
    page = opcheck("audit", "m.py:Net", "--mac", "M4 Pro", "-f", form).out
    assert "Time (an estimate, never observed on a Mac)" in page
    assert "M4 Pro" in page
