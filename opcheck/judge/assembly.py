"""Makes a report of a trace and a target: verdicts, groups, regions, findings.  Starts no process."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import get_args

import msgspec
from msgspec.structs import replace

from opcheck.capture.request import FIXED, TRACERS
from opcheck.common import vocabulary as words
from opcheck.common.picking import pick
from opcheck.common.tool import TOOL
from opcheck.common.versions import Target, Version
from opcheck.data.built_lists import find_selected
from opcheck.data.known_deviations import differing
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.judge import callgraph, dtype_flow
from opcheck.judge.judge import OUTCOMES, certain, judge_all
from opcheck.judge.memory.estimate import estimate, runs_out
from opcheck.judge.memory.growth import growth_of_trace
from opcheck.judge.rules import RULES
from opcheck.judge.rules.capture_problems import quantized_headline
from opcheck.judge.rules.rule import Audited
from opcheck.judge.texts import NOT_CHECKED
from opcheck.judge.timing.workload import workloads
from opcheck.model import records
from opcheck.model.fingerprint import add_fingerprints
from opcheck.model.records import CallGroup, Finding, KernelNumbers, Report, Trace, WrongCalls


def report(
    trace: Trace,
    target: Target,
    lists: OpLists,
    *,
    mac: int = 0,
    precision: tuple[records.Precision, ...] = (),
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
    every = callgraph.route_calls(trace.calls, judged, target, lists)
    routes = [each.route for each in every]
    # Moves that succeed are left out: each tensor has a move.
    routed = [each for each in every if each.call.phase != "move" or each.verdict.status != "native"]
    parts, graph = callgraph.partition(routed)
    by_route = callgraph.sum_by_route((each.route, 1, each.call.flops) for each in routed)
    work, waits = tuple(callgraph.work(routed)), tuple(callgraph.synchronizations(routed))
    groups = callgraph.group_calls(routed)
    drawn = tuple(callgraph.graph_calls(routed, groups, graph))
    memory = estimate(trace, target, asked=mac, routes=routes)
    if memory is not None:
        memory = replace(memory, growth=growth_of_trace(trace, routes, target, lists))
    audited = Audited(
        groups=groups,
        trace=trace,
        target=target,
        partition=parts,
        lists=lists,
        verdicts=judged,
        origins=tuple(dtype_flow.reportable(dtype_flow.origins(trace, judged, lists.statements.by_id))),
        memory=memory,
        precision=precision,
        numbers=numbers,
    )
    return replace(
        assemble(audited),
        graph=drawn,
        workloads=workloads(trace, routed),
        work=work,
        routes=by_route,
        synchronizations=waits,
    )


def assemble(audited: Audited) -> Report:
    """Return the report of judged calls, with the findings of all rules.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    audited = dataclasses.replace(audited, numbers=tuple(_with_statements(audited)))
    trace, target, lists, groups = audited.trace, audited.target, audited.lists, audited.groups
    by_id = lists.statements.by_id
    release = lists.release(str(target.torch))
    verdicts = [group.verdict for group in groups]
    # The limitations and advisories that some group matches, or may match.
    named = {name for each in verdicts for name in (*each.limitations, *each.advisories)}
    met = {name: by_id[name] for name in sorted(named & by_id.keys())}
    return Report(
        tool=TOOL,
        model=trace.model,
        target=records.ReportTarget(
            torch=str(target.torch), macos=str(target.macos), cpu_fallback=target.cpu_fallback, beyond=target.beyond
        ),
        headline=headline(trace, {(verdict.status, verdict.kind) for verdict in verdicts}, target, audited.memory),
        totals=totals((group.op, group.verdict.status, group.verdict.kind, group.count) for group in groups),
        groups=groups,
        routes=callgraph.sum_by_route((group.route, group.count, 0) for group in groups),
        findings=_findings(audited),
        **pick(audited, "partition", "memory", "precision", "numbers"),
        capture=replace(
            msgspec.convert(trace, records.CaptureFacts, from_attributes=True),
            modules_not_called=trace.uncalled,
            environment=dict(sorted(trace.environment.items())),
            packages=dict(sorted(trace.packages.items())),
        ),
        op_lists=msgspec.convert({**msgspec.to_builtins(release), "digest": lists.digest}, records.OpListFacts),
        not_checked=tuple(_not_checked(trace, target)),
        problems=tuple(
            records.ReportedProblem(
                kind=each.kind, message=each.message, line=str(each.location or ""), module=each.module
            )
            for each in trace.problems
        ),
        statements=msgspec.convert(met, dict[str, records.StatementFacts], from_attributes=True),
        wrong=_with_computed(_wrong(groups, by_id), audited.numbers),
    )


def _wrong(groups: Iterable[CallGroup], statements: Mapping[str, Statement]) -> Iterator[WrongCalls]:
    """Yield the calls on MPS with wrong results; the most frequent faults of a group of calls count."""
    for group in groups:
        verdict = group.verdict
        met = {entry.detail for entry in verdict.evidence}
        faults: dict[words.Frequency, list[Statement]] = {name: [] for name in get_args(words.Frequency)}
        for name in (*verdict.limitations, *verdict.advisories):
            fault = statements.get(name)
            if verdict.status == "native" and fault and fault.effect == "wrong_result":
                # What a call meets for certain is a fact, however rare it is in other programs.
                rare: words.Frequency = "rarely" if fault.rare else "sometimes"
                faults["always" if name in met else rare].append(fault)
        for frequency, found in faults.items():
            if found:
                cases = (each.when or each.condition for each in found if frequency != "always")
                case, ids = "; ".join(filter(None, cases)), tuple(each.id for each in found)
                yield WrongCalls(op=group.op, ids=ids, calls=group.count, frequency=frequency, condition=case)
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
        wrong = (replace(line, statements=tuple(sorted(ids.get(line.op, ())))) for line in run.wrong)
        yield replace(run, wrong=tuple(wrong))


def _with_computed(stated: Iterable[WrongCalls], numbers: Iterable[KernelNumbers]) -> tuple[WrongCalls, ...]:
    """Return the calls with wrong results: what kernels computed decides, where they did."""
    computed: dict[str, WrongCalls] = {}
    for line in (line for run in numbers for line in run.wrong):
        before = computed[line.op].calls if line.op in computed else 0
        computed[line.op] = WrongCalls(op=line.op, ids=line.statements, calls=before + line.calls, frequency="always")
    return (*computed.values(), *(each for each in stated if each.op not in computed))


def _findings(audited: Audited) -> tuple[Finding, ...]:
    """Return the findings of all rules: by severity, those about a Mac before opcheck's own limits, by rule."""
    findings = [finding for rule in RULES for finding in rule.find(audited)]
    own_limits = {"OC120", "OC125"}
    findings.sort(key=lambda each: (words.SEVERITIES.index(each.severity), each.rule in own_limits))
    return tuple(add_fingerprints(findings))


def totals(rows: Iterable[tuple[str, words.Status, words.FallbackKind | None, int]]) -> dict[str, int]:
    """Count the calls by status and kind, and the calls and overloads in all.

    Args:
        rows: operator, status, kind and how many calls; the same ones may come again.
    """
    operators = set()
    counts: Counter[tuple[words.Status, words.FallbackKind | None]] = Counter()
    for op, status, kind, count in rows:
        operators.add(op)
        counts[status, kind] += count
    by_name = {f"{status}_{kind}" if kind else status: counts[status, kind] for status, kind in OUTCOMES}
    return {"calls": counts.total(), "operators": len(operators), **by_name}


def headline(
    trace: Trace,
    outcomes: Collection[tuple[words.Status, words.FallbackKind | None]],
    target: Target,
    memory: records.Memory | None,
) -> words.Headline:
    """Return the entry of HEADLINES that sums up the calls on the target, and the memory that they take.

    It never contradicts a finding: whatever makes the target raise makes it "fails".
    """
    fails, could_not_tell, only_with_variable, partly, natively = words.HEADLINES
    statuses = {status for status, _ in outcomes}
    ended = (each for each in trace.problems if each.kind in records.RAISED_ON_A_MAC)
    raised = any(not trace.differing_library(each.location) for each in ended)
    of_weights = quantized_headline(trace)
    if "unsupported" in statuses or raised or runs_out(memory) or of_weights == fails:
        return fails
    if "unknown" in statuses or not trace.complete or not outcomes or of_weights:
        return could_not_tell
    if ("fallback", "env") in outcomes and not target.cpu_fallback:
        return only_with_variable
    return partly if "fallback" in statuses else natively


def _not_checked(trace: Trace, target: Target) -> Iterator[str]:
    yield from (NOT_CHECKED[name] for name in ("mac", "without_time", "unlisted", "inputs"))
    built = find_selected()
    if built and built.line == str(target.torch):
        yield NOT_CHECKED["built_lists"].format(torch=built.torch, carried=built.carried)
    yield {**TRACERS, **FIXED}.get(trace.tracer, NOT_CHECKED["values"])
    if trace.mode == "run":
        yield NOT_CHECKED["machine"]
    if trace.mode == "train":
        yield NOT_CHECKED["losses"] + (f": {trace.loss}" if trace.loss else "")
        # at::isTensorSubclassLike is true under a dispatch mode: FunctionsManual.cpp then writes into no gradient.
        yield NOT_CHECKED["in_place"]
    yield from differing(((call.op, call.phase) for call in trace.calls), target.torch)
    if not trace.complete:
        yield "everything after the point where the run broke off"
    installed = trace.installed_torch
    if installed and Version.parse(installed) != target.torch:
        yield f"Python code of torch {target.torch}: the model ran on the installed {installed}"
