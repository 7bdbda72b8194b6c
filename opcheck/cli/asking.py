"""What the verbs that ask the op lists share: their flags, and where the answer goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, TypeVar

import click
import msgspec

from opcheck.cli import output
from opcheck.files import write_text
from opcheck.report.asked import FORMATS, write
from opcheck.report.asked.document import Document

_Record = TypeVar("_Record", bound=msgspec.Struct)
_Flag = Callable[[Callable[..., Any]], Callable[..., Any]]

#: The exit code where nothing is known: unknown never passes for an answer.
COULD_NOT_TELL = 3

_SUFFIXES = {
    ".txt": "text",
    ".md": "markdown",
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".csv": "csv",
    ".html": "html",
}

torch_flag = click.option(
    "--torch", metavar="RELEASE", envvar="OPCHECK_TORCH", help="Of this torch release only."
)
macos_flag = click.option(
    "--macos", metavar="VERSION", envvar="OPCHECK_MACOS", help="On this macOS only."
)
dtype_flag = click.option(
    "--dtype", metavar="DTYPE", envvar="OPCHECK_DTYPE", help="With tensors of this dtype."
)
output_flag = click.option(
    "--output",
    "-o",
    "output_path",
    default="",
    envvar="OPCHECK_OUTPUT",
    metavar="FILE",
    help="Write the answer there, not to stdout.",
)


def format_choice(names: tuple[str, ...]) -> _Flag:
    """``--format`` with these names, the first of which is the default."""
    return click.option(
        "--format",
        "-f",
        "format_name",
        type=click.Choice(names),
        envvar="OPCHECK_FORMAT",
        help=f"[default: by the suffix of --output, else {names[0]}]",
    )


format_flag = format_choice(FORMATS)


def chosen(format_name: str | None, output_path: str, names: tuple[str, ...]) -> str:
    """The format: as said, else by the file's suffix, else the first."""
    by_suffix = _SUFFIXES.get(PurePath(output_path).suffix.lower())
    return format_name or (by_suffix if by_suffix in names else None) or names[0]


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
    name = chosen(format_name, output_path, FORMATS)
    text = write(record, document(record) if name in {"text", "markdown"} else (), name)
    put(text, output_path)


def put(text: str, output_path: str) -> None:
    """Write a text to stdout or the file.

    Raises:
        UsageError: the file cannot be written.
    """
    if output_path in {"", "-"}:
        output.emit(text)
    else:
        write_text(Path(output_path), text)
        output.note(f"written to {output_path}")
