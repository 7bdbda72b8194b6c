"""``opcheck lists``: what the verdicts are read from, and how it is built."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click

from opcheck.cli import streams
from opcheck.cli.helps import group
from opcheck.cli.options import ProgressOptions, flag, only, verb
from opcheck.common.errors import UsageError
from opcheck.common.sanitize import for_stderr
from opcheck.common.text import and_more, plural
from opcheck.data import built_lists
from opcheck.data.registrations import NIGHTLY, OpLists, data_directory, load, shipped_directory

_Directory = Annotated[Path | None, flag("The op lists.  [default: opcheck's own]", "directory", metavar="FOLDER")]


@group("lists", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Show the table when no subcommand is given."""
    if ctx.invoked_subcommand is None:
        streams.emit(_table(load()))
    return 0


@verb("info", parent=command)
def info() -> int:
    """Write the table."""
    streams.emit(_table(load()))
    return 0


@verb("lint", parent=command)
def lint(*, directory: _Directory = None) -> int:
    """Check them."""
    from opcheck.data.lint import lint as check

    streams.emit(f"{plural(check(directory), 'statement')}: no problem")
    return 0


@verb("merge", parent=command)
@click.argument("proposal", type=click.Path(path_type=Path), metavar="FILE")
def merge(
    *,
    proposal: Path,
    apply: Annotated[bool, flag("Write the change instead of showing it.")] = False,
    directory: _Directory = None,
) -> int:
    """Show what they change, or write it."""
    from opcheck.data import merging

    directory = directory or data_directory()
    reviewed = merging.review(proposal, directory)
    streams.emit(for_stderr(reviewed.diff.rstrip("\n")))
    statements = plural(len(reviewed.added), "statement")
    if apply:
        merging.apply(reviewed, directory)
        streams.note(f"{statements} merged; move each to the file of its area, and end the statements that it replaces")
    else:
        would = f"{statements} would be merged"
        streams.note(f"{would}, and the lint finds no problem: --apply writes it")
    return 0


@verb("build", parent=command)
@click.argument("sources", metavar="[SOURCE...]", nargs=-1)
def build(
    *,
    sources: tuple[str, ...],
    wheels: Annotated[
        tuple[Path, ...], flag("macOS wheel of any torch, a nightly too. Repeatable.", "wheel", metavar="FILE")
    ] = (),
    directory: _Directory = None,
    cache: Annotated[Path | None, flag("Folder of downloaded wheels.", metavar="FOLDER")] = None,
    progress: Annotated[ProgressOptions, only("quiet")],
) -> int:
    """Read each wheel in turn."""
    with built_lists.require_readers("opcheck lists build"):
        from opcheck.data.wheels import archive, extension, release
    if not sources and not wheels:
        hint = "name a release such as 2.15.0, the word nightly, or --wheel FILE"
        raise UsageError("no wheel to read", context="opcheck lists build", hint=hint)
    directory, cache = directory or data_directory(), cache or archive.default_cache()
    if NIGHTLY in sources:
        wheels = (*wheels, archive.obtain_nightly(cache))
        sources = tuple(source for source in sources if source != NIGHTLY)
    for wheel in wheels:
        with progress.shown() as say:
            if say is not None:
                say(f"reading {wheel.name}")
            about = built_lists.build_lists(wheel)
        streams.emit("\n".join(_summary(about)))
    for source in sources:
        with progress.shown() as say:
            if say is not None:
                say(f"reading the wheel of {source}, which is downloaded if the cache lacks it")
            if extension.is_extension(source):
                added = extension.build_extension(source, directory, cache)
                built = f"{added.library} {added.release.version}"
                changed = added.changed
            else:
                done = release.build(source, directory, cache)
                built, changed = f"torch {done.release.torch}", done.changed
        streams.note(f"{built}: changed {', '.join(changed) or 'nothing'}")
    return 0


#: Operators that a summary names.
_NAMED = 8


def _summary(about: built_lists.BuiltLists) -> Iterator[str]:
    """Yield what the wheel changes in the registrations of the release that it follows."""
    built = load(built_lists.folder() / about.torch)
    before = load(shipped_directory())
    carried = next(each.line for each in before.releases if each.torch == about.carried)
    now, old = built.kernels(about.line), before.kernels(carried)
    yield f"torch {about.torch}: {len(now)} registrations for MPS, {about.carried} has {len(old)}"
    for word, names in (("gained", now - old), ("lost", old - now)):
        if names:
            yield f"  {word}   {and_more(sorted(names), _NAMED)}"
    yield f"  statements are those of {about.carried}; the kernels: opcheck kernels diff {about.carried} {about.torch}"
    yield f"  next     opcheck audit MODEL --torch {about.torch}"


def _table(lists: OpLists) -> str:
    columns = ("torch", "built", "macOS", "overloads", "MPS", "sparse", "autocast", "always CPU")
    rows: list[tuple[str, ...]] = [columns]
    for release in lists.releases:
        counts = release.counts
        sparse = counts.sparse_mps + counts.sparse_csr_mps
        numbers = (counts.overloads, counts.aten_mps, sparse, counts.autocast_mps)
        cells = (*numbers, counts.always_fallback)
        about = (release.torch, release.built.isoformat(), f"{release.minimum_macos}+")
        rows.append((*about, *map(str, cells)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    newest = f"the newest wheel was built on {lists.releases[-1].built}"
    return "\n".join([*lines, "", f"digest {lists.digest}; {newest}"])
