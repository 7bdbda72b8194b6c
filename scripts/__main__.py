"""``python -m scripts``: the work of a release, the pages, the benchmarks and the trials, each as one command.

    python -m scripts release 2.16.0     what a new torch release needs, up to what a person must review
    python -m scripts refresh [PAGE ...] the pages of reports/ and docs/ that commands write
    python -m scripts bench [NAME ...]   the benchmarks, as ratios within one run
    python -m scripts trial [NAME ...]   the scan and its fixes on public programs: trial ports -- --copies DIR

``--check`` writes nothing and exits with 1 where something is stale, ``--list`` shows the steps; words after ``--`` go
to the commands.  ``steps.yaml`` declares the steps.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from scripts.steps import Runner, StepError, order, read_steps, summary

_RELEASE = re.compile(r"\d+\.\d+\.\d+")


@click.group(epilog="Words after -- go to the commands; scripts/steps.yaml declares the steps.")
def scripts() -> None:
    """Do the work of a release, write the pages, run the benchmarks and the trials."""


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--list", "listed", is_flag=True, help="Show the steps and whether each is up to date."),
        click.option("--again", is_flag=True, help="Run also what is up to date."),
        click.option("--check", is_flag=True, help="Write nothing; exit with 1 where something is stale."),
    ):
        command = option(command)
    return command


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of steps, and the words after ``--``, which click hands over together."""
    rest = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    return list(words[: len(words) - len(rest)]), rest


def _run(entry: str, words: Sequence[str], values: dict[str, str], **flags: Any) -> None:
    """Run the steps of an entry that ``words`` name, or all, and exit with the code that they deserve."""
    entries = read_steps()
    steps = entries[entry] | (entries["refresh"] if entry == "release" else {})
    names, rest = _split(words)
    if unknown := [name for name in names if name not in steps]:
        raise click.UsageError(f"no such step: {unknown[0]}; {entry} has {', '.join(steps)}")
    try:
        wanted = [name for name in order(steps) if not names or name in names]
    except StepError as error:
        raise click.ClickException(str(error)) from error
    runner = Runner(steps, values)
    if flags["listed"]:
        for name in wanted:
            click.echo(f"{'up to date' if runner.is_current(name) else 'to run':10}  {name}: {steps[name].run}")
        return
    if flags["check"]:
        outcomes = runner.check(wanted)
        sys.exit(any(outcome.state in {"stale", "failed"} for outcome in outcomes))
    outcomes = runner.run(wanted, rest, again=flags["again"])
    click.echo(summary(outcomes, len(wanted)))
    sys.exit(any(outcome.state == "failed" for outcome in outcomes))


@scripts.command()
@click.argument("release")
@click.argument("steps", nargs=-1)
@_flags
def release(release: str, steps: tuple[str, ...], **flags: Any) -> None:
    """Build all that a torch RELEASE, such as 2.16.0, needs; then refresh the pages."""
    if not _RELEASE.fullmatch(release):
        raise click.UsageError(f"{release!r} is no release: write it as 2.16.0")
    _run("release", steps, {"release": release, "line": release.rpartition(".")[0]}, **flags)


def _add(entry: str, text: str) -> None:
    @scripts.command(entry, help=text)
    @click.argument("steps", nargs=-1)
    @_flags
    def command(steps: tuple[str, ...], **flags: Any) -> None:
        _run(entry, steps, {}, **flags)


_add("refresh", "Write the pages of reports/ and docs/ that commands make.")
_add("bench", "Run the benchmarks; each prints ratios within one run.")
_add("trial", "Try the scan and its fixes on public programs: trial ports -- --copies DIR.")

if __name__ == "__main__":
    scripts(prog_name="python -m scripts")
