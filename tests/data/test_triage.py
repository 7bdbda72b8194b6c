"""The reasons why no statement quotes a text of the wheels, and what the lint says of open texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opcheck.common.versions import Span, Version
from opcheck.data.lint import is_quoted, lint_texts
from opcheck.data.statement_model import ErrorText, Statement

FILE = "aten/src/ATen/native/mps/operations/Made.mm"
#: In the releases of the fixture: from 2.13 on.
ALL = [["2.13", None]]


def place(function: str | None) -> list[object]:
    return [FILE, function, 1, ALL]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "extracted").mkdir()
    content = {
        "schema": 1,
        "releases": ["2.13", "2.14"],
        "texts": {
            "an open text of a check": [place(None)],
            "a text with a reason": [place(None)],
            "quoted by one": [place(None)],
        },
        "operators": {},
    }
    write_lists(tmp_path, content)
    return tmp_path


def write_lists(directory: Path, content: object) -> None:
    (directory / "extracted/texts.json").write_text(json.dumps(content), encoding="utf-8")


def write(directory: Path, *texts: object) -> None:
    rows = "".join(f"      - {json.dumps(text)}\n" for text in texts)
    head = "schema: 1\nreasons:\n  - why: because\n    texts:\n"
    (directory / "texts.yaml").write_text(head + rows, encoding="utf-8")


def quoting(text: str, *ops: str, since: str | None = None) -> Statement:
    return Statement(
        id="x",
        sort="limitation",
        ops=ops,
        effect="raises",
        torch=Span(since=Version.parse(since)) if since else Span(),
        error=ErrorText(type="RuntimeError", text=text),
    )


def messages(directory: Path, *statements: Statement) -> list[str]:
    return [problem.message for problem in lint_texts(statements, directory)]


def test_a_text_without_a_statement_and_a_reason_is_open(directory: Path) -> None:
    write(directory, "a text with a reason")
    assert messages(directory, quoting("quoted by one {value}", "aten::x")) == [
        "open, no statement and no reason: 'an open text of a check' in None, torch 2.13, 2.14"
    ]


def test_a_reason_for_no_text_and_two_reasons_for_one_are_problems(directory: Path) -> None:
    everything = ("an open text of a check", "a text with a reason", "quoted by one")
    write(directory, *everything)
    assert messages(directory) == []
    write(directory, *everything, "gone with a release")
    assert messages(directory) == ["is in no wheel, or elsewhere: 'gone with a release'"]
    write(directory, *everything, "quoted by one")
    assert messages(directory) == ["listed 2 times: 'quoted by one'"]


def test_a_text_of_two_functions_needs_a_statement_or_a_reason_for_each(directory: Path) -> None:
    content = {
        "schema": 1,
        "releases": ["2.13", "2.14"],
        "texts": {"a text that two functions print": [place("f"), place("g")]},
        "operators": {"f": [["2.13", "aten::x"]], "g": [["2.13", "aten::y"]]},
    }
    write_lists(directory, content)
    text, statement = "a text that two functions print", quoting("that two functions", "aten::x")
    open_in = f"open, no statement and no reason: {text!r} in"
    both = "torch 2.13, 2.14"
    assert messages(directory) == [f"{open_in} f, {both}", f"{open_in} g, {both}"]
    assert messages(directory, statement) == [f"{open_in} g, {both}"]
    write(directory, {"text": text, "functions": ["g"]})
    assert messages(directory, statement) == []
    write(directory, text)
    assert messages(directory, statement) == [f"{open_in} g, {both}", f"is in no wheel, or elsewhere: {text!r}"]


def test_a_statement_accounts_for_a_text_only_in_its_releases_and_for_its_operators(
    directory: Path, tmp_path: Path
) -> None:
    content = {
        "schema": 1,
        "releases": ["2.13", "2.14"],
        "texts": {"a text of two releases": [place("f")]},
        "operators": {"f": [["2.13", "aten::x aten::y"]]},
    }
    write_lists(directory, content)
    text = "a text of two releases"
    assert messages(directory, quoting(text, "aten::x")) == []
    assert messages(directory, quoting(text, "aten::other")) != []
    assert messages(directory, quoting(text, "aten::y", since="2.14")) == [
        f"open, no statement and no reason: {text!r} in f, torch 2.13"
    ]
    later = tmp_path / "later"
    (later / "extracted").mkdir(parents=True)
    content["operators"] = {"f": [["2.14", "aten::y"]]}
    write_lists(later, content)
    assert messages(later, quoting(text, "aten::y", since="2.14")) == []


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
