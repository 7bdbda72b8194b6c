"""``opcheck kernels``: the Metal kernels of a released torch, listed, compared, and run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec.structs import replace

from opcheck.capture.request import seconds
from opcheck.cli import streams
from opcheck.cli.helps import group
from opcheck.cli.options import DTYPE, OutputOptions, ProgressOptions, but, conclusive, jobs, only, verb
from opcheck.common.errors import UsageError, explain_missing
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions, beyond, release_note, release_of
from opcheck.model.options import Option
from opcheck.worker.platform import ENDED

if TYPE_CHECKING:
    from opcheck.kernels.kernel_records import KernelRun
    from opcheck.kernels.library import Library

#: Up to so many kernels are shown with arguments, and up to so many by name; of more only the operations.
_IN_FULL, _MOST = 24, 400

_Release = Annotated[TargetOptions, only(torch="torch release, or a wheel's path.  [default: the newest release]")]


@group("kernels")
def command() -> None:
    """Need a subcommand."""


@verb("list", parent=command)
@click.argument("pattern", default="")
def list_(*, pattern: str, target: _Release) -> int:
    """Write the table."""
    from opcheck.features.kernels import page
    from opcheck.kernels import kernel_names
    from opcheck.kernels.library import entries

    library = _library(target.torch)
    functions = kernel_names.matching(library.functions, pattern)
    if not functions:
        raise UsageError(
            f"no kernel of torch {library.torch} has this name",
            context=pattern,
            hint=f"opcheck kernels list --torch {library.torch} shows the operations",
        )
    if not pattern or len(functions) > _MOST:
        streams.emit(page.operations(library, functions))
    else:
        read = entries(library, pattern)
        streams.emit(page.list_kernels(library, read, in_full=len(read) <= _IN_FULL))
    return 0


@verb("diff", parent=command)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.argument("pattern", default="")
def diff(
    *,
    old: str,
    new: str,
    pattern: str,
    target: Annotated[TargetOptions, only("newest_known")],
    progress: Annotated[ProgressOptions, only("quiet")],
) -> int:
    """Write what differs."""
    from opcheck.features.kernels import page
    from opcheck.kernels.library import changes

    first, second = _library(old), _library(new)
    with progress.shown() as say:
        differing = changes(first, second, pattern, say)
    streams.emit(page.list_changes(first, second, differing))
    return conclusive(0, target, beyond=beyond(old, None, load()) or beyond(new, None, load()))


@verb("test", parent=command)
@click.argument("pattern", default="")
def run_kernels(
    *,
    pattern: str,
    target: _Release,
    operations: Annotated[tuple[str, ...], Option("Only this operation.", "op", metavar="NAME")] = (),
    dtype: Annotated[str | None, DTYPE] = None,
    of_families: Annotated[tuple[str, ...], Option("Only this family.", "family", metavar="NAME")] = (),
    pointwise: Annotated[bool, Option("Only the unary, binary and ternary families.")] = False,
    jobs: Annotated[int | None, jobs("Processes at once.  [default: one a core]")] = None,
    timeout: Annotated[float | None, seconds("Time limit of the run in seconds.", 600)] = None,
    output: Annotated[OutputOptions, but(path="Output file; a name that ends in .parquet gets a row per kernel.")],
    progress: Annotated[ProgressOptions, only("quiet")],
) -> int:
    """Run them, and write what came of it."""
    import os

    from opcheck.features.kernels import page
    from opcheck.kernels import kernel_names

    tested = _run(
        target.torch,
        progress,
        dtype,
        "opcheck kernels test",
        operations=operations,
        of_families=(*of_families, *(kernel_names.POINTWISE if pointwise else ())),
        pattern=pattern,
        jobs=jobs or os.cpu_count() or 1,
        timeout=timeout,
    )
    if output.path.endswith(".parquet"):
        _write_table(page.rows(tested), output.path)
        output = replace(output, path="")
    output.deliver(tested, page.document)
    if tested.ended:
        return ENDED.get(tested.ended, 3)
    return 1 if any(outcome.verdict == "wrong" for outcome in tested.outcomes) else 0


@verb("issue", parent=command)
@click.argument("operation")
def issue(
    *,
    operation: str,
    target: _Release,
    dtype: Annotated[str | None, DTYPE] = None,
    output: Annotated[OutputOptions, but(path="Output file.")],
    progress: Annotated[ProgressOptions, only("quiet")],
) -> int:
    """Write the text."""
    from opcheck.kernels import issue as issues

    tested = _run(target.torch, progress, dtype, operation, operations=(operation,), jobs=1)
    if tested.ended:
        return ENDED.get(tested.ended, 3)
    text = issues.text(tested, operation)
    if not text:
        streams.note(
            f"no result of {operation} in torch {tested.torch} is wrong and differs from the CPU's: there is nothing "
            "to report"
        )
        return 3
    output.put(text)
    streams.note(f"title: {issues.title(tested, operation)}")
    where = "https://github.com/pytorch/pytorch/issues"
    streams.note(f"goes to {where}; check for an existing issue first")
    return 0


def _run(torch: str | None, progress: ProgressOptions, dtype: str | None, request: str, **chosen: Any) -> KernelRun:
    """Run the chosen kernels of a release, as ``kernels.parent.run`` does.

    Raises:
        UsageError: no kernel fits the request.
    """
    from opcheck.common.names import parse_dtype
    from opcheck.kernels import air, kernel_child

    air.binding()
    library = _library(torch)
    library.check_compiled()
    with progress.shown() as say:
        tested = kernel_child.run(library, dtype=parse_dtype(dtype) if dtype else "", progress=say, **chosen)
    if tested.ended:
        missing = f"{tested.lacking:,} kernels were not run"
        streams.note(f"{tested.ended} ended the run: {missing}; the same command continues from there")
    elif not tested.outcomes:
        raise UsageError(
            f"torch {tested.torch} has no such kernel",
            context=request,
            hint=f"opcheck kernels list --torch {tested.torch} shows the operations",
        )
    return tested


def _library(torch: str | None) -> Library:
    """Return the kernel library of a release that is named on the command line."""
    from opcheck.kernels import library

    if torch and torch.endswith(".whl"):
        return library.read(torch)
    release = release_of(torch, load())
    if note := release_note(torch, release):
        streams.note(f"note: {note}")
    return library.read(release.torch)


def _write_table(rows: dict[str, list[object]], path: str) -> None:
    """Write a Parquet file.

    Raises:
        UsageError: pyarrow is not installed.
    """
    hint = "pip install 'opcheck[sweep]', or name another format with --format"
    with explain_missing("writing Parquet needs", "pyarrow", context=path, hint=hint):
        import pyarrow as pa
        import pyarrow.parquet as pq
    pq.write_table(pa.table(rows), path)
