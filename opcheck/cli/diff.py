"""``opcheck diff``: of two releases, of two reports, or of two targets of one model."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from opcheck.cli import VERBS, capture_options, flags, output, output_formats
from opcheck.common.errors import UsageError
from opcheck.common.files import is_file

if TYPE_CHECKING:
    from opcheck.project.changes.records import Comparison

_REPORTS = {".json", ".yaml", ".yml"}


@click.command(
    "diff",
    help=VERBS["diff"],
    params=capture_options.borrowed(*capture_options.CAPTURING, *capture_options.SHOWING),
    epilog="BEFORE and AFTER are torch releases (2.9 2.15: every operator), or reports that opcheck audit wrote "
    "(old.json new.json: what is new, fixed, changed). With one MODEL, --from and --to are two targets that it "
    "is audited for: opcheck diff MODEL --from torch=2.9,macos=14 --to torch=2.13,macos=15. Of two releases, --macos and --dtype "
    "say for which macOS and dtype; the flags of a capture are those of opcheck audit.",
)
@click.argument("what", nargs=-1, required=True, metavar="(BEFORE AFTER | MODEL)")
@click.option("--from", "before", metavar="TARGET", help="With MODEL: torch=2.9,macos=14.")
@click.option("--to", "after", metavar="TARGET", help="With MODEL: torch=2.13,macos=15,fallback=1.")
@flags.macos("Of two releases: on this macOS only.")
@flags.fail_on(
    ("regressions", *flags.SEVERITIES),
    None,
    ", where it is new; regressions: of two releases.  [default: error; of two releases never]",
)
@output_formats.format_flag
@flags.output()
def command(
    *,
    what: tuple[str, ...],
    before: str | None,
    after: str | None,
    macos: str | None,
    fail_on: str | None,
    format_name: str | None,
    output_path: str,
    **captured: Any,
) -> int:
    """Write what differs; 1 where something new is at or above ``--fail-on``."""
    source = click.get_current_context().get_parameter_source("macos")
    is_of_releases = len(what) == 2 and not (before or after or any(map(_is_report, what)))
    if source is click.core.ParameterSource.COMMANDLINE and not is_of_releases:
        raise _misused("--macos is for two releases: a report has its own, --from and --to say it")
    if before or after:
        if len(what) != 1 or not (before and after):
            raise _misused("--from and --to go together, with one MODEL")
        comparison = _targets(what[0], before, after, captured)
    elif len(what) != 2:
        raise _misused("give two releases or two reports, or one MODEL with --from and --to")
    elif not is_of_releases:
        from opcheck.model.saved import read
        from opcheck.project.changes.compare import compare
        from opcheck.project.changes.records import side_of

        comparison = compare(*(side_of(read(path), path) for path in what))
    else:
        return _releases(
            what, macos, captured["dtype"] or None, fail_on, (format_name, output_path)
        )
    return _deliver(comparison, fail_on or "error", format_name, output_path)


def _is_report(text: str) -> bool:
    return PurePath(text).suffix.lower() in _REPORTS or is_file(text)


def _misused(message: str) -> UsageError:
    return UsageError(message, context="opcheck diff", hint="opcheck diff --help shows all three")


def _targets(model: str, before: str, after: str, captured: dict[str, Any]) -> Comparison:
    from opcheck.cli import parse_options, targets
    from opcheck.data.registrations import load
    from opcheck.project.changes.compare import compare
    from opcheck.project.changes.records import side_of

    lists = load()
    pair = targets.parse(before, "--from", lists), targets.parse(after, "--to", lists)
    shown = {name: captured.pop(name) for name in capture_options.SHOWING}
    request = parse_options.request_of(
        model, pair[0].torch, pair[0].macos, fallback=pair[0].cpu_fallback, **captured
    )
    made = targets.reports(request, pair, lists, **shown)
    return compare(*(side_of(report, str(aim)) for report, aim in zip(made, pair, strict=True)))


def _deliver(found: Comparison, level: str, format_name: str | None, output_path: str) -> int:
    from opcheck.project.changes.compare import worse
    from opcheck.render.answers import changes

    if level == "regressions":
        raise UsageError(
            "regressions are those of two releases",
            context="--fail-on regressions",
            hint="of reports and targets: --fail-on error, warning, note or never",
        )
    output_formats.deliver(found, changes.document, format_name, output_path)
    for warning in found.warnings:
        output.note(f"careful: {warning}")
    if not found.after["complete"]:
        return output_formats.COULD_NOT_TELL
    return 1 if worse(found, level) else 0


def _releases(
    pair: tuple[str, ...],
    macos: str | None,
    dtype: str | None,
    fail_on: str | None,
    where: tuple[str | None, str],
) -> int:
    from opcheck.lookup.diff import REGRESSIONS
    from opcheck.lookup.diff import diff as ask
    from opcheck.render.answers import diff

    if fail_on not in {None, "regressions", "never"}:
        raise UsageError(
            f"two releases have no findings to be of severity {fail_on!r}",
            context=f"--fail-on {fail_on}",
            hint="--fail-on regressions or never; of two reports: error, warning, note",
        )
    found = ask(pair[0], pair[1], macos, dtype)
    output_formats.deliver(found, diff.document, *where)
    worse = any(found.counts[name] for name in REGRESSIONS)
    return 1 if worse and fail_on == "regressions" else 0
