"""Output streams: the report goes to stdout or a file, everything else to stderr."""

import contextlib
import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import click
import msgspec

from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.sanitize import for_stderr, one_line


def emit(text: str) -> None:
    """Write the report to stdout; a reader that stops early (``| head``) is no error.

    Raises:
        UsageError: it cannot be written: the disk is full.
    """
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        # A pipe has no encoding of its own, and the platform's may lack characters of the model's.
        encoding = out.encoding if out.isatty() else "utf-8"
        out.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        # Not click.echo: it would remove the colours of --color always.
        out.write(text if text.endswith("\n") else f"{text}\n")
        out.flush()
    except OSError as error:
        close()
        if not isinstance(error, BrokenPipeError):
            hint = "free some space, or write it elsewhere with --output"
            raise UsageError(f"cannot write the report: {error.strerror}", context="stdout", hint=hint) from error


def open_streams() -> None:
    """Open the standard streams that were closed when the process started.

    Python has None for them, and the next file that is opened takes their number: the pipe to a child, say.
    """
    # Stdout is opened for reading: what is written there is lost, and that is an error.
    modes = {"stdin": ("r", os.O_RDONLY), "stdout": ("w", os.O_RDONLY), "stderr": ("w", os.O_WRONLY)}
    for number, (name, (mode, flags)) in enumerate(modes.items()):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, closefd=False, encoding="utf-8"))


def close(stream: TextIO | None = None) -> None:
    """Redirect a stream (stdout) to the null device: Python flushes it again at exit and would complain then."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def close_full_stderr() -> None:
    """Close stderr where it cannot be written: Python's own flush at exit would change the exit code to 120."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        close(sys.stderr)


def note(text: str) -> None:
    """Write lines to stderr, sanitized for terminals and logs; a failure to write is ignored."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(for_stderr(text), err=True)


def note_report(text: str) -> None:
    """Write a rendered report to stderr unchanged, because it may have colours and annotations for GitHub."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def color_wanted(choice: str) -> bool:
    """Return whether stdout gets colour: by the flag, else on a terminal without NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stdout.isatty()


#: Fewer columns than this are taken for this many.
_FEWEST_COLUMNS = 40


def columns(most: int) -> int:
    """Return the columns of text on stdout: the terminal's, or those that COLUMNS gives a pipe; at most so many."""
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS")):
        return most
    return max(_FEWEST_COLUMNS, min(shutil.get_terminal_size((most, 24)).columns, most))


def step_summary(record: msgspec.Struct, format_name: str) -> None:
    """Append a report to the step's summary if this is a step of GitHub Actions and the format fits.

    Raises:
        UsageError: the file that GITHUB_STEP_SUMMARY names cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if format_name != "github" or not path:
        return
    from opcheck.render import step_summary as render

    # Opening a pipe without a reader would wait for a reader, and so would a write that is never read.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)
    text = f"{render(record)}\n".encode("utf-8", "backslashreplace")
    problem, where = "cannot write the step's summary", f"GITHUB_STEP_SUMMARY={path}"
    errors, hint = (OSError, ValueError), "unset the variable outside of GitHub Actions"  # ValueError: a null character
    with (
        explain_errors(errors, problem, context=where, hint=hint),
        os.fdopen(os.open(path, flags, 0o666), "ab") as file,
    ):
        file.write(text)


#: Seconds between two lines of progress in a log.
_BETWEEN_LINES = 10


@contextlib.contextmanager
def progress(*, quiet: bool, verbose: bool, redirected: bool = False) -> Iterator[Callable[[str], None] | None]:
    """Show the messages of a long run: a spinner on a terminal, lines with ``-v``.

    Args:
        quiet: show nothing.
        verbose: show every message as a line.
        redirected: show a line every ten seconds where stderr is no terminal.
    """
    if quiet:
        yield None
    elif verbose:
        yield note
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status("starting") as status:
            # Not a plain string: rich would read [red] and [/] in it as markup.
            yield lambda text: status.update(Text(one_line(text)))
    else:
        yield throttle(note, _BETWEEN_LINES) if redirected else None


def throttle(show: Callable[[str], None], seconds: float) -> Callable[[str], None]:
    """Return a function that passes on one message in so many seconds, the first after as many."""
    shown_at = time.monotonic()

    def pass_on(message: str) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at > seconds:
            shown_at = time.monotonic()
            show(message)

    return pass_on
