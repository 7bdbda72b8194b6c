"""Makes a report of a trace and a target: verdicts, groups, regions, findings.  Starts no process."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import get_args

import msgspec

from opcheck.capture.request import FIXED, TRACERS
from opcheck.common.text import any_layer
from opcheck.common.tool import TOOL
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import (
    HEADLINES,
    PHASES,
    SEVERITIES,
    FallbackKind,
    Frequency,
    Headline,
    Phase,
    RouteKind,
    Status,
)
from opcheck.data.built_lists import find_selected
from opcheck.data.known_deviations import differing
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement, describe_statement
from opcheck.judge import dtype_flow
from opcheck.judge.callgraph import (
    common_route,
    example_of,
    graph_calls,
    partition,
    route_of,
    sum_by_route,
    synchronizations,
    work,
)
from opcheck.judge.judge import OUTCOMES, certain, judge_all, outcome
from opcheck.judge.memory.estimate import estimate, runs_out
from opcheck.judge.memory.growth import growth_of_trace
from opcheck.judge.rules import RULES
from opcheck.judge.rules.capture_problems import quantized_headline
from opcheck.judge.rules.rule import Audited
from opcheck.judge.timing.estimates import WITHOUT_TIME
from opcheck.judge.timing.workload import RoutedCall, workloads
from opcheck.model.fingerprint import add_fingerprints
from opcheck.model.records import (
    RAISED_ON_A_MAC,
    CallGroup,
    CaptureFacts,
    Finding,
    GroupLocation,
    KernelNumbers,
    Memory,
    OpCall,
    OpListFacts,
    Precision,
    Report,
    ReportedProblem,
    ReportTarget,
    SourceLocation,
    Trace,
    Verdict,
    WrongCalls,
)

_NEVER_CHECKED = (
    "nothing was observed on a Mac: the verdicts follow from the release's registrations",
    WITHOUT_TIME,
    "limits on dtypes, shapes and macOS versions that no statement in the op lists names",
    "other inputs than these",
)

#: of a program that ran with values (opcheck run)
_OF_A_RUN = (
    "that a Mac gets the same numbers: the values were computed by this machine's CPU, which shows "
    "that the program runs there"
)

#: opcheck/simulator/visible/machine.py answers the rest
_OF_THE_MACHINE = (
    "a Mac's answers outside of torch and platform: sys.platform, os.name, sysconfig, memory and processors "
    "are this machine's, and libraries also read this machine's platform.system() and machine()"
)


def report(
    trace: Trace,
    target: Target,
    lists: OpLists,
    *,
    mac: int = 0,
    precision: tuple[Precision, ...] = (),
    numbers: tuple[KernelNumbers, ...] = (),
) -> Report:
    """Judge a trace and return the report with the findings of all rules.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    judged = tuple(
        certain(verdict, trace.differing_library(call.location), target)
        for call, verdict in zip(trace.calls, judge_all(trace.calls, target, lists), strict=True)
    )
    routes = _routes(trace, judged, target, lists)
    # Moves that succeed are left out: each tensor has a move.
    routed = [
        RoutedCall(*each)
        for each in zip(trace.calls, judged, routes, strict=True)
        if each[0].phase != "move" or each[1].status != "native"
    ]
    calls, verdicts = [each.call for each in routed], [each.verdict for each in routed]
    groups = _groups(routed)
    parts, graph = partition(calls, verdicts)
    followed = dtype_flow.origins(trace, judged, lists.statements.by_id)
    memory = estimate(trace, target, asked=mac, routes=routes)
    if memory is not None:
        growth = growth_of_trace(trace, routes, target, lists)
        memory = msgspec.structs.replace(memory, growth=growth)
    audited = Audited(
        groups=groups,
        trace=trace,
        target=target,
        partition=parts,
        lists=lists,
        verdicts=judged,
        origins=tuple(dtype_flow.reportable(followed)),
        memory=memory,
        precision=precision,
        numbers=numbers,
    )
    return msgspec.structs.replace(
        assemble(audited),
        graph=tuple(graph_calls(calls, verdicts, groups, graph)),
        workloads=workloads(trace, routed),
        work=tuple(work(calls, verdicts)),
        routes=sum_by_route((each.route, 1, each.call.flops) for each in routed),
        synchronizations=tuple(synchronizations(calls, verdicts)),
    )


def call_routes(trace: Trace, target: Target, lists: OpLists) -> list[RouteKind]:
    """Return what computes each call of a trace.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    return _routes(trace, judge_all(trace.calls, target, lists), target, lists)


def _routes(trace: Trace, verdicts: Sequence[Verdict], target: Target, lists: OpLists) -> list[RouteKind]:
    pairs = zip(trace.calls, verdicts, strict=True)
    return [route_of(call, verdict, target, lists) for call, verdict in pairs]


def assemble(audited: Audited) -> Report:
    """Return the report of judged calls, with the findings of all rules.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    audited = dataclasses.replace(audited, numbers=tuple(_with_statements(audited)))
    trace, target, lists = audited.trace, audited.target, audited.lists
    groups, parts = audited.groups, audited.partition
    release = lists.release(str(target.torch))
    verdicts = [group.verdict for group in groups]
    # The limitations and advisories that some group matches, or may match.
    named = {name for each in verdicts for name in (*each.limitations, *each.advisories)}
    return Report(
        tool=TOOL,
        model=trace.model,
        target=ReportTarget(
            torch=str(target.torch), macos=str(target.macos), cpu_fallback=target.cpu_fallback, beyond=target.beyond
        ),
        headline=headline(trace, {(verdict.status, verdict.kind) for verdict in verdicts}, target, audited.memory),
        totals=totals((group.op, group.verdict.status, group.verdict.kind, group.count) for group in groups),
        groups=groups,
        routes=sum_by_route((group.route, group.count, 0) for group in groups),
        findings=_findings(audited),
        partition=parts,
        memory=audited.memory,
        precision=audited.precision,
        numbers=audited.numbers,
        capture=msgspec.structs.replace(
            msgspec.convert(trace, CaptureFacts, from_attributes=True),
            modules_not_called=trace.uncalled,
            environment=dict(sorted(trace.environment.items())),
            packages=dict(sorted(trace.packages.items())),
        ),
        op_lists=OpListFacts(
            digest=lists.digest,
            torch=release.torch,
            wheel=release.wheel,
            sha256=release.sha256,
            commit=release.commit,
            built=release.built.isoformat(),
        ),
        not_checked=tuple(_not_checked(trace, target)),
        problems=tuple(
            ReportedProblem(
                kind=problem.kind, message=problem.message, line=str(problem.location or ""), module=problem.module
            )
            for problem in trace.problems
        ),
        statements={
            name: describe_statement(lists.statements.by_id[name])
            for name in sorted(named & lists.statements.by_id.keys())
        },
        wrong=_with_computed(_wrong(groups, lists.statements.by_id), audited.numbers),
    )


def _wrong(groups: Iterable[CallGroup], statements: Mapping[str, Statement]) -> Iterator[WrongCalls]:
    """Yield the calls on MPS with wrong results; the most frequent faults of a group of calls count."""
    for group in groups:
        verdict = group.verdict
        met = {entry.detail for entry in verdict.evidence}
        faults: dict[Frequency, list[Statement]] = {name: [] for name in get_args(Frequency)}
        for name in (*verdict.limitations, *verdict.advisories):
            fault = statements.get(name)
            if verdict.status == "native" and fault and fault.effect == "wrong_result":
                # What a call meets for certain is a fact, however rare it is in other programs.
                rare: Frequency = "rarely" if fault.rare else "sometimes"
                faults["always" if name in met else rare].append(fault)
        for frequency, found in faults.items():
            if found:
                cases = (each.when or each.condition for each in found if frequency != "always")
                yield WrongCalls(
                    op=group.op,
                    ids=tuple(each.id for each in found),
                    calls=group.count,
                    frequency=frequency,
                    condition="; ".join(filter(None, cases)),
                )
                break


def _with_statements(audited: Audited) -> Iterator[KernelNumbers]:
    """Yield the wrong numbers of kernels with the statements about wrong results that their calls may meet."""
    by_id = audited.lists.statements.by_id
    ids: dict[str, set[str]] = {}
    for group in audited.groups:
        named = (*group.verdict.limitations, *group.verdict.advisories)
        faults = {name for name in named if name in by_id and by_id[name].effect == "wrong_result"}
        ids.setdefault(group.op, set()).update(faults)
    for run in audited.numbers:
        wrong = (msgspec.structs.replace(line, statements=tuple(sorted(ids.get(line.op, ())))) for line in run.wrong)
        yield msgspec.structs.replace(run, wrong=tuple(wrong))


def _with_computed(stated: Iterable[WrongCalls], numbers: Iterable[KernelNumbers]) -> tuple[WrongCalls, ...]:
    """Return the calls with wrong results: what kernels computed decides, where they did."""
    computed: dict[str, WrongCalls] = {}
    for line in (line for run in numbers for line in run.wrong):
        before = computed[line.op].calls if line.op in computed else 0
        computed[line.op] = WrongCalls(op=line.op, ids=line.statements, calls=before + line.calls, frequency="always")
    return (*computed.values(), *(each for each in stated if each.op not in computed))


def _groups(routed: Sequence[RoutedCall]) -> tuple[CallGroup, ...]:
    """Group the calls by overload and verdict; the worst group comes first, then the order is by name."""
    members: dict[tuple[str, Verdict], list[RoutedCall]] = {}
    for each in routed:
        members.setdefault((each.call.op, each.verdict), []).append(each)
    groups = [_group(*key, alike) for key, alike in members.items()]
    return tuple(sorted(groups, key=lambda group: (-outcome(group.verdict).severity, group.op)))


def _group(op: str, verdict: Verdict, routed: Sequence[RoutedCall]) -> CallGroup:
    calls = [each.call for each in routed]
    phases = {call.phase for call in calls}
    return CallGroup.judged(
        op,
        verdict,
        count=len(calls),
        locations=tuple(_places(calls)),
        dtypes=tuple(sorted({spec.dtype for call in calls for spec in (*call.inputs, *call.outputs)})),
        phases=tuple(phase for phase in PHASES if phase in phases),
        example=example_of(calls, verdict),
        route=common_route({each.route for each in routed}),
    )


def _places(calls: Sequence[OpCall]) -> Iterator[GroupLocation]:
    """Yield the lines in the order of first use; layers of a model that share a line are one entry."""
    modules: dict[tuple[SourceLocation | None, str, Phase], Counter[str]] = {}
    for call in calls:
        key = (call.location, any_layer(call.module), call.phase)
        modules.setdefault(key, Counter())[call.module] += 1
    for (location, pattern, phase), names in modules.items():
        module = next(iter(names)) if len(names) == 1 else pattern
        yield GroupLocation.at(location, module=module, phase=phase, count=names.total())


def _findings(audited: Audited) -> tuple[Finding, ...]:
    """Return the findings of all rules: by severity, those about a Mac before opcheck's own limits, by rule."""
    findings = [finding for rule in RULES for finding in rule.find(audited)]
    own_limits = {"OC120", "OC125"}
    findings.sort(key=lambda each: (SEVERITIES.index(each.severity), each.rule in own_limits))
    return tuple(add_fingerprints(findings))


def totals(rows: Iterable[tuple[str, Status, FallbackKind | None, int]]) -> dict[str, int]:
    """Count the calls by status and kind, and the calls and overloads in all.

    Args:
        rows: operator, status, kind and how many calls; the same ones may come again.
    """
    operators = set()
    counts: Counter[tuple[Status, FallbackKind | None]] = Counter()
    for op, status, kind, count in rows:
        operators.add(op)
        counts[status, kind] += count
    by_name = {f"{status}_{kind}" if kind else status: counts[status, kind] for status, kind in OUTCOMES}
    return {"calls": counts.total(), "operators": len(operators), **by_name}


def headline(
    trace: Trace, outcomes: Collection[tuple[Status, FallbackKind | None]], target: Target, memory: Memory | None
) -> Headline:
    """Return the entry of HEADLINES that sums up the calls on the target, and the memory that they take.

    It never contradicts a finding: whatever makes the target raise makes it "fails".
    """
    fails, could_not_tell, only_with_variable, partly, natively = HEADLINES
    statuses = {status for status, _ in outcomes}
    raised = any(
        problem.kind in RAISED_ON_A_MAC and not trace.differing_library(problem.location) for problem in trace.problems
    )
    of_weights = quantized_headline(trace)
    if "unsupported" in statuses or raised or runs_out(memory) or of_weights == fails:
        return fails
    if "unknown" in statuses or not trace.complete or not outcomes or of_weights:
        return could_not_tell
    if ("fallback", "env") in outcomes and not target.cpu_fallback:
        return only_with_variable
    return partly if "fallback" in statuses else natively


def _not_checked(trace: Trace, target: Target) -> Iterator[str]:
    yield from _NEVER_CHECKED
    built = find_selected()
    if built and built.line == str(target.torch):
        yield (
            f"limits, wrong results and routes that are new in torch {built.torch}: its registrations were read "
            f"from its wheel, the rest is that of {built.carried}"
        )
    yield {**TRACERS, **FIXED}.get(trace.tracer, _OF_A_RUN)
    if trace.mode == "run":
        yield _OF_THE_MACHINE
    if trace.mode == "train":
        yield "steps after the first, and losses other than this one" + (f": {trace.loss}" if trace.loss else "")
        # at::isTensorSubclassLike is true under a dispatch mode: FunctionsManual.cpp then writes into no gradient.
        yield "whether autograd works in place: what is recorded as add can be add_ on a Mac"
    yield from differing(((call.op, call.phase) for call in trace.calls), target.torch)
    if not trace.complete:
        yield "everything after the point where the run broke off"
    installed = trace.installed_torch
    if installed and Version.parse(installed) != target.torch:
        yield f"Python code of torch {target.torch}: the model ran on the installed {installed}"
