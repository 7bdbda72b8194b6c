"""The help of each verb: three examples that the command line takes, groups of options, short enough for a screen."""

from __future__ import annotations

import shlex

import click
import pytest

from opcheck.cli import invoke, opcheck
from opcheck.features import features

#: Lines of a terminal that shows a help whole.
MOST_LINES = 68


@pytest.mark.parametrize("verb", features())
def test_a_help_begins_with_three_examples_and_is_short(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["help", verb]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < MOST_LINES
    start = lines.index("Examples:")
    assert [line.split("  # ")[0].strip() for line in lines[start + 1 : start + 4]] == [*features()[verb].examples]
    assert start < next(n for n, line in enumerate(lines) if line.strip().startswith("-"))


@pytest.mark.parametrize("example", [line for each in features().values() for line in each.examples])
def test_the_command_line_takes_each_example(example: str) -> None:
    words = shlex.split(example.partition(" > ")[0])
    command: click.Command = opcheck
    context = click.Context(opcheck, info_name=words.pop(0))
    while isinstance(command, click.Group) and words:
        name, result, words = command.resolve_command(context, words)
        assert result is not None
        command = result
        context = click.Context(command, info_name=name, parent=context, **command.context_settings)
    words = ["--format=json" if word == "--json" else word for word in words]
    given, left, _ = command.make_parser(context).parse_args(words)
    assert left == []
    for parameter in command.params:
        value = given.get(parameter.name or "")
        assert not (parameter.required and value in (None, ())), parameter.name
        if isinstance(parameter.type, click.Choice) and value is not None:
            parameter.type.convert(value, parameter, context)


def test_options_stand_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "--help"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line[:1].isalpha() and line[-1] == ":"]
    assert titles == [
        "Examples:", "Target:", "Model and how it runs:", "Options:", "What fails:", "Output:",
    ]  # fmt: skip


def test_usual_short_forms_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for short, long in (
        (["op", "mm", "--json"], ["op", "mm", "-f", "json"]),
        (["op", "mm", "-f", "md"], ["op", "mm", "-f", "markdown"]),
        (["op", "mm", "-f", "yml"], ["op", "mm", "-f", "yaml"]),
        (["op", "mm", "--dtype", "bf16"], ["op", "mm", "--dtype", "bfloat16"]),
        (["explain", "102"], ["explain", "OC102"]),
        (["-V"], ["--version"]),
        (["help", "op"], ["op", "--help"]),
        (["help"], ["--help"]),
    ):
        outputs = []
        for words in (short, long):
            assert invoke(words) == 0, words
            outputs.append(capsys.readouterr().out)
        assert outputs[0] == outputs[1]
