"""Judges compiled variants for a target: judges externs, lints kernels, and advises which variant to use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from opcheck.common.versions import Target, Version
from opcheck.compiler.judged import Advisory, CompileReport, FailureGroup, JudgedExtern, Row
from opcheck.compiler.lint import lint
from opcheck.compiler.plan import PORTABLE
from opcheck.compiler.records import Compiled, Extern, Failure, SideGraph, Tried, Variant
from opcheck.data.compile_defects import Defect, load_defects
from opcheck.data.registrations import OpLists
from opcheck.lookup.plain_call import OperatorLookup

#: The releases whose wheels have torch/_inductor/codegen/mps.py: absent in 2.6.0, there in 2.7.0.
METAL_SINCE = Version(2, 7)
#: The release whose notes announce it as more than a prototype.
METAL_READY = Version(2, 8)


_NOT_CHECKED = (
    "nothing was compiled by Metal and nothing ran on a Mac: kernels are what Inductor writes for it",
    "other inputs than these, and what their shapes would compile anew",
    "branches on the device in the program and in torch: the graphs were traced on the CPU",
)


def report(compiled: Compiled, target: Target, lists: OpLists, tool: str) -> CompileReport:
    """Judge what was compiled.

    Raises:
        OpListError: the lists hold no such torch release, or are damaged.
    """
    defects = load_defects()
    tried = tuple(_on_target(attempt, target, defects) for attempt in compiled.tried)
    externs = _judged(tried, target, lists)
    return CompileReport(
        tool=tool,
        model=compiled.model,
        target={"torch": str(target.torch), "macos": str(target.macos)},
        advice=_advice(tried, externs, target),
        rows=tuple(_rows(tried)),
        failures=tuple(_failures(tried, target, defects)),
        advisories=tuple(_advisories(tried, target, defects)),
        externs=externs,
        kernels=sum(len(graph.kernels) for attempt in tried for graph in attempt.side),
        not_checked=(*_NOT_CHECKED, *compiled.not_checked, *_release_mismatch(compiled, target)),
        compiled=msgspec.structs.replace(compiled, tried=tried),
    )


def _on_target(tried: Tried, target: Target, defects: Sequence[Defect]) -> Tried:
    """Return the variant with its outcome on the target's release and in Metal."""
    if not tried.variant.metal:
        return tried
    if target.torch < METAL_SINCE:
        failure = Failure(
            kind="backend",
            message=f"torch {target.torch} has no Metal backend in Inductor (it came with "
            f"{METAL_SINCE}): torch.compile(model) raises on mps, backend='aot_eager' does not",
        )
        return msgspec.structs.replace(
            tried, outcome="no backend", failure=failure, side=(), side_again=()
        )
    linted = msgspec.structs.replace(
        tried,
        side=tuple(map(_linted, tried.side)),
        side_again=tuple(map(_linted, tried.side_again)),
    )
    return msgspec.structs.replace(linted, outcome=_outcome(linted, target, defects))


def _linted(graph: SideGraph) -> SideGraph:
    return msgspec.structs.replace(graph, failures=(*graph.failures, *lint(graph)))


def _outcome(tried: Tried, target: Target, defects: Sequence[Defect]) -> str:
    """Return the outcome with the findings of the shader lint, and without failures fixed in the target."""
    if tried.outcome not in {"works", "fails", "one shape only"}:
        return tried.outcome
    if tried.failure is not None and tried.outcome == "fails":
        return "fails"
    first = [failure for graph in tried.side for failure in graph.failures]
    again = [failure for graph in tried.side_again for failure in graph.failures]
    standing = [
        failure for failure in first if not (failure.ours or _mended(failure, target, defects))
    ]
    if standing:
        return "fails"
    # If Inductor itself raised, the graph has no kernel to judge.
    if any(failure.kind != "shader" for failure in first):
        return "could not tell"
    if tried.failure is not None or [
        failure for failure in again if not _mended(failure, target, defects)
    ]:
        return "one shape only"
    return "works"


def _mended(failure: Failure, target: Target, defects: Sequence[Defect]) -> str:
    """Return the release that fixed the failure, if the target is not older."""
    for defect in defects:
        until = defect.torch.until
        if defect.when.explains(failure.message) and until is not None and target.torch >= until:
            return str(until)
    return ""


def _advisories(
    tried: Sequence[Tried], target: Target, defects: Sequence[Defect]
) -> Iterator[Advisory]:
    graphs = [graph for attempt in tried for graph in (*attempt.side, *attempt.side_again)]
    kernels = [kernel for graph in graphs for kernel in graph.kernels]
    for defect in defects:
        if target.torch not in defect.torch or not graphs:
            continue
        affected = [
            kernel
            for kernel in kernels
            if defect.when.holds_for(kernel.source, frozenset(node.op for node in kernel.nodes))
        ]
        nodes = [node for kernel in affected for node in kernel.nodes]
        if affected or defect.when.any:
            yield Advisory(
                id=defect.id,
                effect=defect.effect,
                summary=defect.summary,
                kernels=len(affected),
                line=next((str(node.location) for node in nodes if node.location), ""),
                links=defect.links,
            )


def _rows(tried: Sequence[Tried]) -> Iterator[Row]:
    groups: dict[tuple[str, str], list[Tried]] = {}
    for attempt in tried:
        groups.setdefault((str(attempt.variant), run_of(attempt.variant)), []).append(attempt)
    for (variant, run), members in groups.items():
        outcomes = {member.variant.dtype: member.outcome for member in members}
        yield Row(variant=variant, run=run, outcomes=outcomes, graphs=members[0].graphs)


def run_of(variant: Variant) -> str:
    """Return ``training`` or ``inference``."""
    return "training" if variant.training else "inference"


def _failures(
    tried: Sequence[Tried], target: Target, defects: Sequence[Defect]
) -> Iterator[FailureGroup]:
    """Group failures with the same message at the same place."""
    groups: dict[tuple[str, ...], list[tuple[Tried, Failure]]] = {}
    for attempt in tried:
        for failure in failures_of(attempt):
            place = str(failure.location or failure.module)
            key = (failure.kind, failure.message, failure.op, place)
            groups.setdefault(key, []).append((attempt, failure))
    for members in groups.values():
        failure = members[0][1]
        known = [defect for defect in defects if defect.when.explains(failure.message)]
        yield FailureGroup(
            kind=failure.kind,
            message=failure.message,
            op=failure.op,
            line=str(failure.location or ""),
            text=failure.location.text if failure.location else "",
            module=failure.module,
            variants=tuple(dict.fromkeys(_called(attempt.variant) for attempt, _ in members)),
            ours=failure.ours,
            links=tuple(link for defect in known for link in defect.links),
            mended=_mended(failure, target, defects),
        )


def failures_of(tried: Tried) -> Iterator[Failure]:
    """Yield the variant's own failure, and those of its graphs."""
    if tried.failure is not None:
        yield tried.failure
    for graph in (*tried.side, *tried.side_again):
        yield from graph.failures


def _called(variant: Variant) -> str:
    return f"{variant} ({variant.dtype}, {run_of(variant)})"


def _judged(tried: Sequence[Tried], target: Target, lists: OpLists) -> tuple[JudgedExtern, ...]:
    """Judge each operator that compiled code calls eagerly once: an extern need not be supported."""
    lookup = OperatorLookup(lists)
    groups: dict[tuple[str, tuple[str, ...], str, str], list[Extern]] = {}
    for attempt in tried:
        for graph in attempt.side:
            for extern in graph.externs:
                key = (extern.op, extern.dtypes, str(extern.location or ""), extern.module)
                groups.setdefault(key, []).append(extern)
    judged = []
    for (op, dtypes, line, module), members in groups.items():
        dtype = dtypes[0] if dtypes else "float32"
        verdict = lookup.verdict(op, target, dtype)
        status = f"{verdict.status} {verdict.kind or ''}".strip()
        judged.append(
            JudgedExtern(
                op=op,
                dtypes=dtypes,
                status=status,
                because=verdict.because,
                line=line,
                module=module,
                count=max(extern.count for extern in members),
            )
        )
    return tuple(
        sorted(
            judged,
            key=lambda extern: (extern.status == "native", extern.op, extern.line, extern.module),
        )
    )


def _advice(tried: Sequence[Tried], externs: Iterable[JudgedExtern], target: Target) -> str:
    """Return which backend to use, in which dtypes, and why not the others."""
    metal = [attempt for attempt in tried if attempt.variant.metal]
    works, not_works = _ways(metal)
    if metal and all(attempt.outcome == "nothing compiled" for attempt in metal):
        return "torch.compile does nothing for this program: no graph was compiled"
    if not works:
        portable = _portable(tried)
        why = _why_not(metal, target) or "Inductor for Metal was not tried"
        return f"use backend={portable!r}: {why}" if portable else f"do not compile: {why}"
    prototype = " (a prototype in 2.7)" if target.torch < METAL_READY else ""
    why = _why_not([attempt for attempt in metal if attempt.outcome != "works"], target)
    judged = list(externs)
    slow = sorted({extern.op for extern in judged if extern.status not in {"native", "unknown"}})
    unknown = sorted({extern.op for extern in judged if extern.status == "unknown"})
    return "; ".join(
        part
        for part in (
            f"use inductor{prototype} with {_and(works)}",
            f"not with {_and(not_works)}: {why}" if why else "",
            f"it calls {_and(slow)} eagerly, which {_are(slow)} not native" if slow else "",
            f"it calls {_and(unknown)} eagerly, of which the op lists know nothing"
            if unknown
            else "",
        )
        if part
    )


def _ways(metal: Sequence[Tried]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the dtypes in which every variant works, and the rest; with the mode where the modes differ."""
    ways: dict[str, dict[str, bool]] = {}
    for attempt in metal:
        works_by_way = ways.setdefault(attempt.variant.dtype, {})
        way = "training" if attempt.variant.training else "inference"
        works_by_way[way] = works_by_way.get(way, True) and attempt.outcome == "works"
    works: dict[str, None] = {}
    not_works: dict[str, None] = {}
    for dtype, outcomes in ways.items():
        for way, good in outcomes.items():
            differ = len(set(outcomes.values())) > 1
            (works if good else not_works).setdefault(f"{dtype} in {way}" if differ else dtype)
    return tuple(works), tuple(not_works)


def _portable(tried: Sequence[Tried]) -> str:
    """Return the first backend that generates no code and worked wherever it was tried: it does the same on mps."""
    for backend in PORTABLE:
        outcomes = {attempt.outcome for attempt in tried if attempt.variant.backend == backend}
        if "works" in outcomes and outcomes <= {"works", "one shape only"}:
            return backend
    return ""


def _why_not(metal: Sequence[Tried], target: Target) -> str:
    """Return the first failure that the target has not fixed."""
    defects = load_defects()
    for attempt in metal:
        failures = [*failures_of(attempt)]
        standing = [failure for failure in failures if not _mended(failure, target, defects)]
        for failure in standing:
            return failure.message
        for failure in failures:
            until = _mended(failure, target, defects)
            return f"{failure.message}, which torch {until} mended: ask with that release installed"
        if attempt.outcome != "works":
            return f"{_called(attempt.variant)}: {attempt.outcome}"
    return ""


def _and(words: Sequence[str]) -> str:
    if not words:
        return ""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _are(words: Sequence[str]) -> str:
    return "is" if len(words) == 1 else "are"


def _release_mismatch(compiled: Compiled, target: Target) -> Iterator[str]:
    installed = Version.parse(compiled.installed_torch)
    if installed != target.torch:
        yield (
            f"the Inductor of torch {target.torch}: that of torch {compiled.installed_torch}, which is "
            "installed here, wrote the kernels"
        )
