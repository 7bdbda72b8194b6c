"""Other names of operators, made of what lookup knows already."""

from __future__ import annotations

from opcheck.data.registrations import OpLists
from opcheck.lookup.answer_words import aliases


def test_a_composite_and_a_usual_word_stand_for_the_operator_that_they_call(lists: OpLists) -> None:
    names = aliases(lists.names(), lists.releases[-1].line)
    assert {"concat", "concatenate"} <= {*names["aten::cat"]}
    assert "clip" in names["aten::clamp"]
    assert "dense" in names["aten::linear"]
    assert "non maximum suppression" not in names.get("aten::linear", ())


def test_a_name_that_calls_several_operators_stands_for_none(lists: OpLists) -> None:
    names = aliases(lists.names(), lists.releases[-1].line)
    assert not any("lu" in known for known in names.values())


def test_what_the_name_itself_holds_is_left_out_so_that_pages_stay_small(lists: OpLists) -> None:
    names = aliases(lists.names(), lists.releases[-1].line)
    assert "aten::gelu" not in names
    assert all(names.values())
    assert sum(len(name) for known in names.values() for name in known) < 10_000


def test_only_the_operators_of_the_page_have_names(lists: OpLists) -> None:
    assert [*aliases(["aten::cat", "aten::sin"], lists.releases[-1].line)] == ["aten::cat"]
