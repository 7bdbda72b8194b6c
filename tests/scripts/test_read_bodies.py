"""Bodies that the libraries of the wheels show: what is kept of them, and what is left unknown."""

from __future__ import annotations

from opcheck.data import composites
from opcheck.data.registrations import data_directory, load
from opcheck.lookup.plain_call import OperatorLookup, target
from scripts.opinfo.earlier import why_unknown, written_bodies
from scripts.read_bodies import bodies
from scripts.schema_bodies import unknown


def test_a_body_is_kept_without_what_only_other_layouts_lead_to() -> None:
    calls: dict[str, tuple[str, ...]] = {"aten::dot.out": ("aten::dot", "aten::to_sparse", "aten::no_such_operator")}
    read = bodies("2.13", calls, load())
    assert read["aten::dot.out"] == ([], ["aten::dot"])
    assert "aten::vdot.out" not in read, "a body without calls may do nothing but raise"


def test_a_written_entry_wins_over_the_library() -> None:
    read = bodies("2.13", {"aten::_convolution": ("aten::narrow",)}, load())
    assert read["aten::_convolution"] == (["aten::convolution"], [])


def test_every_unknown_composite_has_a_reason_in_every_release() -> None:
    lists, without = load(), []
    for release in lists.releases:
        for op in unknown(release.line, composites.run_body):
            known = composites.body(op, release.line) is not None
            if not known and not why_unknown(op, data_directory()):
                without.append((release.line, op))
    assert without == []


def test_every_written_entry_names_an_operator() -> None:
    names = set(load().names())
    assert [e.ops for e in written_bodies(data_directory()) if not any(map(e.covers, names))] == []


def test_at_most_two_percent_of_a_release_are_unknown() -> None:
    lookup = OperatorLookup(load())
    for line in ("1.13", "2.15"):
        ops, aim = lookup.lists.operators(line), target(line, "26.0")
        left = [op for op in ops if lookup.state(op, aim, "float32").status == "unknown"]
        assert 0 < len(left) <= 0.02 * len(ops)
