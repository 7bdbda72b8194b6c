"""The reasons why no statement quotes a text of the wheels, and what the lint says of open texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opcheck.data.statement_model import ErrorText, Statement
from opcheck.data.triage import is_quoted, lint_texts

_ROW = [None, None, None, [["2.13", None]]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "extracted").mkdir()
    texts = {"an open text of a check": _ROW, "a text with a reason": _ROW, "quoted by one": _ROW}
    content = {"schema": 1, "releases": ["2.13"], "texts": texts}
    (tmp_path / "extracted/texts.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def write(directory: Path, *texts: str) -> None:
    rows = "".join(f"      - {json.dumps(text)}\n" for text in texts)
    head = "schema: 1\nreasons:\n  - why: because\n    texts:\n"
    (directory / "texts.yaml").write_text(head + rows, encoding="utf-8")


def test_a_text_without_a_statement_and_a_reason_is_open(directory: Path) -> None:
    write(directory, "a text with a reason")
    error = ErrorText(type="RuntimeError", text="quoted by one {value}")
    statement = Statement(id="x", sort="limitation", ops=("aten::x",), effect="raises", error=error)
    problems = [problem.message for problem in lint_texts((statement,), directory)]
    assert problems == ["open, no statement and no reason: 'an open text of a check'"]


def test_a_reason_for_no_text_and_two_reasons_for_one_are_problems(directory: Path) -> None:
    everything = ("an open text of a check", "a text with a reason", "quoted by one")
    write(directory, *everything)
    assert list(lint_texts((), directory)) == []
    write(directory, *everything, "gone with a release")
    messages = [problem.message for problem in lint_texts((), directory)]
    assert messages == ["stands in no wheel: 'gone with a release'"]


@pytest.mark.parametrize(
    ("text", "piece", "quoted"),
    [
        ("the whole message of it", "whole message", True),
        ("whole message", "the whole message of it", True),
        (" of it", "the whole message of it", False),
        (" of it", "of it", True),
    ],
)
def test_a_short_text_is_quoted_only_as_a_whole(text: str, piece: str, *, quoted: bool) -> None:
    assert is_quoted(text, [piece]) == quoted
