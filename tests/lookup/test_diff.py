from __future__ import annotations

import pytest

from opcheck.common.errors import UnknownTargetError
from opcheck.data.registrations import OpLists
from opcheck.lookup.diff import CHANGES, diff
from tests.made import make_lists

MADE = {
    "aten::grows": {"2.12": "cpu_only", "2.13": "kernel"},
    "aten::shrinks": {"2.12": "kernel", "2.13": "cpu_only"},
    "aten::goes": {"2.12": "kernel"},
    "aten::comes": {"2.13": "kernel"},
    "aten::stays": {"2.12": "kernel", "2.13": "python_kernel"},
}


def test_regressions_come_first_and_what_is_alike_is_left_out() -> None:
    result = diff("2.12", "2.13", lists=make_lists(MADE))
    assert [(change.name, change.change) for change in result.changes] == [
        ("aten::shrinks", "regressed"),
        ("aten::goes", "removed"),
        ("aten::grows", "improved"),
        ("aten::comes", "added"),
    ]
    assert result.counts == dict.fromkeys(CHANGES, 0) | {
        "regressed": 1, "removed": 1, "improved": 1, "added": 1,
    }  # fmt: skip


def test_the_way_back_is_the_mirror_image() -> None:
    there = diff("2.12", "2.13", lists=make_lists(MADE))
    back = diff("2.13", "2.12", lists=make_lists(MADE))
    opposite = {"regressed": "improved", "removed": "added"}
    opposite |= {value: key for key, value in opposite.items()}
    assert {(c.name, opposite[c.change]) for c in there.changes} == {(c.name, c.change) for c in back.changes}


def test_a_release_does_not_differ_from_itself(lists: OpLists) -> None:
    assert diff("2.9", "2.9.1", lists=lists).changes == ()


def test_what_2_13_brought(lists: OpLists) -> None:
    results = {change.name: change for change in diff("2.12", "2.13", lists=lists).changes}
    change = results["aten::grid_sampler_2d_backward"]
    assert (change.change, change.after and change.after.status) == ("improved", "native")


def test_dtypes_show_where_the_status_is_the_same(lists: OpLists) -> None:
    results = {change.name: change for change in diff("2.2", "2.3", "14", lists=lists).changes}
    change = results["aten::add.Tensor"]
    assert change.change == "dtypes_gained"
    assert [state.status for state in change.dtypes["bfloat16"]] == ["unsupported", "native"]


@pytest.mark.slow
def test_both_releases_must_start_on_the_macos(lists: OpLists) -> None:
    with pytest.raises(UnknownTargetError, match=r"2\.15 does not start"):
        diff("2.9", "2.15", "14", lists=lists)
    assert diff("2.8", "2.9", lists=lists).notes == ("torch 2.9.1 starts on macOS 14.0 and newer, torch 2.8.0 on 13.0",)
    newest = diff("2.9", "2.99", lists=lists)
    assert any("which is newer than the op lists" in note for note in newest.notes)


def test_operators_that_compute_in_another_way_are_listed(lists: OpLists) -> None:
    """Reductions came to Metal in 2.13 (ReduceOps.mm, amax_kernel_mps); gelu with them (ActivationKernel.mm)."""
    routes = {change.name: change for change in diff("2.12", "2.13", lists=lists).routes}
    assert (routes["aten::amax"].before.route, routes["aten::amax"].after.route) == ("graph", "metal")
    assert "aten::native_batch_norm" not in routes
