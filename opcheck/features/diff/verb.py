"""``opcheck diff`` compares two releases, two reports, or two targets of one model."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

import click

from opcheck.capture.request import CaptureOptions, find_source, request_of
from opcheck.cli import streams
from opcheck.cli.audits import audit_on_targets
from opcheck.cli.options import (
    CAPTURE,
    COULD_NOT_TELL,
    SEVERITIES,
    OutputOptions,
    ProgressOptions,
    SectionOptions,
    conclusive,
    flag,
    only,
    verb,
)
from opcheck.common.errors import UsageError
from opcheck.common.files import is_file
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions, beyond
from opcheck.model.options import failing_on

if TYPE_CHECKING:
    from opcheck.judge.report_changes import Comparison

_REPORTS = {".json", ".yaml", ".yml"}


@verb("diff")
@click.argument("what", nargs=-1, required=True, metavar="(BEFORE AFTER | MODEL)")
def command(
    *,
    what: tuple[str, ...],
    before: Annotated[str | None, flag("With MODEL: torch=2.9,macos=14.", "from", metavar="TARGET")] = None,
    after: Annotated[str | None, flag("With MODEL: torch=2.13,macos=15,fallback=1.", "to", metavar="TARGET")] = None,
    target: Annotated[TargetOptions, only(macos="For two releases: only this macOS version.")],
    capture: Annotated[CaptureOptions, CAPTURE],
    fail_on: Annotated[
        str | None,
        failing_on(
            ("regressions", *SEVERITIES),
            ", where it is new; regressions: of two releases.  [default: error; of two releases never]",
        ),
    ] = None,
    progress: ProgressOptions,
    output: OutputOptions,
) -> int:
    """Write what differs; 1 where something new is at or above ``--fail-on``."""

    def usage_error(message: str) -> UsageError:
        return UsageError(message, context="opcheck diff", hint="opcheck diff --help shows all three")

    source = click.get_current_context().get_parameter_source("macos")
    sections = SectionOptions(verbose=progress.verbose)
    is_of_releases = len(what) == 2 and not (before or after or any(map(_is_report, what)))
    if source is click.core.ParameterSource.COMMANDLINE and not is_of_releases:
        raise usage_error("--macos is for two releases: a report has its own, --from and --to say it")
    if before or after:
        if len(what) != 1 or not (before and after):
            raise usage_error("--from and --to go together, with one MODEL")
        comparison, newer = _targets(what[0], (before, after), capture, progress)
    elif len(what) != 2:
        raise usage_error("give two releases or two reports, or one MODEL with --from and --to")
    elif not is_of_releases:
        from opcheck.judge.report_changes import Side, compare
        from opcheck.model.saved import read

        comparison, newer = compare(*(Side(path, read(path)) for path in what)), ""
    else:
        code = _releases((what[0], what[1]), target.macos, capture.dtype or None, fail_on, output, sections)
        newer = next(filter(None, (beyond(text, None, load()) for text in what)), "")
        return conclusive(code, target, beyond=newer)
    return conclusive(_deliver(comparison, fail_on or "error", output, sections), target, beyond=newer)


def _is_report(text: str) -> bool:
    return PurePath(text).suffix.lower() in _REPORTS or is_file(text)


def _targets(
    model: str, texts: tuple[str, str], capture: CaptureOptions, progress: ProgressOptions
) -> tuple[Comparison, str]:
    from opcheck.data import targets
    from opcheck.judge.report_changes import Side, compare

    lists = load()
    pair = [targets.parse(text, flag, lists) for text, flag in zip(texts, ("--from", "--to"), strict=True)]
    request = request_of(find_source(model, capture), pair[0], capture)
    reports = audit_on_targets(pair, request, lists, progress)
    sides = (Side(str(target), report) for report, target in zip(reports, pair, strict=True))
    return compare(*sides), next((target.beyond for target in pair if target.beyond), "")


def _deliver(comparison: Comparison, level: str, output: OutputOptions, sections: SectionOptions) -> int:
    from opcheck.features.diff import page
    from opcheck.judge.report_changes import worse

    if level == "regressions":
        hint = "of reports and targets: --fail-on error, warning, note or never"
        raise UsageError("regressions are those of two releases", context="--fail-on regressions", hint=hint)
    output.deliver(comparison, page.comparison_document, sections)
    for warning in comparison.warnings:
        streams.note(f"careful: {warning}")
    if not comparison.after["complete"]:
        return COULD_NOT_TELL
    return 1 if worse(comparison, level) else 0


def _releases(
    pair: tuple[str, str],
    macos: str | None,
    dtype: str | None,
    fail_on: str | None,
    output: OutputOptions,
    sections: SectionOptions,
) -> int:
    from opcheck.features.diff import page
    from opcheck.lookup.diff import REGRESSIONS, diff

    if fail_on not in {None, "regressions", "never"}:
        problem = f"two releases have no findings to be of severity {fail_on!r}"
        hint = "--fail-on regressions or never; of two reports: error, warning, note"
        raise UsageError(problem, context=f"--fail-on {fail_on}", hint=hint)
    answer = diff(*pair, macos, dtype)
    output.deliver(answer, page.document, sections)
    return 1 if any(answer.counts[name] for name in REGRESSIONS) and fail_on == "regressions" else 0
