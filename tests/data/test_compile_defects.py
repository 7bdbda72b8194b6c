"""The known defects of Inductor for Metal, and that the file cannot say nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Version
from opcheck.data.compile_defects import FILE, load_defects
from opcheck.data.registrations import data_directory


@pytest.mark.parametrize(
    ("defect", "broken", "right"),
    [
        ("welford-barrier", "2.12", "2.13"),
        ("branches-share-names", "2.13", "2.14"),
        ("branches-share-names", "2.12", "2.11"),
        ("missing-math", "2.14", "2.15"),
        ("nested-masks", "2.11", "2.12"),
    ],
)
def test_the_spans_are_those_of_the_wheels(defect: str, broken: str, right: str) -> None:
    (found,) = [one for one in load_defects() if one.id == defect]
    assert Version.parse(broken) in found.torch
    assert Version.parse(right) not in found.torch


def test_a_kernel_is_known_by_its_source_and_operators() -> None:
    by_id = {one.id: one.when for one in load_defects()}
    source = "threadgroup long tmp_acc_0[32]; c10::metal::threadgroup_max(tmp_acc_0, x);"
    assert by_id["int64-extremes"].holds_for(source, frozenset())
    assert not by_id["int64-extremes"].holds_for(source.replace("long", "float"), frozenset())
    assert by_id["nested-masks"].holds_for("", frozenset({"aten::cat"}))
    assert not by_id["nested-masks"].holds_for("", frozenset({"aten::add.Tensor"}))
    assert not by_id["missing-math"].holds_for("sinh", frozenset({"aten::sinh"}))


def test_a_failure_is_known_by_its_message() -> None:
    by_id = {one.id: one.when for one in load_defects()}
    assert by_id["missing-math"].explains("Inductor's Metal backend does not implement sinh")
    assert not by_id["missing-math"].explains("Inductor's Metal backend does not implement sinhc")
    assert not by_id["welford-barrier"].explains("welford")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("effect: fails", "effect: hurts", "defects.0.effect: unknown: hurts"),
        ('until: "2.8"', 'until: "2.7"', "defects.0.torch: the span is empty"),
        ('since: "2.7"', 'since: "2.7.1"', "not a release line: 2.7.1"),
        ("when: {any: true}", "when: {}", "nothing: say any: true"),
        ('"welford_combine"', '"welford("', "not a pattern: welford("),
        ("id: welford-barrier", "id: prototype", "twice: prototype"),
        ("schema: 1", "schema: 2", "the schema must be 1"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (data_directory() / FILE).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / FILE).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(OpListError) as raised:
        load_defects(tmp_path)
    assert said in raised.value.message
