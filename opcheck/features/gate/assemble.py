"""Makes the gate's report of the jobs' results: applies ignores, baseline and policies to each cell."""

import collections
import functools
import itertools
import json
import math
import operator
import queue
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement

from opcheck.capture.request import CaptureRequest
from opcheck.common import tool
from opcheck.common.errors import OpcheckError
from opcheck.common.files import write_text
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.text import duration
from opcheck.common.versions import Target
from opcheck.common.vocabulary import SEVERITIES
from opcheck.common.yaml_text import dump
from opcheck.data.chips import CHIPS, FIT
from opcheck.data.registrations import load
from opcheck.features.gate import gate_records as records
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED, Judgement, Policy, judge_report, speaks_of_calls
from opcheck.judge.timing.estimates import estimate, middle
from opcheck.model.fingerprint import VERSION, read_baseline
from opcheck.model.ignores import Ignores
from opcheck.model.options import Option
from opcheck.model.records import Count, Finding, Record, Report
from opcheck.report_cache import Cache, dependencies
from opcheck.worker import environments
from opcheck.worker.protocol import ProcessDisplay
from opcheck.worker.worker import Worker, WorkerError

#: The chip whose estimates are compared: the ratio of two estimates hardly depends on it.
CHIP = "M4"
#: A growth that is reported without a limit.
_NOTED = 1.25

MAX_SLOWDOWN = Option(
    "Fail where launches or estimated time grow beyond so many times the baseline.", metavar="FACTOR", above=1
)


class Cost(Record, frozen=True, kw_only=True):
    """The whole run of a model on a target."""

    launches: Count
    waits: Count
    seconds: Annotated[float, msgspec.Meta(ge=0, description=f"the middle of the estimate for {CHIP}")]


def cost_of(report: Report) -> Cost | None:
    """Return the cost of a report's run; None: its calls were not kept, or it broke off.

    Raises:
        OpListError: a list is damaged.
    """
    gpus, parameters = CHIPS.load().chips[CHIP].gpus, FIT.load().parameters
    parts = [estimate(work, CHIP, gpus, parameters) for work in report.workloads]
    if not parts:
        return None
    launches, waits = sum(part.launches for part in parts), sum(part.waits for part in parts)
    return Cost(launches=launches, waits=waits, seconds=float(f"{sum(map(middle, parts)):.3g}"))


def compare_costs(before: Cost | None, after: Cost | None, most: float | None) -> tuple[str, ...]:
    """Return what has compare_costs beyond a limit, in words: ``3.1 times more launches than the baseline``.

    Args:
        before: when the baseline was written.
        after: now.
        most: the factor that is allowed; None: a quarter more is reported.
    """
    if before is None or after is None:
        return ()
    limit = _NOTED if most is None else most
    words = {
        "launches": f"launches than the baseline ({before.launches:,} then, {after.launches:,} now)",
        "waits": f"waits for the GPU than the baseline ({before.waits:,} then, {after.waits:,} now)",
        "seconds": f"estimated time than the baseline (about {_on_chip(before)} then, {_on_chip(after)} now on {CHIP})",
    }
    return tuple(
        f"{ratio:.1f} times more {text}"
        for name, text in words.items()
        if (ratio := getattr(after, name) / max(getattr(before, name), 1e-9)) > limit
        # A first wait has no ratio.
        and getattr(before, name)
    )


def _on_chip(cost: Cost) -> str:
    return duration(cost.seconds, cost.seconds)


SCHEMA = "opcheck-baseline/1"
_WRITE = "opcheck gate --baseline FILE --update-baseline"


class Baseline(Record, frozen=True, kw_only=True):
    """The known findings by model."""

    schema: str = SCHEMA
    tool: str = tool.TOOL
    #: what the fingerprints are made of (fingerprint.VERSION)
    fingerprints: str = VERSION
    #: digest of the op lists that the findings come from
    op_lists: str = ""
    #: the targets of the runs that wrote the file, as their ``str``
    targets: tuple[str, ...] = ()
    models: dict[str, tuple[records.Known, ...]] = {}
    #: what the runs cost, by model and target
    costs: dict[str, dict[str, Cost]] = {}

    def carried_to(self, model: str, target: str, findings: Iterable[Finding]) -> tuple[str, ...]:
        """Return the fingerprints of findings that are known elsewhere and not worse on a target new to the file."""
        # A file of an earlier opcheck lists no targets.
        listed = (each.targets for entries in self.models.values() for each in entries)
        if target in (self.targets or itertools.chain.from_iterable(listed)):
            return ()
        known = {entry.fingerprint: entry.severity for entry in self.models.get(model, ())}
        return tuple(
            name
            for finding in findings
            for name in finding.fingerprints
            if name in known
            # An entry of an earlier opcheck has no severity.
            and known[name] not in SEVERITIES[SEVERITIES.index(finding.severity) + 1 :]
        )


def read(path: Path) -> Baseline:
    """Read a baseline from its file; ``read_baseline`` raises."""
    return read_baseline(Baseline, path, SCHEMA, _WRITE)


def write(path: Path, baseline: Baseline) -> None:
    """Write the file atomically; the same findings give the same bytes.

    Raises:
        UsageError: it cannot be written.
    """
    content = msgspec.to_builtins(baseline)
    is_json = path.suffix == ".json"
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n" if is_json else dump(content)
    write_text(path, text)


def update_baseline(
    before: Baseline | None, cells: Collection[records.GateCell], op_lists: str, *, whole: bool
) -> Baseline:
    """Return the baseline with every counted, not ignored finding of these cells.

    Of a cell whose report is missing or not whole, what was known stays; so does, where the run was not ``whole``, what
    is known of models and targets that were not in it.
    """
    old = before or Baseline()
    known: dict[str, dict[str, records.Known]] = {}
    judged = {(cell.model, cell.target) for cell in cells}
    reports = {(c.model, c.target): c.report for c in cells if c.report is not None and c.report.capture.complete}
    for model, entries in old.models.items():
        for entry in entries:
            cells_of_entry = {(model, target) for target in entry.targets} - reports.keys()
            _add(known, model, entry, [cell[1] for cell in cells_of_entry if cell in judged or not whole])
    costs = {model: dict(of_model) for model, of_model in old.costs.items()}
    for (model, target), report in reports.items():
        for entry in known_in(report):
            _add(known, model, entry, [target])
        if (cost := cost_of(report)) is not None:
            costs.setdefault(model, {})[target] = cost
    order = operator.attrgetter("rule", "op", "where", "line", "fingerprint")
    return Baseline(
        op_lists=op_lists,
        targets=tuple(sorted({*old.targets, *(target for _, target in reports)}, key=_numbers)),
        models={model: tuple(sorted(known[model].values(), key=order)) for model in sorted(known)},
        costs={model: dict(sorted(costs[model].items())) for model in sorted(costs)},
    )


def known_in(report: Report) -> Iterator[records.Known]:
    """Return the counted, not ignored findings of a report."""
    wanted = speaks_of_calls(report)
    for finding in report.findings:
        for place, name in zip(finding.locations or (None,), finding.fingerprints, strict=True):
            where = place.location if place else None
            if name in wanted and not finding.ignored:
                parts = (
                    where.file if where else "",
                    f"in {where.function}" if where and where.function else "",
                    f"({place.module})" if place and place.module else "",
                )
                yield records.Known(
                    fingerprint=name,
                    where=" ".join(filter(None, parts)),
                    line=where.text.strip() if where else "",
                    **pick(finding, "rule", "op", "severity"),
                )


def _add(known: dict[str, dict[str, records.Known]], model: str, entry: records.Known, targets: Iterable[str]) -> None:
    before = known.get(model, {}).get(entry.fingerprint)
    together = {*(before.targets if before else ()), *targets}
    if together:
        severities = {each.severity for each in (before, entry) if each}
        known.setdefault(model, {})[entry.fingerprint] = replace(
            entry,
            severity=next((each for each in SEVERITIES if each in severities), ""),
            targets=tuple(sorted(together, key=_numbers)),
        )


def _numbers(target: str) -> tuple[list[int], str]:
    """Return a sort key that puts torch 2.9 before torch 2.10."""
    return [int(number) for number in re.findall(r"\d{1,9}", target)], target


class Job(Record, frozen=True, kw_only=True):
    """A model of the gate, with what a worker needs to audit it on all targets."""

    name: str
    #: its target is not looked at.
    request: CaptureRequest
    targets: tuple[Target, ...]
    #: requirements of the environment that the model runs in; none: this environment
    libraries: tuple[str, ...] = ()
    #: the folder of the cache; empty: none.
    cache: str = ""
    #: pass the model's output on to stderr.
    show_output: bool = False
    #: a folder for temporary files, which the caller removes; empty: the system's.
    scratch: str = ""


class JobResult(Record, frozen=True, kw_only=True):
    """The result of a job: a report for each target, or the reason why there are none."""

    reports: tuple[Report, ...] = ()
    failed: records.Failed | None = None
    #: the versions that the job's libraries came to
    libraries: tuple[str, ...] = ()
    #: how many of the reports come from the cache
    kept: int = 0
    #: why the new reports could not be cached; empty: they were.
    not_kept: str = ""


def read_cached(job: Job) -> JobResult | None:
    """Return the result if all reports of the job are cached."""
    if not job.cache:
        return None
    lock = environments.find_lock(job.libraries) if job.libraries else None
    if job.libraries and lock is None:
        return None
    job = _with_lock(job, lock)
    cache = Cache(Path(job.cache))
    cached = [cache.find(replace(job.request, target=target)) for target in job.targets]
    reports = tuple(report for report in cached if report is not None)
    if len(reports) < len(cached):
        return None
    return JobResult(reports=reports, kept=len(reports), libraries=_versions(job))


def _with_lock(job: Job, lock: environments.LockedEnvironment | None) -> Job:
    return replace(job, request=replace(job.request, packages=lock.packages if lock else ()))


def _versions(job: Job) -> tuple[str, ...]:
    """Return the packages of the environment that the job's requirements name."""
    names = {Requirement(text).name for text in job.libraries}
    return tuple(text for text in job.request.packages if text.partition("==")[0] in names)


def work(job: Job, say: Callable[[str], None]) -> JobResult:
    """Return the reports of a job; a failure of the model is part of the result."""
    cache, not_kept = Cache(Path(job.cache)) if job.cache else None, ""
    try:
        if job.libraries:
            job = _with_lock(job, environments.resolve(job.libraries))
        reports = {target: cache.find(replace(job.request, target=target)) if cache else None for target in job.targets}
        missing = [target for target, report in reports.items() if report is None]
        if missing:
            audited, not_kept = _audit(job, missing, cache, say)
            reports |= dict(zip(missing, audited, strict=True))
    except OpcheckError as error:
        return JobResult(failed=describe_failure(error), libraries=_versions(job))
    complete = tuple(report for report in reports.values() if report is not None)
    kept, versions = len(job.targets) - len(missing), _versions(job)
    return JobResult(reports=complete, libraries=versions, kept=kept, not_kept=not_kept)


def describe_failure(error: OpcheckError) -> records.Failed:
    """Return the three lines of an error without this machine's folder, so that reports are equal on all machines."""
    here = str(Path.cwd())
    what, where, hint = (text.replace(here, ".") for text in (error.message, error.context, error.hint))
    return records.Failed(message=what, context=where, hint=hint)


def _audit(
    job: Job, targets: list[Target], cache: Cache | None, say: Callable[[str], None]
) -> tuple[list[Report], str]:
    """Audit the model; return the reports, and why they could not be cached.

    Raises:
        OpcheckError: as the audit does.
    """
    from opcheck.orchestrator import audit_targets

    with tempfile.TemporaryDirectory(prefix="opcheck-", dir=job.scratch or None) as folder:
        notes = Path(folder) / "notes.jsonl"
        request = replace(job.request, target=targets[0], notes=str(notes) if cache else "")
        audited = audit_targets(request, targets, load(), display=ProcessDisplay(say, job.show_output))
        # What was drawn is not shown, and is most of it.
        reports = [replace(report, graph=()) for report in audited]
        if cache is None:
            return reports, ""
        read = dependencies(notes, job.request)
    for target, report in zip(targets, reports, strict=True):
        cache.keep(replace(job.request, target=target), report, read)
    return reports, read.unknowable


_RESULT = msgspec.json.Decoder(JobResult)
#: Called with the number of a job, and its result or what it does.
_Done = Callable[[int, JobResult], None]
_Say = Callable[[int, str], None]
#: Seconds between two attempts to end the process of a job that was interrupted.
_LOOK = 0.1


def run(jobs: Sequence[Job], at_once: int, done: _Done, say: _Say) -> None:
    """Run all jobs; a job whose process dies gives a result, too.

    Args:
        jobs: what is to be done.
        at_once: the number of processes; a single process means here, one job after the other.
        done: called with the number of a job and its result as soon as it is there.
        say: called with the number of a job and what it does.

    Raises:
        KeyboardInterrupt: the user interrupted; ``done`` has the results so far, and no process is left.
    """
    # A killed process leaves its notes here, and the folder is removed.
    with tempfile.TemporaryDirectory(prefix="opcheck-") as scratch:
        jobs = [replace(job, scratch=scratch) for job in jobs]
        at_once = min(at_once, len(jobs))
        if at_once > 1:
            _run_at_once(jobs, at_once, done, say)
            return
        for number, job in enumerate(jobs):
            result = work(job, functools.partial(say, number))
            # Equal to a result that comes from another process or from the cache.
            done(number, _RESULT.decode(msgspec.json.encode(result)))


def _run_at_once(jobs: Sequence[Job], at_once: int, done: _Done, say: _Say) -> None:
    """Run the jobs in threads, each with a process of its own; this thread calls ``done`` and ``say``."""
    events: queue.SimpleQueue[tuple[int, JobResult | str]] = queue.SimpleQueue()
    function, shows = "opcheck.features.gate.assemble:work", jobs[0].show_output
    workers = [Worker[Job, JobResult](function, JobResult, show_output=shows) for _ in range(at_once)]
    idle = collections.deque(workers)

    def run_job(number: int, job: Job) -> None:
        worker = idle.popleft()
        events.put((number, _result(worker, job, lambda text: events.put((number, text)))))
        idle.append(worker)

    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(run_job, number, job) for number, job in enumerate(jobs)]
        try:
            left = len(jobs)
            while left:
                number, event = events.get()
                if isinstance(event, str):
                    say(number, event)
                else:
                    left -= 1
                    done(number, event)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            finished = False
            # A job may just be starting another process.
            while not finished:
                finished = not wait([future for future in futures if not future.cancelled()], _LOOK).not_done
                for worker in workers:
                    worker.end()


def _result(worker: Worker[Job, JobResult], job: Job, progress: Callable[[str], None]) -> JobResult:
    try:
        # Its captures have limits of their own.
        return worker.ask(job, math.inf, progress=progress)
    except OpcheckError as error:
        return JobResult(failed=describe_failure(error))
    except WorkerError as error:
        message = f"the process that audited the model {error}"
        return JobResult(failed=records.Failed(message=message, hint="run opcheck audit on it, with -v"))


PolicyOf = Callable[[records.GateModel, records.Planned], Policy]


def report(
    plan: records.GateSettings,
    results: Mapping[str, JobResult],
    policy_of: PolicyOf,
    ignores: Ignores,
    *,
    op_lists: str,
    whole: bool,
    baseline: Baseline | None = None,
    max_slowdown: float | None = None,
) -> records.GateReport:
    """Make the report of the whole run; a model without a result was not audited any more.

    Args:
        plan: models and targets.
        results: what the jobs came to, by the models' names.
        policy_of: how a model on a target is judged.
        ignores: the ignored findings; unused entries are read from it afterwards.
        op_lists: the digest of the op lists.
        whole: these are all models and targets that are configured: what silences nothing here silences nothing.
        baseline: the known findings, and the costs.
        max_slowdown: the growth of a cost that is allowed; None: each fails nothing.
    """
    cells = [
        cell
        for model in plan.models
        for name, planned in jobs_of(model, plan).items()
        if name in results
        for cell in _model_cells(model, planned, results[name], policy_of, ignores, baseline)
    ]
    every = (name for model in plan.models for name in jobs_of(model, plan))
    left = tuple(name for name in every if name not in results)
    notes = [*plan.left_out, *ignores.list_expired()]
    # A partial run cannot know which entries are unused.
    if whole and not left and all(cell.report is not None for cell in cells):
        notes += ignores.list_unused()
    if baseline and baseline.op_lists != op_lists:
        notes.append(f"the baseline was made with other op lists ({baseline.op_lists}; these are {op_lists})")
    for index, cell in enumerate(cells):
        if baseline is not None and cell.report is not None:
            before = baseline.costs.get(cell.model, {}).get(cell.target)
            growth = compare_costs(before, cost_of(cell.report), max_slowdown)
            if max_slowdown is None:
                notes += [f"{cell.model} on {cell.target}: {each}" for each in growth]
            elif growth:
                cells[index] = replace(cell, code=FINDINGS, reasons=(*cell.reasons, *growth))
    codes = {cell.code for cell in cells} | ({COULD_NOT_TELL} if left else set())
    return records.GateReport(
        tool=tool.TOOL,
        op_lists=op_lists,
        exit_code=next((code for code in (FINDINGS, COULD_NOT_TELL) if code in codes), PASSED),
        models=tuple(model.name for model in plan.models),
        targets=tuple(planned.label for planned in plan.targets),
        cells=tuple(cells),
        baseline=baseline is not None,
        notes=tuple(notes),
        left=left,
    )


def _model_cells(
    model: records.GateModel,
    planned: Sequence[records.Planned],
    result: JobResult,
    policy_of: PolicyOf,
    ignores: Ignores,
    baseline: Baseline | None,
) -> Iterator[records.GateCell]:
    unknown = Judgement(code=COULD_NOT_TELL, reasons=(result.failed.message,) if result.failed else ())
    entries = baseline.models.get(model.name, ()) if baseline else ()
    for number, each in enumerate(planned):
        report = None if result.failed else _mark_ignored(result.reports[number], ignores, model.name)
        findings = report.findings if report else ()
        here = {name for finding in findings for name in finding.fingerprints}
        before = [entry for entry in entries if each.label in entry.targets]
        carried = baseline.carried_to(model.name, each.label, findings) if baseline else ()
        names = (*(entry.fingerprint for entry in before), *carried)
        judged = judge_report(report, policy_of(model, each), names) if report else unknown
        # A finding that an incomplete run did not reach is not fixed.
        gone = (e for e in before if report and report.capture.complete and e.fingerprint not in here)
        yield records.GateCell(
            model=model.name,
            target=each.label,
            libraries=result.libraries,
            headline=report.headline if report else "could not tell",
            **msgspec.structs.asdict(judged),
            known=tuple(name for name in names if name in here),
            fixed=tuple(gone),
            failed=result.failed,
            report=report,
        )


def _mark_ignored(made: Report, ignores: Ignores, model: str) -> Report:
    ignores.read(place.location.file for group in made.groups for place in group.locations if place.location)
    return replace(made, findings=ignores.mark_ignored(made.findings, model=model))


def jobs_of(model: records.GateModel, plan: records.GateSettings) -> dict[str, tuple[records.Planned, ...]]:
    """Return the jobs of a model by name, with their targets; each combination of libraries is a job."""
    by_libraries = group_values((each.libraries, each) for each in records.targets_of(model, plan.targets))
    return {
        ", ".join((model.name, *map(records.library_text, libraries))): tuple(planned)
        for libraries, planned in by_libraries.items()
    }
