"""Audits models: model source -> request -> trace -> verdicts -> report, for one target or many.

The only module that joins the capture, which starts processes, and the judge, which does not.  Imports no torch.
"""

import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from opcheck.capture.request import CaptureRequest
from opcheck.common.caches import user_cache
from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import report
from opcheck.judge.memory.limits import DimensionRange, LimitSearch, check_names, neighbours, scale_run
from opcheck.judge.memory.smallest_change import PlanSearch, changes_for
from opcheck.model.records import KernelNumbers, Memory, Precision, Problem, Record, Report, Trace
from opcheck.report_cache import Cache, dependencies
from opcheck.worker.dependency_tracking import Dependencies
from opcheck.worker.protocol import NO_DISPLAY, ProcessDisplay


def audit(request: CaptureRequest, lists: OpLists, *, mac: int = 0, display: ProcessDisplay = NO_DISPLAY) -> Report:
    """Run a model on the simulated Mac and report what each operator call does there.

    Args:
        request: the model, its inputs and the target.
        lists: the op lists to judge by.
        mac: memory in GB of the Mac that it should fit; 0: none in particular.
        display: what is shown of the captures.

    Raises:
        OpcheckError: the model or its inputs cannot be loaded, or the target is not in the lists.
    """
    (report,) = audit_targets(request, (request.target,), lists, mac=mac, display=display)
    return report


def report_of_request(
    request: CaptureRequest,
    trace: Trace,
    target: Target,
    lists: OpLists,
    *,
    mac: int = 0,
    precision: tuple[Precision, ...] = (),
    numbers: tuple[KernelNumbers, ...] = (),
) -> Report:
    """Return the ``report`` of a trace that was captured for ``request``, with the flags that repeat the audit.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    result = report(trace, target, lists, mac=mac, precision=precision, numbers=numbers)
    flags = request.flags()
    flags += (["--fallback"] if target.cpu_fallback else []) + ([f"--memory={mac}"] if mac else [])
    captured = msgspec.structs.replace(result.capture, flags=tuple(flags))
    return msgspec.structs.replace(result, capture=captured)


def audit_targets(
    request: CaptureRequest,
    targets: Sequence[Target],
    lists: OpLists,
    *,
    mac: int = 0,
    display: ProcessDisplay = NO_DISPLAY,
) -> tuple[Report, ...]:
    """Return the report of ``audit`` for each target, in their order.

    The model is built once, and run once for all targets that send it the same way
    (simulator/dispatch/mps_registrations.py).  If the process of such a run dies, the reports of its targets
    have a problem ``process_died``; the others are unaffected.

    Args:
        request: the model and its inputs; its own target is ignored.
        targets: the targets to report on.
        lists: the op lists to judge by.
        mac: memory in GB of the Mac that it should fit; 0: none in particular.
        display: what is shown of the captures.

    Raises:
        OpcheckError: the model or its inputs cannot be loaded, a target is not in the lists, or no run left a trace.
    """
    if not targets:
        return ()
    from opcheck.capture.parent import capture_many

    captured = capture_many(request, targets, display=display)
    traces = [each for each in captured if isinstance(each, Trace)]
    if not traces:
        raise next(each for each in captured if isinstance(each, OpcheckError))
    precision: tuple[Precision, ...] = ()
    if request.precision:
        from opcheck.numerics.value_runs import compare

        precision = compare(request, traces[0], display=display)
    reports = []
    for target, each in zip(targets, captured, strict=True):
        numbers: tuple[KernelNumbers, ...] = ()
        if isinstance(each, Trace) and (request.numbers or request.kernels):
            from opcheck.numerics.value_runs import compute

            numbers = compute(msgspec.structs.replace(request, target=target), each, display=display)
        trace = _trace(each, request, target)
        reports.append(report_of_request(request, trace, target, lists, mac=mac, precision=precision, numbers=numbers))
    return tuple(reports)


def _trace(captured: Trace | OpcheckError, request: CaptureRequest, target: Target) -> Trace:
    if isinstance(captured, Trace):
        return captured
    return Trace(
        model=request.model,
        mode=request.mode,
        tracer=request.tracer,
        target_torch=str(target.torch),
        target_macos=str(target.macos),
        complete=False,
        problems=(Problem(kind="process_died", message=f"{captured.message} ({captured.context})"),),
    )


class Audit(Record, frozen=True, kw_only=True):
    """A report, and what it depends on."""

    report: Report
    read: Dependencies
    #: whether the report comes from the cache
    kept: bool = False


def folder() -> Path:
    """Return the folder of the reports that ``opcheck audit`` keeps."""
    return user_cache() / "audit"


def audit_or_reuse(
    request: CaptureRequest,
    lists: OpLists,
    *,
    cache: Cache | None,
    mac: int = 0,
    display: ProcessDisplay = NO_DISPLAY,
    failed: Callable[[Dependencies], None] = lambda _read: None,
) -> Audit:
    """Return the report of ``audit``, from the cache if it is there.

    Args:
        request: the model, its inputs and the target.
        lists: the op lists to judge by.
        cache: where reports are kept; None: nowhere.
        mac: memory in GB of the Mac that it should fit; 0: none in particular.
        display: what is shown of the captures.
        failed: called with the files read by an audit that raises.

    Raises:
        OpcheckError: as ``audit`` does.
    """
    about = f"memory={mac}"
    # The graph is written by the run, and what the model prints is only in a run.
    readable = cache is not None and not request.save_graph and not display.output
    entry = cache.entry(request, about) if cache is not None and readable else None
    if entry is not None:
        return Audit(report=entry.report, read=entry.dependencies, kept=True)
    with tempfile.TemporaryDirectory(prefix="opcheck-") as scratch:
        notes = Path(scratch) / "notes.jsonl"
        noted = msgspec.structs.replace(request, notes=str(notes))
        try:
            report = audit(noted, lists, mac=mac, display=display)
        except BaseException:
            failed(dependencies(notes, request))
            raise
        read = dependencies(notes, request)
    if cache is not None:
        cache.keep(request, report, read, about)
    return Audit(report=report, read=read)


def audit_limits(
    request: CaptureRequest,
    lists: OpLists,
    ranges: Sequence[DimensionRange],
    *,
    mac: int = 0,
    macs: Collection[int] = (),
    display: ProcessDisplay = NO_DISPLAY,
) -> Report:
    """Return the report of ``audit`` with the largest size of each dimension that still runs.

    Two captures give the sizes of each call as functions of the dimensions; two more for each dimension prove its
    boundary on the Mac that decides: the named one, else the smallest that has enough memory for the model as it is.

    Args:
        request: the model, its inputs and the target.
        lists: the op lists to judge by.
        ranges: the dimensions; while one varies, the others have their usual sizes, within their ranges.
        mac: memory in GB of the Mac that decides; 0: none was named.
        macs: other Macs, by their memory, whose limits are computed and not proved.
        display: what is shown of the captures.

    Raises:
        UsageError: the inputs have no such dimension.
        OpcheckError: as ``audit`` does; the model makes other calls with other sizes.
    """
    from opcheck.capture.parent import capture_sizes

    def captures(*sizes: dict[str, int]) -> list[Trace]:
        results = capture_sizes(request, sizes, display=display)
        return [_trace(each, request, target) for each in results]

    target = request.target
    (first,) = captures({})
    check_names(ranges, first.sizes)
    base = report_of_request(request, first, target, lists, mac=mac)
    run = scale_run(first, [each.name for each in ranges], captures)
    limits = LimitSearch(run, base, target, lists, ranges, mac)
    found = [limits.boundary(each) for each in ranges]
    wanted = [{**limits.others(each.range), each.range.name: size} for each in found for size in neighbours(each)]
    proofs = zip(wanted, captures(*wanted), strict=True)
    ends = [(sizes, limits.reason_of(trace)) for sizes, trace in proofs]
    entries = [limits.record_proved(each, ends) for each in found]
    entries += limits.at_most(found)
    entries += [limits.compute(each, memory) for memory in macs for each in ranges]
    memory = base.memory or Memory()
    return msgspec.structs.replace(base, memory=msgspec.structs.replace(memory, limits=tuple(entries)))


def audit_plan(request: CaptureRequest, lists: OpLists, *, mac: int, display: ProcessDisplay = NO_DISPLAY) -> Report:
    """Return the report of ``audit`` with the smallest changes that make the run fit a Mac, if it does not.

    Args:
        request: the model, its inputs and the target.
        lists: the op lists to judge by.
        mac: memory in GB of the Mac.
        display: what is shown of the captures.

    Raises:
        OpcheckError: as ``audit`` does.
    """
    from opcheck.capture.parent import capture

    def another(changed: CaptureRequest) -> Trace | None:
        try:
            trace = capture(changed, display=display)
        except OpcheckError:
            return None
        return trace if trace.complete else None

    trace = capture(request, display=display)
    base = report_of_request(request, trace, request.target, lists, mac=mac)
    if base.memory is None:
        return base
    newest = msgspec.structs.replace(request.target, torch=lists.versions[-1])
    plan = tuple(PlanSearch(request, trace, lists, mac, another).search(changes_for(request, trace, newest)))
    return msgspec.structs.replace(base, memory=msgspec.structs.replace(base.memory, plan=plan))
