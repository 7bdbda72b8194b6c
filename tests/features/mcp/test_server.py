"""The server of ``opcheck mcp``, driven by the client of the protocol's own SDK over the standard streams."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import anyio
from mcp import Client, StdioServerParameters, stdio_client

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
QUESTIONS: list[dict[str, Any]] = yaml.safe_load((HERE / "questions.yaml").read_text())
AUDITS = [question for question in QUESTIONS if question["tool"] == "audit"]
LOOK_UPS = [question for question in QUESTIONS if question["tool"] != "audit"]
#: Characters that a token of these answers has at least: Claude's tokenizer makes 2.85 to 3.5 of each.
CHARACTERS = 2.85


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(HERE / "train.txt", folder / "train.py")
    return folder


def ask(project: Path, questions: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Ask a new server these questions in turn."""

    async def main() -> list[Any]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "opcheck", "mcp", "--folder", str(project)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        async with Client(stdio_client(server)) as client:
            return [await client.call_tool(name, arguments) for name, arguments in questions]

    return anyio.run(main)


def at(value: Any, path: str) -> Iterator[Any]:
    """Yield the values at a path, which runs through lists."""
    key, _, rest = path.partition(".")
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict) and key in entry:
            yield from at(entry[key], rest) if rest else [entry[key]]


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for entry in value:
            yield from leaves(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from leaves(entry)
    elif isinstance(value, str):
        yield value


def check(project: Path, questions: list[dict[str, Any]]) -> list[str]:
    """Check each answer's facts, and that the command line states them, too; return the answers' texts."""
    answers = ask(project, [(each["tool"], each["arguments"]) for each in questions])
    for question, answer in zip(questions, answers, strict=True):
        assert not answer.is_error, answer.content[0].text
        content = json.loads(answer.content[0].text)
        assert answer.structured_content == content
        for path, expected in question["facts"].items():
            values = [*at(content, path)]
            if path in {"text", "note"}:
                assert expected in values[0], question["question"]
            else:
                assert expected in values, (question["question"], values)
        assert_same_facts(content, question["command"], project)
    return [answer.content[0].text for answer in answers]


def assert_same_facts(content: dict[str, Any], command: list[str], project: Path) -> None:
    is_text = "text" in content
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", *command, *([] if is_text else ["--json"])],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert content["exit_code"] == done.returncode
    if is_text:
        assert content["text"] == done.stdout
        return
    full = {*leaves(json.loads(done.stdout)), *done.stderr.splitlines()}
    names = {name for text in leaves(content.pop("dtypes", {})) for name in text.split(", ")}
    assert names <= {key for entry in [json.loads(done.stdout)] for key in entry.get("dtypes", {})} | {*full}
    for text in leaves(content):
        cut = text.removesuffix("...")
        assert any(line == text or (cut != text and line.startswith(cut)) for line in full), text


def test_porting_questions_are_answered_with_the_facts_of_the_command_line(project: Path) -> None:
    texts = check(project, LOOK_UPS)
    assert statistics.median(len(text) / CHARACTERS for text in texts) <= 400
    assert max(len(text) for text in texts) / CHARACTERS <= 600


@pytest.mark.slow
def test_questions_about_models_are_answered_with_the_facts_of_the_command_line(project: Path) -> None:
    texts = check(project, AUDITS)
    assert statistics.median(len(text) / CHARACTERS for text in texts) <= 450


def test_there_are_twelve_questions_for_all_tools() -> None:
    assert len(QUESTIONS) == 12
    assert {question["tool"] for question in QUESTIONS} == {"op", "scan", "fix", "explain", "audit"}


def test_a_tool_that_only_reads_leaves_the_files_and_fix_writes_when_it_may(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\nx = torch.ones(2).cuda()\n")
    before = program.read_text()
    arguments = {"paths": ["train.py"], "unsafe": True}
    shown, applied, after = ask(
        tmp_path, [("fix", arguments), ("fix", {**arguments, "apply": True}), ("scan", {"paths": ["train.py"]})]
    )
    assert "-x = torch.ones(2).cuda()" in shown.structured_content["text"]
    assert program.read_text() != before
    assert applied.structured_content["exit_code"] == 0
    assert after.structured_content["exit_code"] == 0


#: a question -> a part of the answer
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("op", {"query": "nosuchoperator"}, "no release in the lists has an operator"),
    ("op", {"query": "isin", "torch": "new"}, "'new'"),
    ("scan", {"paths": ["--fix"]}, "no such file or directory: --fix"),
    ("explain", {"code": "--help"}, "unknown finding"),
    ("audit", {"model": "--output=x"}, "not a model"),
]
#: a query -> why no process takes it; each system has its own limit
NOT_TAKEN = {"a\0b": "embedded null byte"} | (
    {"a" * 3_000_000: "Argument list too long"} if sys.platform == "linux" else {}
)


class Refused(NamedTuple):
    """What one server answered, and its folder: the answers to BAD, and the two that follow on each of NOT_TAKEN."""

    folder: Path
    bad: list[Any]
    not_taken: list[Any]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Refused:
    folder = tmp_path_factory.mktemp("refused")
    questions = [(tool, arguments) for tool, arguments, _ in BAD]
    answers = ask(folder, questions + [("op", {"query": asked}) for query in NOT_TAKEN for asked in (query, "add")])
    return Refused(folder, answers[: len(BAD)], answers[len(BAD) :])


@pytest.mark.parametrize("number", range(len(BAD)), ids=[f"{tool}-{line}" for tool, _, line in BAD])
def test_bad_input_is_an_error_of_the_tool_in_three_lines(refused: Refused, number: int) -> None:
    answer = refused.bad[number]
    assert answer.is_error
    text = answer.content[0].text
    assert BAD[number][-1] in text
    assert len(text.splitlines()) <= 3
    assert [*refused.folder.iterdir()] == []


@pytest.mark.parametrize("number", range(len(NOT_TAKEN)), ids=NOT_TAKEN.values())
def test_an_argument_that_no_process_takes_is_an_error_of_the_tool(refused: Refused, number: int) -> None:
    refusal, answered = refused.not_taken[2 * number : 2 * number + 2]
    assert refusal.is_error
    text = refusal.content[0].text
    assert text.startswith("opcheck op cannot take these arguments: ")
    assert [*NOT_TAKEN.values()][number] in text
    assert not answered.is_error
