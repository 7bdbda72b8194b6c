from __future__ import annotations

import pytest

from opcheck.data.registrations import OpLists
from opcheck.lookup.matrix import CELLS, STATES, cell_state, coverage, matrix
from opcheck.lookup.plain_call import OperatorLookup, target
from tests.made import VALUES, make_lists

MADE = {
    "aten::grows": {"2.12": "cpu_only", "2.13": "kernel", "2.14": "kernel"},
    "aten::goes": {"2.12": "kernel", "2.14": "cpu_only"},
}


def test_a_row_for_every_overload_of_the_release() -> None:
    result = matrix("2.13", lists=make_lists(MADE))
    assert [row.name for row in result.rows] == sorted([*VALUES, "aten::grows"])
    rows = {row.name: row for row in result.rows}
    assert (rows["aten::grows"].status, rows["aten::grows"].since) == ("native", "2.13")
    assert rows["aten::svd"].because.startswith("it calls aten::svd.U")
    assert rows["aten::comp"].status == "unknown"
    assert result.counts["overloads"] == len(result.rows)
    assert sum(result.counts[state] for state in STATES) == len(result.rows)


def test_a_status_that_came_back_is_not_older_than_its_return() -> None:
    lists = make_lists({"aten::back": {"2.12": "kernel", "2.13": "cpu_only", "2.14": "kernel"}})
    row = next(row for row in matrix("2.14", lists=lists).rows if row.name == "aten::back")
    assert (row.since, row.first_native) == ("2.14", "2.12")


@pytest.mark.parametrize("torch", [pytest.param("2.3", marks=pytest.mark.slow), "2.15"])
def test_rows_say_what_single_answers_say(torch: str, lists: OpLists, lookup: OperatorLookup) -> None:
    result = matrix(torch, lookup=lookup)
    assert len(result.rows) == lists.release(torch).counts.overloads
    for row in result.rows[::97]:
        verdict = lookup.verdict(row.name, target(torch, result.macos), row.dtype)
        assert (row.status, row.kind, row.because) == (verdict.status, verdict.kind, verdict.because)
        assert {*row.limitations, *row.advisories} <= {*result.statements}
        assert (row.status == "native") <= (row.first_native is not None)


def test_the_runs_of_the_page_hold_in_every_release(lists: OpLists, lookup: OperatorLookup) -> None:
    """A run is made anew only where something changes: in between it must still be true."""
    some = sorted(lists.names())[::60]
    result = coverage(None, lookup, some)
    for op in some:
        runs = result.operators[op]
        for release in lists.releases:
            before = [run for run in runs if _order(run.torch) <= _order(release.line)]
            exists = op in lists.operators(release.line)
            assert bool(before and before[-1].exists) == exists
            if exists:
                aim = target(release.line, result.macos)
                state = lookup.state(op, aim, "float32")
                assert CELLS[before[-1].states[0]] == cell_state(state), (op, release.line)


def _order(line: str) -> tuple[int, ...]:
    return tuple(map(int, line.split(".")))


def test_the_coverage_tells_how_far_it_is(lookup: OperatorLookup) -> None:
    results: list[str] = []
    some = sorted(lookup.lists.names())[:120]
    result = coverage(None, lookup, some, results.append)
    assert results == [f"{number} of 120 operator overloads, in all releases" for number in (0, 50, 100)]
    assert result == coverage(None, lookup, some)
