"""Where text goes: the report to stdout or a file, everything else to stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator

import click


def emit(text: str) -> None:
    """Write the report to stdout; a reader that stops early (``| head``) is no error."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and not out.isatty():
        # A pipe has no encoding of its own, and the platform's may lack characters of the model's.
        out.reconfigure(encoding="utf-8")
    try:
        # Not click.echo: it would take out the colours that --color always asked for.
        out.write(text if text.endswith("\n") else f"{text}\n")
        out.flush()
    except BrokenPipeError:
        # Python flushes stdout again when it exits, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def note(text: str) -> None:
    """Write one line to stderr."""
    click.echo(text, err=True)


def color_wanted(choice: str) -> bool:
    """Whether stdout gets colour: as said, else on a terminal without NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return (
        not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()
    )


@contextlib.contextmanager
def progress(*, quiet: bool, verbose: bool) -> Iterator[Callable[[str], None] | None]:
    """What takes the messages of a long run: a spinner on a terminal, lines with ``-v``."""
    if quiet:
        yield None
    elif verbose:
        yield note
    elif sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415  (only where it is seen)

        with Console(stderr=True).status("starting") as status:
            yield status.update
    else:
        yield None
