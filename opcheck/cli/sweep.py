"""``opcheck sweep MODELS``: whole libraries over many targets; ``opcheck sweep report FOLDER``: what came out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opcheck.capture.request import MODES
from opcheck.cli import VERBS, flags, output, output_formats
from opcheck.cli.parse_options import MOST_MEMORY
from opcheck.common.errors import UsageError
from opcheck.common.sanitize import for_stderr, one_line
from opcheck.common.text import plural
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import load
from opcheck.data.target_ranges import pairs

if TYPE_CHECKING:
    from opcheck.project.sweep.run import Progress, Tell

#: Where joblib runs the work.  Its backends that return no generator cannot be here: results are kept as they come, and
#: ray's (ray 2.60, util/joblib/ray_backend.py) returns a list at the end, and nothing if a worker dies.
BACKENDS = ("local", "dask")
#: What the extra brings, and what it is for.
_NEEDED = {"joblib": "", "pyarrow": "", "distributed": "dask"}


class _Sweep(click.Group):
    """A group whose first word may be a model: then it is swept."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click's; what is no command of the group is a model."""
        if args and args[0] not in self.commands:
            args = ["models", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click's; flags of a sweep may stand before its models."""
        if args and args[0] not in self.commands and args[0] not in {"--help", "-h"}:
            args = ["models", *args]
        return super().parse_args(ctx, args)


@click.group(
    "sweep",
    cls=_Sweep,
    help=VERBS["sweep"],
    epilog="opcheck sweep MODELS... sweeps: opcheck sweep models --help lists the flags.",
)
def command() -> None:
    """The group itself does nothing."""


@command.command(
    "models",
    short_help="Sweep models over targets.",
    help="Sweep models over targets; what is finished is kept, and the same command goes on from there.",
    epilog="MODELS are as opcheck audit takes them, patterns such as transformers:Bert* or timm:*, or files "
    "(.txt, .yaml, .toml) that list them.",
)
@click.argument("models", nargs=-1, required=True)
@flags.flag(
    "--torch",
    multiple=True,
    default=("all",),
    metavar="RANGE",
    help='Releases: 2.13, ">=2.9", "last 3", all.',
)
@flags.flag(
    "--macos",
    multiple=True,
    default=("newest",),
    metavar="RANGE",
    help="macOS versions, in the same way.",
)
@flags.fallback
@flags.flag(
    "--mode", "modes", multiple=True, type=click.Choice(MODES), default=MODES, help="Repeatable."
)
@flags.flag("--folder", default="sweep", metavar="FOLDER", help="Where results are kept.")
@flags.flag("--fresh", is_flag=True, help="Forget what the folder holds.")
@flags.flag("--small/--as-is", default=True, help="Library models with fewer layers and experts.")
@flags.jobs(None, "Processes at once.  [default: one a core]")
@flags.flag(
    "--backend", type=click.Choice(BACKENDS), default="local", help="Where joblib runs the work."
)
@flags.flag(
    "--scheduler",
    default="",
    metavar="ADDRESS",
    help="Of the cluster: tcp://host:8786.",
)
@flags.timeout(120.0, "Time that a model may take in a mode.")
@flags.flag(
    "--memory-limit",
    type=click.FloatRange(0, MOST_MEMORY, min_open=True),
    default=4.0,
    metavar="GB",
    help="Memory that a model may take.",
)
@flags.quiet()
@flags.verbose("A line on stderr for each model.")
def sweep_models(
    *,
    models: Sequence[str],
    torch: Sequence[str],
    macos: Sequence[str],
    fallback: bool,
    modes: Sequence[Mode],
    folder: str,
    fresh: bool,
    small: bool,
    jobs: int | None,
    backend: str,
    scheduler: str,
    timeout: float,
    memory_limit: float,
    quiet: bool,
    verbose: bool,
) -> int:
    """Sweep, write the tables, say where they are."""
    _needs(backend, scheduler)
    lists = load()
    asked = pairs(torch, macos, lists=lists, cpu_fallback=fallback)
    for text in asked.left_out if verbose else ():
        output.note(f"left out: {text}")

    from opcheck.project.sweep import tables
    from opcheck.project.sweep.engine import Engine
    from opcheck.project.sweep.folder import Folder
    from opcheck.project.sweep.models import models as named
    from opcheck.project.sweep.plan import plan
    from opcheck.project.sweep.run import sweep

    # A list of models that is wrong leaves no folder behind.
    found = named(models)
    with Folder(Path(folder), fresh=fresh) as place:
        chosen = tuple(dict.fromkeys(modes))
        todo = plan(
            found,
            asked.targets,
            chosen,
            place,
            lists,
            small=small,
            timeout=timeout,
            memory=memory_limit,
            fresh=fresh,
        )
        place.begin(todo.about)
        engine = Engine(backend, jobs=jobs or os.cpu_count() or 1, scheduler=scheduler)
        try:
            with _progress(quiet=quiet, verbose=verbose) as tell:
                sweep(todo.tasks, place, engine, tell, before=todo.done)
        except KeyboardInterrupt:
            output.note(
                "stopped; what is finished is kept, and the same command goes on from there"
            )
            raise
        finally:
            engine.close()
        counts = tables.write(place.path)
    output.emit(
        for_stderr(
            f"{plural(len(found), 'model')}, {plural(len(asked.targets), 'target')}, {' and '.join(chosen)}: "
            f"{plural(counts['verdicts'], 'verdict')}, {plural(counts['failures'], 'reason')} for none\n"
            f"the tables are in {folder}; opcheck sweep report {folder} says what they come to"
        )
    )
    return 0


@command.command("report", help="Say what a sweep came to.")
@click.argument("folder", type=click.Path())
@flags.form(("markdown", "html"))
@flags.output()
def report(*, folder: str, format_name: str | None, output_path: str) -> int:
    """Write the report."""
    _needs("local", "")
    from opcheck.render.sweep_report import render

    name = output_formats.chosen(format_name, output_path, ("markdown", "html"))
    output_formats.put(render(Path(folder), name), output_path)
    return 0


def _needs(backend: str, scheduler: str) -> None:
    missing = [
        name for name, of in _NEEDED.items() if of in {"", backend} and find_spec(name) is None
    ]
    if missing:
        raise UsageError(
            f"a sweep needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            context="opcheck sweep",
            hint=f"pip install 'opcheck[{'dask' if 'distributed' in missing else 'sweep'}]'",
        )
    if backend == "dask" and not scheduler:
        raise UsageError(
            "the address of the scheduler is missing",
            context="--backend dask",
            hint="--scheduler tcp://host:8786, as dask scheduler prints it",
        )


@contextlib.contextmanager
def _progress(*, quiet: bool, verbose: bool) -> Iterator[Tell]:
    """A bar with an estimate on a terminal, a line for each model with ``-v``, else losses alone."""
    import sys

    if verbose or quiet or not sys.stderr.isatty():
        yield _lines(verbose=verbose)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.text import Text

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        shown = bar.add_task("starting", total=None)

        def tell(news: Progress | str) -> None:
            if isinstance(news, str):
                bar.console.print(Text(for_stderr(news)))
            else:
                bar.update(
                    shown,
                    completed=news.done,
                    total=news.of,
                    description=escape(one_line(news.model)),
                )

        yield tell


def _lines(*, verbose: bool) -> Callable[[Progress | str], None]:
    def tell(news: Progress | str) -> None:
        if isinstance(news, str):
            output.note(news)
        elif verbose:
            without = (
                f": no verdict in {plural(news.without_verdict, 'mode')}"
                if news.without_verdict
                else ""
            )
            output.note(f"{news.done}/{news.of} {news.model}{without}")

    return tell
