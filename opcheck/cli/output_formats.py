"""How a verb writes what it found: in which format, and where to."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from opcheck.cli import flags, output
from opcheck.common.files import write_text
from opcheck.model.records import Report
from opcheck.render import ANSWERS, FORMATS, format_of, render, write
from opcheck.render.document import Document

_Record = TypeVar("_Record", bound=msgspec.Struct)

#: The exit code where nothing is known: unknown never passes for an answer.
COULD_NOT_TELL = 3

#: ``--format`` of what every answer can be written as.
format_flag = flags.form(ANSWERS)


def chosen(format_name: str | None, output_path: str, names: Iterable[str]) -> str:
    """The format: as said, else by the file's suffix, else the first."""
    by_suffix = format_of(output_path)
    return format_name or (by_suffix if by_suffix in {*names} else None) or next(iter(names))


def deliver(
    record: _Record,
    document: Callable[[_Record], Document],
    format_name: str | None,
    output_path: str,
) -> None:
    """Write an answer to stdout or the file.

    Raises:
        UsageError: the file cannot be written.
    """
    name = chosen(format_name, output_path, ANSWERS)
    text = write(record, document(record) if name in {"text", "markdown"} else (), name)
    put(text, output_path)


def put(text: str, output_path: str) -> None:
    """Write a text to stdout or the file.

    Raises:
        UsageError: the file cannot be written.
    """
    if output_path in flags.STDOUT:
        output.emit(text)
    else:
        write_text(Path(output_path), text)
        output.note(f"written to {output_path}")


def deliver_report(
    report: Report, format_name: str | None, output_path: str, *, color: str, full: bool
) -> None:
    """Write the report of an audit to stdout or the file, and to the summary of a step in CI.

    Raises:
        UsageError: the file cannot be written.
    """
    name = chosen(format_name, output_path, FORMATS)
    if output_path in flags.STDOUT:
        output.emit(shown(report, name, color=color, full=full))
    else:
        write_text(Path(output_path), render(report, name))
        output.note(f"{report.headline}; the report is in {output_path}")
    output.step_summary(report, name)


def shown(report: Report, name: str, *, color: str, full: bool) -> str:
    """The report as it is shown: the text as wide as the terminal, and coloured as ``--color`` says."""
    if name != "text":
        return render(report, name)
    from opcheck.render.report import document
    from opcheck.render.text import WIDTH, as_text

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    return as_text(document(report), color=output.color_wanted(color), width=width, full=full)
