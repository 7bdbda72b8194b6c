"""``opcheck scan PATH...``: the lines of a program that were written for CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from opcheck.cli import config, options, streams
from opcheck.cli.options import COULD_NOT_TELL, SEVERITIES, OutputOptions, but, flag, formats, list_failing, only, verb
from opcheck.common.errors import UsageError
from opcheck.common.files import rewrite, write_text
from opcheck.common.sanitize import is_patch_risky, one_line
from opcheck.common.text import plural
from opcheck.data.targets import TargetOptions
from opcheck.model.options import Option, failing_on
from opcheck.render import WITHOUT_PAGE, render, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opcheck.source.fixing import FileChange, Fixed


_NO_PATH = ("no path to read", "opcheck scan", 'give files or directories, or paths = ["src"] in [tool.opcheck.scan]')
_NO_BASELINE = ("there is no baseline to update", "--update-baseline", "name its file: --baseline FILE")
_NO_FIX = ("there is nothing to fix unsafely", "--unsafe-fixes", "add --diff to see the changes, or --fix to make them")


_EXCLUDE = Option("Leave out these files or folders: 'tests/*'. Repeatable.", metavar="PATTERN")
_SELECT = Option("Only this rule, or all rules with this prefix: OC21. Repeatable.", metavar="CODE")
_BASELINE = Option("Leave out the findings that this file lists.", metavar="FILE", action="reads")


@verb("scan", table="scan")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
def command(
    *,
    paths: tuple[str, ...],
    target: Annotated[TargetOptions, only("torch", "macos")],
    exclude: Annotated[tuple[str, ...], _EXCLUDE] = (),
    select: Annotated[tuple[str, ...], _SELECT] = (),
    baseline: Annotated[str, _BASELINE] = "",
    update_baseline: Annotated[bool, flag("Write all findings to that file.")] = False,
    fix: Annotated[bool, flag("Apply the safe fixes, and report the other findings.")] = False,
    diff: Annotated[bool, flag("Print what --fix would change, and write nothing.")] = False,
    unsafe_fixes: Annotated[bool, flag("Also make changes that a person must review; with --fix or --diff.")] = False,
    fail_on: Annotated[str, failing_on(SEVERITIES)] = "error",
    verbose: Annotated[bool, options.VERBOSE] = False,
    output: Annotated[OutputOptions, but(format=formats(WITHOUT_PAGE))],
) -> int:
    """Write the findings, file by file; 3 where a file could not be read and nothing else fails."""
    from opcheck.data.registrations import load
    from opcheck.features.scan import page
    from opcheck.source import baseline as known
    from opcheck.source.engine import Filters, scan
    from opcheck.source.fixing import fix as correct

    for is_missing, (message, context, hint) in (
        (not paths, _NO_PATH),
        (update_baseline and not baseline, _NO_BASELINE),
        (unsafe_fixes and not (fix or diff), _NO_FIX),
    ):
        if is_missing:
            raise UsageError(message, context=context, hint=hint)
    if update_baseline:
        known.check_replaceable(Path(baseline))
    filters = Filters(exclude, select, tuple(config.ignore_entries(Path.cwd())))
    chosen = list(paths), target.target(load()), filters
    fixed = correct(*chosen, unsafe=unsafe_fixes) if diff or fix else None
    if fixed and diff:
        return _show(fixed, output)
    is_whole = fixed is None or _write(fixed)
    report = scan(*chosen, silenced=fixed.silenced if fixed else ())
    if update_baseline:
        write_text(Path(baseline), known.text(report))
        streams.note(f"{plural(len(report.findings), 'finding')} in {baseline}")
    if baseline:
        report = known.remove_known(report, known.read(Path(baseline)))
    chosen_format = output.chosen(WITHOUT_PAGE)
    full = verbose and chosen_format == "text"
    output.put(write(report, page.document(report), "text") if full else render(report, chosen_format))
    for note in report.notes:
        streams.note(note)
    if fail_on == "never":
        return 0
    if any(report.totals[level] for level in list_failing(fail_on)):
        return 1
    return COULD_NOT_TELL if report.problems or not is_whole else 0


def _show(fixed: Fixed, output: OutputOptions) -> int:
    """Print the changes as a diff; 1 where there are any, as ``ruff check --diff``."""
    diffs = {change.path: change.diff() for change in fixed.changes}
    hidden = [path for path, diff in diffs.items() if is_patch_risky(diff)]
    if len(hidden) < len(diffs):
        output.put("".join(diff for path, diff in diffs.items() if path not in hidden))
    for path in hidden:
        streams.note(
            f"{one_line(path.as_posix())}: the change is not shown: its lines have control characters, or a command to "
            "a CI service (--fix makes it)"
        )
    _tell(fixed, "would be fixed", fixed.changes)
    if fixed.changes:
        return 1
    return COULD_NOT_TELL if fixed.problems else 0


def _write(fixed: Fixed) -> bool:
    """Write the changed files, each as a whole or not at all; return whether all could be fixed.

    Raises:
        UsageError: a new file that changed files import cannot be written; nothing was changed.
    """
    written, failures = [], []
    # New files first.
    for change in sorted(fixed.changes, key=lambda each: bool(each.before)):
        try:
            rewrite(change.path, *change.contents())
            written.append(change)
        except UsageError as error:
            if not change.before:
                raise
            failures.append(f"{change.path.as_posix()}: not fixed: {error}")
    _tell(fixed, "fixed", written)
    for failure in failures:
        streams.note(failure)
    return not fixed.problems and not failures


def _tell(fixed: Fixed, what: str, changes: Sequence[FileChange]) -> None:
    count = sum(change.corrected for change in changes)
    more = f"; {fixed.unsafe} more with --unsafe-fixes" if fixed.unsafe else ""
    streams.note(f"{plural(count, 'finding')} {what} in {plural(len(changes), 'file')}{more}")
    for problem in fixed.problems:
        streams.note(f"{problem.module}: {problem.message}")
