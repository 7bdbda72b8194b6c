"""``opcheck gate``: all models of a project on all of its targets, and one exit code."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import click
from msgspec.structs import replace

from opcheck.capture.request import CaptureOptions, find_source, request_of
from opcheck.cli import config, streams
from opcheck.cli.options import (
    OutputOptions,
    ProgressOptions,
    Take,
    but,
    flag,
    formats,
    jobs,
    reuse,
    select_lists,
    verb,
)
from opcheck.common.errors import UsageError
from opcheck.common.text import plural
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import FALLBACK, NEWEST, NEWEST_KNOWN
from opcheck.features.gate import assemble
from opcheck.features.gate import gate_records as records
from opcheck.features.gate.assemble import MAX_SLOWDOWN, Baseline, Job, JobResult, read_cached
from opcheck.judge.policy import Policy
from opcheck.judge.rules import BY_ID
from opcheck.model.ignores import Ignores
from opcheck.model.options import RUNNER, Option
from opcheck.model.records import Record
from opcheck.render import WITHOUT_PAGE, render
from opcheck.report_cache import default_folder

#: The exit code that shells use after Ctrl-C.
_INTERRUPTED = 130
_MOST_JOBS = 4
_GIVEN_HERE = (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT)


class RunOptions(Record, frozen=True, kw_only=True):
    """Options that choose the targets of a run, and how it runs."""

    torch: Annotated[
        str | None,
        Option('torch releases instead of the configured targets: 2.13, ">=2.9", "last 3".', metavar="RANGE"),
    ] = None
    macos: Annotated[str | None, Option('macOS versions, likewise: 15, ">=14".', metavar="RANGE")] = None
    fallback: Annotated[bool, FALLBACK] = False
    newest_known: Annotated[bool, NEWEST_KNOWN] = False
    environment: Annotated[str, Option("Only targets with this environment.", metavar="NAME")] = ""
    baseline: Annotated[
        str, Option("File of known findings; only other findings fail.", metavar="FILE", action="reads")
    ] = ""
    max_slowdown: Annotated[float | None, MAX_SLOWDOWN] = None
    update_baseline: Annotated[bool, flag("Write the current findings to --baseline.")] = False
    jobs: Annotated[int, jobs("Number of models to audit in parallel.")] = min(_MOST_JOBS, os.cpu_count() or 1)
    cache: Annotated[bool, reuse("Reuse results of earlier runs.")] = True
    cache_dir: Annotated[
        str, Option("Folder of the cache.", metavar="FOLDER", default_text="the user's cache", action="writes")
    ] = ""


@verb("gate", table="", takes=RUNNER)
@click.argument("names", nargs=-1, metavar="[MODEL]...")
def command(
    *,
    names: Sequence[str],
    options: RunOptions,
    capture: Annotated[CaptureOptions, Take(lambda source: getattr(source.option, "scope", "") == "run", {})],
    base: Policy,
    output: Annotated[OutputOptions, but(format=formats(WITHOUT_PAGE))],
    progress: ProgressOptions,
) -> int:
    """Audit what is configured, write the report, return the exit code."""
    for context, purpose, is_set in (
        ("--update-baseline", "update", options.update_baseline),
        ("--max-slowdown", "compare with", options.max_slowdown is not None),
    ):
        if is_set and not options.baseline:
            hint = "name its file: --baseline opcheck-baseline.yaml"
            raise UsageError(f"there is no baseline to {purpose}", context=context, hint=hint)
    if not _own_targets():
        select_lists({"torch": _configured_releases()})
    lists = load()
    plan = _plan(names, options, lists)
    file = Path(options.baseline)
    is_new = not options.baseline or (options.update_baseline and not file.exists())
    known = None if is_new else assemble.read(file)

    whole = not (names or options.environment or _own_targets())
    every = [job for model in plan.models for job in _jobs(model, plan, capture, options, progress.verbose)]
    results, interrupted = _results(every, options.jobs, progress)
    base = replace(base, newest_known=options.newest_known)
    # The command line takes precedence over every table.
    fail_on, limits = base.fail_on if _is_given("fail_on") else "", base.limits if _is_given("limits") else {}
    policies = functools.partial(records.policy, base=base, over=Policy(fail_on=fail_on, limits=limits))

    about: dict[str, Any] = {"op_lists": lists.digest, "whole": whole, "max_slowdown": options.max_slowdown}

    def assemble_report(baseline: Baseline | None) -> records.GateReport:
        # The unused entries are determined for each report.
        ignores = Ignores([e for e in plan.ignores if e.rule in BY_ID], today=config.today(), root=Path.cwd())
        return assemble.report(plan, results, policies, ignores, baseline=baseline, **about)

    report = assemble_report(known)
    if options.update_baseline and not interrupted:
        known = assemble.update_baseline(known, report.cells, lists.digest, whole=whole)
        assemble.write(file, known)
        count = sum(map(len, known.models.values()))
        streams.note(f"{plural(count, 'finding')} known now, in {options.baseline}")
        report = assemble_report(known)
    name = output.chosen(WITHOUT_PAGE)
    output.put(render(report, name), written="the report is in")
    streams.step_summary(report, name)
    return _INTERRUPTED if interrupted else report.exit_code


def _plan(names: Sequence[str], options: RunOptions, lists: OpLists) -> records.GateSettings:
    """Return the models and targets that the user selected.

    Raises:
        UsageError: the configuration has a mistake, or there is no model.
    """
    tables, where = config.table(Path.cwd())
    forced = _own_targets()
    own = records.Targets(torch=options.torch or NEWEST, macos=options.macos or NEWEST, fallback=options.fallback)
    chosen = own if forced or not tables.get("targets") else None
    plan = records.settings(tables, where, lists, environment=options.environment, targets=chosen)
    return records.select_settings(plan, names, f"opcheck gate; {where}", on_every_target=forced)


def _configured_releases() -> tuple[str, ...]:
    """Return the texts of ``torch`` in the configured targets; what is no text is refused later."""
    tables = config.table(Path.cwd())[0].get("targets")
    listed = tables if isinstance(tables, list) else []
    named = [table.get("torch") for table in listed if isinstance(table, dict)]
    texts = (text for value in named for text in (value if isinstance(value, list) else [value]))
    return tuple(text for text in texts if isinstance(text, str))


def _own_targets() -> bool:
    """Return whether the command line or a variable names targets in place of the configured ones."""
    return any(_is_given(name) for name in ("torch", "macos", "fallback"))


def _is_given(name: str) -> bool:
    """Return whether a flag was set by the command line or a variable, not by the configuration."""
    return click.get_current_context().get_parameter_source(name) in _GIVEN_HERE


def _results(every: Sequence[Job], at_once: int, progress: ProgressOptions) -> tuple[dict[str, JobResult], bool]:
    """Audit the models; return their results by name, and whether the user interrupted the run."""
    results = {job.name: result for job in every if (result := read_cached(job)) is not None}
    jobs = [job for job in every if job.name not in results]
    interrupted = False
    with progress.shown() as show:

        def say(number: int, text: str) -> None:
            if show is not None:
                show(f"{len(results)} of {len(every)} models; {jobs[number].name}: {text}")

        def store_result(number: int, result: JobResult) -> None:
            results[jobs[number].name] = result
            say(number, result.failed.message if result.failed else "done")

        try:
            assemble.run(jobs, at_once, store_result, say)
        except KeyboardInterrupt:
            interrupted = True
    if not progress.quiet:
        _note_progress(results, interrupted=interrupted)
    return results, interrupted


def _note_progress(results: Mapping[str, JobResult], *, interrupted: bool) -> None:
    """Print on stderr what matters to the waiting user and does not belong in the report."""
    kept = sum(result.kept for result in results.values())
    if kept:
        total = sum(len(result.reports) for result in results.values())
        streams.note(f"{kept} of {total} results come from the cache: nothing has changed (--no-cache audits again)")
    for name, result in results.items():
        if result.not_kept:
            streams.note(f"{name} cannot be kept for the next run: {result.not_kept}")
    if interrupted:
        streams.note("interrupted: the report has the finished results")


def _jobs(
    model: records.GateModel, plan: records.GateSettings, capture: CaptureOptions, options: RunOptions, show: bool
) -> Iterator[Job]:
    """Yield a job for each combination of libraries that the model is audited with."""
    own = replace(capture, **model.pick_options(CaptureOptions))
    for name, planned in assemble.jobs_of(model, plan).items():
        yield Job(
            name=name,
            request=request_of(find_source(model.model, own), planned[0].target, own),
            targets=tuple(each.target for each in planned),
            libraries=planned[0].libraries,
            cache=str(options.cache_dir or default_folder()) if options.cache else "",
            show_output=show,
        )
