"""The smallest upgrade."""

from __future__ import annotations

from opcheck.common.versions import Span, Version
from opcheck.judge.target_change import VersionChange, smallest_change
from tests.made import call, make_lists, make_statement, make_target

MM = (call("aten::mm"),)


def test_a_newer_macos_comes_before_a_newer_torch() -> None:
    until = make_statement("old", macos=Span(until=Version(26)))
    lists = make_lists(statements=(until,))
    assert smallest_change(MM, make_target("2.12"), lists) == VersionChange(macos="26.0")
    assert str(VersionChange(macos="26.0")) == "macOS 26"


def test_the_first_release_that_runs_every_call() -> None:
    lists = make_lists({"aten::new": {"2.12": "cpu_only", "2.13": "cpu_only", "2.14": "kernel"}})
    assert smallest_change((*MM, call("aten::new")), make_target("2.12"), lists) == VersionChange(torch="2.14")
    assert smallest_change((call("aten::new"),), make_target("2.13"), lists) == VersionChange(torch="2.14")


def test_both_where_neither_alone_is_enough() -> None:
    by_torch = make_statement("by-torch", torch=Span(until=Version(2, 14)))
    by_macos = make_statement("by-macos", macos=Span(until=Version(26)))
    lists = make_lists(statements=(by_torch, by_macos))
    result = smallest_change(MM, make_target("2.12"), lists)
    assert str(result) == "torch 2.14 on macOS 26"


def test_none_where_no_target_helps() -> None:
    assert smallest_change((), make_target("2.12"), make_lists()) is None
    lists = make_lists(statements=(make_statement("always"),))
    assert smallest_change(MM, make_target("2.12"), lists) is None
    refused = call("aten::relu", refusal=("device_mismatch", "two devices"))
    assert smallest_change((refused,), make_target("2.12"), make_lists()) is None
