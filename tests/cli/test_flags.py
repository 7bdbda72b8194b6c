"""What the flags of several verbs have in common, whichever verb has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from opcheck.cli import invoke, opcheck
from opcheck.common.errors import UsageError
from opcheck.features import features

#: The parameters that mean the same in each verb.
SHARED = (
    "format",
    "path",
    "quiet",
    "verbose",
    "color",
    "torch",
    "macos",
    "fallback",
    "fail_on",
    "strict",
    "time_limit",
    "jobs",
)


def commands(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from commands(command)


def flags() -> dict[str, list[click.Option]]:
    result: dict[str, list[click.Option]] = defaultdict(list)
    for command in commands(opcheck):
        for param in command.params:
            if isinstance(param, click.Option):
                result[str(param.name)].append(param)
    return result


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_flag_is_spelled_the_same_and_has_its_variable(name: str) -> None:
    result = flags()[name]
    assert len(result) > 1
    assert len({tuple(item.opts) for item in result}) == 1
    long = max(result[0].opts, key=len)
    variable = f"OPCHECK_{long.removeprefix('--').replace('-', '_').upper()}"
    assert {item.envvar for item in result} == {variable}


def test_each_flag_has_a_help() -> None:
    assert not [item.opts for flag in flags().values() for item in flag if not item.help]


def test_each_verb_is_in_one_group_and_has_its_module() -> None:
    modules = {import_module(f"opcheck.features.{verb.replace('-', '_')}.verb") for verb in features()}
    assert len(modules) == len(features())


@pytest.mark.parametrize("verb", ["compile m.py:net", "probe --device cpu", "sweep m.py:net"])
def test_no_time_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*verb.split(), "--timeout", "0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "the timeout must be more than nothing",
        "  in: --timeout",
        f"  help: try {60 if verb.startswith('probe') else 120}",
    ]


def test_an_output_that_cannot_be_a_file_is_said_before_the_work_whichever_verb_has_it(tmp_path: Path) -> None:
    for option in flags()["path"]:
        context = click.Context(click.Command("verb"))
        assert option.process_value(context, "") == ""
        assert option.process_value(context, "-") == "-"
        for wrong in (tmp_path, tmp_path / "missing" / "report.json"):
            with pytest.raises(UsageError, match="cannot write the report"):
                option.process_value(context, str(wrong))


def test_the_folder_of_the_wheels_does_not_set_the_flag_of_the_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = opcheck.get_command(click.Context(opcheck), "audit")
    assert command is not None
    monkeypatch.setenv("OPCHECK_CACHE", str(tmp_path))
    assert command.make_context("audit", ["m.py:Net"]).params["cache"] is True
    monkeypatch.setenv("OPCHECK_REUSE", "0")
    assert command.make_context("audit", ["m.py:Net"]).params["cache"] is False
