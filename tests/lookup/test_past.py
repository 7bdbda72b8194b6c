from __future__ import annotations

import pytest

from opcheck.lookup.answer_records import State, find_since, first_native

LINES = ("2.11", "2.12", "2.13", "2.14")
STATES = {
    "n": State(status="native", kind=None),
    "e": State(status="fallback", kind="env"),
    "u": State(status="unknown", kind=None),
}


@pytest.mark.parametrize(
    ("past", "when", "first"),
    [
        ("nnnn", "2.11", "2.11"),
        ("eenn", "2.13", "2.13"),
        ("nenn", "2.13", "2.11"),
        (" nnn", "2.12", "2.12"),
        ("uunn", "≤2.13", "≤2.13"),
        ("uuuu", "2.11", None),
        ("unne", "2.14", "≤2.12"),
        ("eeee", "2.11", None),
    ],
)
def test_since_when(past: str, when: str, first: str | None) -> None:
    states = {line: STATES[letter] for line, letter in zip(LINES, past, strict=True) if letter != " "}
    assert find_since(states, LINES) == when
    assert first_native(states, LINES) == first
