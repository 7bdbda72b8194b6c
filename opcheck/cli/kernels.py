"""``opcheck kernels``: the Metal kernels of a released torch, listed, compared, and run here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opcheck.cli import VERBS, flags, output, output_formats
from opcheck.common.errors import UsageError

if TYPE_CHECKING:
    from opcheck.kernels.library import Library

#: Kernels that are shown with their arguments; of more the names, and of yet more the operations.
_IN_FULL, _MOST = 24, 400


@click.group("kernels", help=VERBS["kernels"])
def command() -> None:
    """Need a subcommand."""


@command.command(
    "list",
    short_help="Show the kernels of a release.",
    help="Show the kernels of a release: operation, dtypes and arguments.\n\n"
    "PATTERN is a kernel's name, with * and ?; without it the operations are shown.",
)
@flags.torch("Of this release, or a wheel's path.  [default: the newest list]")
@click.argument("pattern", default="")
def list_(*, torch: str | None, pattern: str) -> int:
    """Write the table."""
    from opcheck.kernels import catalogue, names
    from opcheck.render.answers import kernels

    library = _library(torch)
    found = names.matching(library.functions, pattern)
    if not found:
        raise UsageError(
            f"no kernel of torch {library.torch} is called that",
            context=pattern,
            hint=f"opcheck kernels list --torch {library.torch} shows the operations",
        )
    if not pattern or len(found) > _MOST:
        output.emit(kernels.operations(library, found))
    else:
        read = catalogue.entries(library, pattern)
        output.emit(kernels.listed(library, read, in_full=len(read) <= _IN_FULL))
    return 0


@command.command(
    "diff",
    short_help="Show which kernels two releases do not share.",
    help="Show the kernels that are new in a release, gone, or of other code.\n\n"
    "PATTERN is a kernel's name, with * and ?.",
)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.argument("pattern", default="")
@flags.quiet()
def diff(*, old: str, new: str, pattern: str, quiet: bool) -> int:
    """Write what differs."""
    from opcheck.kernels import catalogue
    from opcheck.render.answers import kernels

    first, second = _library(old), _library(new)
    with output.progress(quiet=quiet, verbose=False) as progress:
        found = catalogue.changes(first, second, pattern, progress)
    output.emit(kernels.changed(first, second, found))
    return 0


def _library(torch: str | None) -> Library:
    """The library of a release, as it is written on the command line."""
    from opcheck.cli import parse_options
    from opcheck.data.registrations import load
    from opcheck.kernels import library

    if torch and torch.endswith(".whl"):
        return library.read(torch)
    lists = load()
    line = parse_options.release_of(torch, lists)
    return library.read(lists.release(str(line)).torch)


@command.command(
    "test",
    short_help="Run the kernels of a release on this CPU, and judge what they compute.",
    help="Run the kernels of a release on this CPU, and judge what they compute.\n\n"
    "PATTERN is a kernel's name, with * and ?. Kernels whose threads need each other take a C++ "
    "compiler. Exits with 1 if a result is wrong.",
)
@flags.torch("Of this release, or a wheel's path.  [default: the newest list]")
@click.argument("pattern", default="")
@flags.flag("--op", "operations", multiple=True, metavar="NAME", help="Only this operation.")
@flags.dtype
@flags.flag("--family", "of_families", multiple=True, metavar="NAME", help="Only this family.")
@flags.flag("--pointwise", is_flag=True, help="Only the unary, binary and ternary families.")
@flags.jobs(None, "Processes at once.  [default: one a core]")
@output_formats.format_flag
@flags.output("Write the report there; a name that ends in .parquet gets one row a kernel.")
@flags.quiet()
def test(
    *,
    torch: str | None,
    pattern: str,
    operations: tuple[str, ...],
    dtype: str | None,
    of_families: tuple[str, ...],
    pointwise: bool,
    jobs: int | None,
    format_name: str | None,
    output_path: str,
    quiet: bool,
) -> int:
    """Run them, and write what came of it."""
    import os

    from opcheck.common.names import parse_dtype
    from opcheck.kernels import air, families, parent
    from opcheck.render.answers import kernel_runs

    air.binding()
    library = _library(torch)
    with output.progress(quiet=quiet, verbose=False) as progress:
        found = parent.run(
            library,
            operations=operations,
            of_families=(*of_families, *(families.POINTWISE if pointwise else ())),
            dtype=parse_dtype(dtype) if dtype else "",
            pattern=pattern,
            jobs=jobs or os.cpu_count() or 1,
            progress=progress,
        )
    if not found.outcomes:
        raise UsageError(
            f"no kernel of torch {library.torch} is asked for",
            context="opcheck kernels test",
            hint=f"opcheck kernels list --torch {library.torch} shows the operations",
        )
    if output_path.endswith(".parquet"):
        _write_table(kernel_runs.rows(found), output_path)
        output_path = ""
    output_formats.deliver(found, kernel_runs.document, format_name, output_path)
    return 1 if any(outcome.verdict == "wrong" for outcome in found.outcomes) else 0


def _write_table(rows: dict[str, list[object]], path: str) -> None:
    """Write a Parquet file.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise UsageError(
            "writing Parquet needs pyarrow, which is not installed",
            context=path,
            hint="pip install 'opcheck[sweep]', or name another format with --format",
        ) from error
    pq.write_table(pa.table(rows), path)
