"""``opcheck audit MODEL``: what each operator call of a model does on the target Mac."""

import contextlib
import time as clock
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import click
from msgspec.structs import replace

from opcheck.capture.request import CaptureOptions, find_source, request_of
from opcheck.cli import config, streams
from opcheck.cli.options import ProgressOptions, ReportOptions, flag, reuse, verb
from opcheck.common.errors import CaptureError, OpcheckError, UsageError
from opcheck.common.text import plural
from opcheck.data.macs import ALL_MACS, MACS, MacOptions
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions
from opcheck.judge.memory.limits import DimensionRange, parse_range
from opcheck.judge.policy import FINDINGS, PASSED, Policy, judge_report
from opcheck.judge.timing.estimates import TIME, chips_of, with_time
from opcheck.model.ignores import Ignores
from opcheck.model.options import RUNNER, Option
from opcheck.model.records import Record, Report
from opcheck.worker.dependency_tracking import Dependencies
from opcheck.worker.protocol import ProcessDisplay


class MemoryQuestions(Record, frozen=True, kw_only=True):
    """Questions about memory that go beyond the estimate."""

    vary: Annotated[tuple[str, ...], flag("The largest batch=1..64 that runs. Repeatable.", metavar="NAME=RANGE")] = ()
    plan: Annotated[bool, flag("The smallest change that fits the Mac.")] = False

    def ranges(self, mac: MacOptions) -> tuple[DimensionRange, ...]:
        """Return the ranges that are asked for.

        Raises:
            UsageError: a range cannot be read, or the questions do not go together.
        """
        ranges = tuple(map(parse_range, self.vary))
        if self.plan and (self.vary or not mac.decisive_memory()):
            context = "--plan --vary" if self.vary else "--plan"
            hint = 'name the Mac, and audit the ranges of --vary alone: --plan --mac "M4 Pro 24 GB"'
            raise UsageError("--plan needs a named Mac, and takes no --vary", context=context, hint=hint)
        return ranges


@verb("audit", table="", takes=RUNNER)
@click.argument("model")
def command(
    *,
    model: str,
    target: TargetOptions,
    capture: CaptureOptions,
    mac: MacOptions,
    memory_questions: MemoryQuestions,
    time: Annotated[bool, TIME] = False,
    cache: Annotated[bool, reuse("Reuse reports until the model changes.")] = True,
    watch: Annotated[bool, flag("Audit again when the model's files change.")] = False,
    verify: Annotated[bool, Option("On a Mac: also run the model there, and compare.", action="runs")] = False,
    policy: Policy,
    output: ReportOptions,
    progress: ProgressOptions,
) -> int:
    """Audit the model, write the report, return the exit code."""
    from opcheck import orchestrator
    from opcheck.cli import verification
    from opcheck.report_cache import Cache

    memory = mac.decisive_memory()
    chips = chips_of(mac, time=time)
    macs = [each.memory for each in MACS.load().macs] if mac.mac == ALL_MACS else []
    parts = {"memory": mac.mac == ALL_MACS, "time": len(chips) > 1}
    output = replace(output, show=(*output.show, *(part for part, is_shown in parts.items() if is_shown)))
    if verify:
        target = verification.target_here(target)
    ignores = config.ignores(Path.cwd())
    kept = Cache(orchestrator.folder()) if cache else None
    read = Dependencies()

    ranges = memory_questions.ranges(mac)

    def remember(seen: Dependencies) -> None:
        nonlocal read
        read = seen

    def once() -> int:
        lists = load()
        request = request_of(find_source(model, capture), target.target(lists), capture)
        reused = False
        with progress.shown() as say:
            display = ProcessDisplay(say, progress.verbose)
            if memory_questions.plan:
                report = orchestrator.audit_plan(request, lists, mac=memory, display=display)
            elif ranges:
                report = orchestrator.audit_limits(request, lists, ranges, mac=memory, macs=macs, display=display)
            else:
                audit = orchestrator.audit_or_reuse(
                    request, lists, cache=kept, mac=memory, display=display, failed=remember
                )
                remember(audit.read)
                report, reused = audit.report, audit.kept
        if reused and not progress.quiet:
            streams.note("nothing has changed since this was audited (--no-cache audits it again)")
        return deliver(report)

    def deliver(result: Report) -> int:
        findings = ignores.mark_ignored(result.findings, model=model)
        report = replace(result, findings=findings, newest=not target.torch)
        report = with_time(report, chips, load())
        allowed = replace(policy, newest_known=target.newest_known)
        code = _deliver(report, ignores, allowed, output, progress)
        if verify:
            code = max(code, verification.compared_here(report, model, target, capture, progress))
        return code

    return _watch(once, model, lambda: read) if watch else once()


def _watch(once: Callable[[], int], model: str, read: Callable[[], Dependencies]) -> int:
    """Audit, and again after each change, until the user interrupts; return the last exit code."""
    code = 0
    try:
        while True:
            try:
                code = once()
            except OpcheckError as error:
                streams.note(str(error))
                code = error.exit_code
            streams.note(f"watching what {model} reads; interrupt to end")
            changed = next(changes(read(), model))
            streams.note(f"{changed} changed")
    except KeyboardInterrupt:
        return code


def _deliver(report: Report, ignores: Ignores, policy: Policy, output: ReportOptions, progress: ProgressOptions) -> int:
    """Write the report and its warnings; return the exit code."""
    output.deliver_report(report, full=progress.verbose)
    if not report.capture.complete and not output.is_text_on_stdout:
        problem = report.problems[-1]
        context = " ".join(filter(None, (report.model, problem.line)))
        hint = "the report has only the calls before this error; later calls were not judged"
        streams.note(str(CaptureError(problem.message, context=context, hint=hint)))
    for expired in ignores.list_expired():
        streams.note(expired)
    judgement = judge_report(report, policy)
    if policy.limits and judgement.code == FINDINGS:
        streams.note(f"fails: {'; '.join(judgement.reasons)}")
    unknown = report.totals["unknown"]
    if judgement.code == PASSED and unknown:
        nothing = f"nothing is known about {'it' if unknown == 1 else 'them'} (--strict makes that exit with 3)"
        streams.note(f"this result does not vouch for {plural(unknown, 'call')}: {nothing}")
    return judgement.code


#: Seconds between two looks at the files of a model that is watched.
_LOOK = 0.3


def changes(read: Dependencies, model: str) -> Iterator[str]:
    """Wait for changes of the files that an audit has read; yield the name of the first that changed, each time.

    Args:
        read: what the audit has read.
        model: its name; its file counts too.
    """
    paths = [Path(name) for kind, name, _ in read.seen if kind != "environment"]
    file = Path(model.partition(":")[0])
    with contextlib.suppress(OSError, ValueError):
        paths += [file] if file.exists() else []
    before = {path: _state(path) for path in paths}
    while True:
        clock.sleep(_LOOK)
        for path in paths:
            now = _state(path)
            if now != before[path]:
                before[path] = now
                yield path.name
                break


def _state(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        result = path.stat()
        return result.st_mtime_ns, result.st_size
    return None
