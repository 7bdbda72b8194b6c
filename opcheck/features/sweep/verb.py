"""``opcheck sweep MODELS``: whole libraries over many targets; ``opcheck sweep report FOLDER``: what came out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from opcheck.capture.request import MODES, MOST_MEMORY, CaptureOptions, seconds
from opcheck.cli import streams
from opcheck.cli.helps import HelpGroup, group
from opcheck.cli.options import OutputOptions, ProgressOptions, but, conclusive, formats, jobs, only, verb
from opcheck.common.errors import UsageError
from opcheck.common.sanitize import for_stderr, one_line
from opcheck.common.text import plural
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import load
from opcheck.data.targets import FALLBACK, NEWEST_KNOWN, pairs
from opcheck.judge.policy import COULD_NOT_TELL, PASSED
from opcheck.model.options import Option
from opcheck.model.records import Record

if TYPE_CHECKING:
    from opcheck.features.sweep.sweep_engine import Progress, Tell

#: Where joblib runs the work.  Its backends that return no generator cannot be here: results are kept as they come, and
#: ray's (ray 2.60, util/joblib/ray_backend.py) returns a list at the end, and nothing if a worker dies.
BACKENDS = ("local", "dask")
#: The packages of the extra, and the backend that needs each; empty: all of them.
_NEEDED = {"joblib": "", "pyarrow": "", "distributed": "dask"}


class _SweepGroup(HelpGroup):
    """A click group whose first word may be a model, which is then swept."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a subcommand as click does; any other word is a model."""
        return super().resolve_command(ctx, args if args and args[0] in self.commands else ["models", *args])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments as click does; flags of a sweep may come before its models."""
        if args and args[0] not in self.commands and args[0] not in {"--help", "-h"}:
            args = ["models", *args]
        return super().parse_args(ctx, args)


@group("sweep", _SweepGroup)
def command() -> None:
    """The group itself does nothing."""


class SweepOptions(Record, frozen=True, kw_only=True):
    """Options that choose the targets of a sweep, and how it runs."""

    torch: Annotated[tuple[str, ...], Option('Releases: 2.13, ">=2.9", "last 3", all.', metavar="RANGE")] = ("all",)
    macos: Annotated[tuple[str, ...], Option("macOS versions, likewise.", metavar="RANGE")] = ("newest",)
    fallback: Annotated[bool, FALLBACK] = False
    newest_known: Annotated[bool, NEWEST_KNOWN] = False
    modes: Annotated[tuple[Mode, ...], Option("Repeatable.", "mode", choices=MODES)] = MODES
    folder: Annotated[str, Option("Folder of the results.", metavar="FOLDER", action="writes")] = "sweep"
    fresh: Annotated[bool, Option("Delete earlier results in the folder.")] = False
    small: Annotated[bool, Option("Use fewer layers and experts in library models.", negative="--as-is")] = True
    jobs: Annotated[int | None, jobs("Parallel processes.  [default: one per core]")] = None
    backend: Annotated[str, Option("Where joblib runs the work.", choices=BACKENDS)] = "local"
    scheduler: Annotated[str, Option("Scheduler of the cluster: tcp://host:8786.", metavar="ADDRESS")] = ""
    time_limit: Annotated[float, seconds("Time limit per model and mode.", 120.0)] = 120.0
    memory_limit: Annotated[float, Option("Memory limit per model.", metavar="GB", above=0, most=MOST_MEMORY)] = 4.0


@verb("models", parent=command)
@click.argument("models", nargs=-1, required=True)
def sweep_models(
    *,
    models: tuple[str, ...],
    options: SweepOptions,
    capture: Annotated[CaptureOptions, only("exact")],
    progress: Annotated[ProgressOptions, but(verbose="Print a line on stderr for each model.")],
) -> int:
    """Sweep, write the tables, say where they are; exit with 3 where no call of any model has a verdict."""
    _needs(options.backend, options.scheduler)
    lists = load()
    asked = pairs(options.torch, options.macos, lists=lists, cpu_fallback=options.fallback)
    for text in asked.left_out if progress.verbose else ():
        streams.note(f"left out: {text}")

    from opcheck.capture.exact import interpreter
    from opcheck.features.sweep import sweep_folder
    from opcheck.features.sweep.models import models as named
    from opcheck.features.sweep.sweep_engine import Engine, plan, sweep

    # A wrong list of models must leave no folder behind.
    chosen = named(models)
    modes = tuple(dict.fromkeys(options.modes))
    first = asked.targets[0]
    if capture.exact and any(target.torch != first.torch for target in asked.targets):
        problem = "a sweep in environments of their own runs one release at a time"
        hint = f"name one release: --torch {asked.targets[-1].torch}; each has a --folder of its own"
        raise UsageError(problem, context=f"--exact --torch {' '.join(options.torch)}", hint=hint)
    with sweep_folder.Folder(Path(options.folder), fresh=options.fresh) as place:
        todo = plan(
            chosen,
            asked.targets,
            modes,
            place,
            lists,
            small=options.small,
            timeout=options.time_limit,
            memory=options.memory_limit,
            fresh=options.fresh,
            interpreter=(lambda spec: interpreter(spec, first, streams.note)) if capture.exact else lambda _: "",
        )
        place.begin(todo.about)
        processes = options.jobs or os.cpu_count() or 1
        engine = Engine(options.backend, jobs=processes, scheduler=options.scheduler)
        try:
            with contextlib.closing(engine), _progress(progress) as tell:
                sweep(todo.tasks, place, engine, tell, before=todo.done)
        except KeyboardInterrupt:
            streams.note("stopped; finished results are kept, and the same command continues")
            raise
        counts = sweep_folder.write(place.path)
    swept = f"{plural(len(chosen), 'model')}, {plural(len(asked.targets), 'target')}, {' and '.join(modes)}"
    outcome = f"{plural(counts['verdicts'], 'verdict')}, {plural(counts['failures'], 'reason')} for none"
    tables = f"the tables are in {options.folder}; opcheck sweep report {options.folder} summarizes them"
    streams.emit(for_stderr(f"{swept}: {outcome}\n{tables}"))
    code = PASSED if counts["verdicts"] else COULD_NOT_TELL
    newer = next((target.beyond for target in asked.targets if target.beyond), "")
    return conclusive(code, options, beyond=newer)


_REPORT_FORMATS = ("markdown", "html")


@verb("report", parent=command)
@click.argument("folder", type=click.Path())
def report(*, folder: str, output: Annotated[OutputOptions, but(format=formats(_REPORT_FORMATS))]) -> int:
    """Write the report."""
    _needs("local", "")
    from opcheck.features.sweep.page import render

    output.put(render(Path(folder), output.chosen(_REPORT_FORMATS)))
    return 0


def _needs(backend: str, scheduler: str) -> None:
    needed = [name for name, needed_by in _NEEDED.items() if needed_by in {"", backend}]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        problem = f"a sweep needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed"
        hint = f"pip install 'opcheck[{'dask' if 'distributed' in missing else 'sweep'}]'"
        raise UsageError(problem, context="opcheck sweep", hint=hint)
    if backend == "dask" and not scheduler:
        hint = "--scheduler tcp://host:8786, as dask scheduler prints it"
        raise UsageError("the address of the scheduler is missing", context="--backend dask", hint=hint)


@contextlib.contextmanager
def _progress(options: ProgressOptions) -> Iterator[Tell]:
    """Show a bar with an estimate on a terminal, a line for each model with ``-v``, else only losses."""
    import sys

    if options.verbose or options.quiet or not sys.stderr.isatty():

        def tell_lines(news: Progress | str) -> None:
            if isinstance(news, str):
                streams.note(news)
            elif options.verbose:
                missing = news.without_verdict
                without = f": no verdict in {plural(missing, 'mode')}" if missing else ""
                streams.note(f"{news.done}/{news.total} {news.model}{without}")

        yield tell_lines
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    progress = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    columns = (*progress, TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True)) as bar:
        shown = bar.add_task("starting", total=None)

        def tell(news: Progress | str) -> None:
            if isinstance(news, str):
                bar.console.print(Text(for_stderr(news)))
            else:
                name = escape(one_line(news.model))
                bar.update(shown, completed=news.done, total=news.total, description=name)

        yield tell
