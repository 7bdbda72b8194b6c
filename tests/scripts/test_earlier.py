"""The bodies that were read in wheels: op_lists/bodies.yaml."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Version
from opcheck.data.composites import body
from opcheck.data.registrations import OpLists, data_directory
from scripts.opinfo.earlier import FILE, EarlierBody, earlier_bodies

ENTRIES = earlier_bodies(data_directory())


def lines(entry: EarlierBody, lists: OpLists) -> list[str]:
    every = [release.line for release in lists.releases]
    return [line for line in every if Version.parse(line) in entry.torch]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.op}-{entry.since}")
def test_it_is_what_the_table_answers(entry: EarlierBody, lists: OpLists) -> None:
    held = lines(entry, lists)
    assert held[0] == entry.since
    for line in held:
        result = body(entry.op, line)
        assert result is not None
        assert result.read
        assert (set(result.always), set(result.sometimes)) == (set(entry.always), set(entry.sometimes))
    after = body(entry.op, entry.until)
    assert after is not None
    assert {*after.always, *after.sometimes} != {*entry.always, *entry.sometimes}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.op}-{entry.since}")
def test_what_it_calls_has_a_verdict_of_its_own(entry: EarlierBody, lists: OpLists) -> None:
    for line in lines(entry, lists):
        if not lists.registration(entry.op, line):
            continue
        for op in (*entry.always, *entry.sometimes):
            assert lists.resolve(op, line).status in {"native", "fallback", "unsupported"}, op


def test_spans_of_one_operator_are_in_order() -> None:
    for item, other in pairwise(ENTRIES):
        assert item.torch.until is not None
        if item.op == other.op:
            assert other.torch.since is not None
            assert item.torch.until <= other.torch.since


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('schema: 1\nbodies:\n  - {op: "aten::add.Tensor"}\n', "utf-8")
    with pytest.raises(OpListError) as caught:
        earlier_bodies(tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)
