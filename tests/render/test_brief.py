"""What --brief leaves of the JSON of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opcheck.render.brief import BUDGET, brief


def shortened(content: dict[str, Any]) -> Any:
    return json.loads(brief(json.dumps(content)))


def test_empty_values_are_left_out_and_false_is_not() -> None:
    assert shortened({"a": None, "b": [], "c": "", "d": 0, "e": False, "f": {"g": {}}, "h": 1}) == {"e": False, "h": 1}


def test_states_by_name_are_turned_round() -> None:
    states = {name: {"status": "native", "kind": None} for name in ("f16", "f32", "i64")}
    states["f64"] = {"status": "unsupported", "kind": None}
    assert shortened({"dtypes": states})["dtypes"] == {"native": "f16, f32, i64", "unsupported": "f64"}


def test_a_list_that_is_cut_counts_what_it_has_lost() -> None:
    short = shortened({"findings": [{"message": "x" * 300} for _ in range(20)]})
    assert len(short["findings"]) + short["findings_left_out"] == 20
    assert short["findings"][0]["message"].endswith("...")
    assert len(json.dumps(short)) <= BUDGET


def test_a_document_keeps_the_keys_that_its_verb_declares() -> None:
    short = shortened(
        {"schema": "opcheck-op/1", "tool": "x", "status": "native", "overloads": [{"name": "a", "evidence": [1]}]}
    )
    assert short == {"status": "native", "overloads": [{"name": "a"}]}


@pytest.mark.parametrize("text", ["[1, 2]", "3", '"x"'])
def test_what_is_no_document_stays_as_it_is(text: str) -> None:
    assert brief(text) == text
