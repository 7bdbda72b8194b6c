"""What the flags of several verbs have in common, whichever verb has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from opcheck.cli import VERBS, opcheck, run

#: The parameters that mean the same in each verb.
SHARED = (
    "format_name",
    "output_path",
    "quiet",
    "verbose",
    "color",
    "torch",
    "macos",
    "fallback",
    "fail_on",
    "strict",
    "timeout",
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
    found: dict[str, list[click.Option]] = defaultdict(list)
    for command in commands(opcheck):
        for one in command.params:
            if isinstance(one, click.Option):
                found[str(one.name)].append(one)
    return found


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_flag_is_spelled_the_same_and_has_its_variable(name: str) -> None:
    found = flags()[name]
    assert len(found) > 1
    assert len({tuple(one.opts) for one in found}) == 1
    long = max(found[0].opts, key=len)
    variable = f"OPCHECK_{long.removeprefix('--').replace('-', '_').upper()}"
    assert {one.envvar for one in found} == {variable}


def test_each_flag_has_a_help() -> None:
    assert not [one.opts for found in flags().values() for one in found if not one.help]


def test_each_verb_is_in_one_group_and_has_its_module() -> None:
    modules = {import_module(f"opcheck.cli.{verb.replace('run', 'program')}") for verb in VERBS}
    assert len(modules) == len(VERBS)


@pytest.mark.parametrize("verb", ["compile m.py:net", "probe --device cpu", "sweep m.py:net"])
def test_no_time_is_refused(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb.split(), "--timeout", "0"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "the timeout must be more than nothing",
        "  in: --timeout",
        f"  help: try {60 if verb.startswith('probe') else 120}",
    ]
