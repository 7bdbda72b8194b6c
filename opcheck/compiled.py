"""Compiled variants -> what a target makes of them: externs judged, kernels linted, and which variant to use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from opcheck.ask.plain import Asker
from opcheck.compile.lint import lint
from opcheck.compile.records import Compiled, Extern, Failure, Tried, Variant
from opcheck.model import Record
from opcheck.oplists.registrations import OpLists
from opcheck.versions import Target, Version

#: The releases whose wheels have torch/_inductor/codegen/mps.py: absent in 2.6.0, there in 2.7.0.
METAL_SINCE = Version(2, 7)
#: announced as more than a prototype (release notes of 2.8)
METAL_READY = Version(2, 8)


class JudgedExtern(Record, frozen=True, kw_only=True):
    """An operator that compiled code calls eagerly, with what the target does with it."""

    op: str
    dtypes: tuple[str, ...]
    status: str
    because: str
    line: str = ""
    count: int = 1


class Row(Record, frozen=True, kw_only=True):
    """One variant in one way of running, over the dtypes."""

    variant: str
    run: str
    #: dtype -> outcome
    outcomes: dict[str, str]


class FailureGroup(Record, frozen=True, kw_only=True):
    """One failure of however many variants."""

    kind: str
    message: str
    op: str
    line: str
    text: str
    variants: tuple[str, ...]
    ours: bool = False


class CompileReport(Record, frozen=True, kw_only=True):
    """All that is known of compiling one model for one target."""

    schema: str = "opcheck-compile/1"
    tool: str
    model: str
    target: dict[str, str]
    #: what to use, in a sentence
    advice: str
    rows: tuple[Row, ...]
    failures: tuple[FailureGroup, ...]
    externs: tuple[JudgedExtern, ...]
    kernels: int
    not_checked: tuple[str, ...]
    compiled: Compiled


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
    tried = tuple(_on_target(one, target) for one in compiled.tried)
    externs = _judged(tried, target, lists)
    return CompileReport(
        tool=tool,
        model=compiled.model,
        target={"torch": str(target.torch), "macos": str(target.macos)},
        advice=_advice(tried, externs, target),
        rows=tuple(_rows(tried)),
        failures=tuple(_failures(tried)),
        externs=externs,
        kernels=sum(len(graph.kernels) for one in tried for graph in one.side),
        not_checked=(*_NOT_CHECKED, *compiled.not_checked, *_of_release(compiled, target)),
        compiled=msgspec.structs.replace(compiled, tried=tried),
    )


def _on_target(tried: Tried, target: Target) -> Tried:
    """The variant with what the target's release, and Metal, make of it."""
    if not tried.variant.metal:
        return tried
    if target.torch < METAL_SINCE:
        failure = Failure(
            kind="backend",
            message=f"torch {target.torch} has no Metal backend in Inductor (it came with "
            f"{METAL_SINCE}): torch.compile(model) raises on mps, backend='aot_eager' does not",
        )
        return msgspec.structs.replace(tried, outcome="no backend", failure=failure, side=())
    graphs = tuple(
        msgspec.structs.replace(graph, failures=(*graph.failures, *lint(graph)))
        for graph in tried.side
    )
    failed = tried.outcome == "works" and any(graph.failures for graph in graphs)
    return msgspec.structs.replace(tried, side=graphs, outcome="fails" if failed else tried.outcome)


def _rows(tried: Sequence[Tried]) -> Iterator[Row]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for one in tried:
        found.setdefault((str(one.variant), run_of(one.variant)), {})[one.variant.dtype] = (
            one.outcome
        )
    for (variant, run), outcomes in found.items():
        yield Row(variant=variant, run=run, outcomes=outcomes)


def run_of(variant: Variant) -> str:
    """``training`` or ``inference``."""
    return "training" if variant.training else "inference"


def _failures(tried: Sequence[Tried]) -> Iterator[FailureGroup]:
    """Failures that say the same of the same line together."""
    found: dict[tuple[str, str, str, str], list[tuple[Tried, Failure]]] = {}
    for one in tried:
        for failure in failures_of(one):
            key = (failure.kind, failure.message, failure.op, str(failure.location or ""))
            found.setdefault(key, []).append((one, failure))
    for (kind, message, op, line), members in found.items():
        location = members[0][1].location
        yield FailureGroup(
            kind=kind,
            message=message,
            op=op,
            line=line,
            text=location.text if location else "",
            variants=tuple(dict.fromkeys(_called(one.variant) for one, _ in members)),
            ours=members[0][1].ours,
        )


def failures_of(tried: Tried) -> Iterator[Failure]:
    """Its own, and those of its graphs."""
    if tried.failure is not None:
        yield tried.failure
    for graph in tried.side:
        yield from graph.failures


def _called(variant: Variant) -> str:
    return f"{variant} ({variant.dtype}, {run_of(variant)})"


def _judged(tried: Sequence[Tried], target: Target, lists: OpLists) -> tuple[JudgedExtern, ...]:
    """Each operator that compiled code calls eagerly, once: extern does not mean supported."""
    asker = Asker(lists)
    found: dict[tuple[str, tuple[str, ...], str], list[Extern]] = {}
    for one in tried:
        for graph in one.side:
            for extern in graph.externs:
                key = (extern.op, extern.dtypes, str(extern.location or ""))
                found.setdefault(key, []).append(extern)
    judged = []
    for (op, dtypes, line), members in found.items():
        dtype = dtypes[0] if dtypes else "float32"
        verdict = asker.verdict(op, target, dtype)
        status = f"{verdict.status} {verdict.kind or ''}".strip()
        judged.append(
            JudgedExtern(
                op=op,
                dtypes=dtypes,
                status=status,
                because=verdict.because,
                line=line,
                count=max(extern.count for extern in members),
            )
        )
    return tuple(sorted(judged, key=lambda one: (one.status == "native", one.op, one.line)))


def _advice(tried: Sequence[Tried], externs: Iterable[JudgedExtern], target: Target) -> str:
    """Which backend, in which dtypes, and why not the others."""
    metal = [one for one in tried if one.variant.metal]
    works = _by_dtype(metal, "works")
    if target.torch < METAL_SINCE or not works:
        found = [str(one.variant) for one in tried if one.outcome == "works" and _portable(one)]
        use = f"use backend={found[-1].split()[0]!r}" if found else "do not compile"
        return f"{use}: {_why_not(metal) or 'Inductor for Metal was not tried'}"
    prototype = " (a prototype in 2.7)" if target.torch < METAL_READY else ""
    missing = _why_not([one for one in metal if one.variant.dtype not in works])
    slow = sorted({one.op for one in externs if one.status != "native"})
    return "; ".join(
        part
        for part in (
            f"use inductor{prototype} with {_and(works)}",
            f"not with the others: {missing}" if missing else "",
            f"it calls {_and(slow)} eagerly, which {_are(slow)} not native" if slow else "",
        )
        if part
    )


def _by_dtype(metal: Sequence[Tried], outcome: str) -> tuple[str, ...]:
    """The dtypes in which every way of running that was tried came to that."""
    dtypes = dict.fromkeys(one.variant.dtype for one in metal)
    return tuple(
        dtype
        for dtype in dtypes
        if all(one.outcome == outcome for one in metal if one.variant.dtype == dtype)
    )


def _portable(tried: Tried) -> bool:
    """Whether its backend does the same on mps: it makes no code of its own."""
    return tried.variant.backend in {"eager", "aot_eager", "aot_eager_decomp_partition"}


def _why_not(metal: Sequence[Tried]) -> str:
    for one in metal:
        for failure in failures_of(one):
            return failure.message
        if one.outcome != "works":
            return f"{_called(one.variant)}: {one.outcome}"
    return ""


def _and(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _are(words: Sequence[str]) -> str:
    return "is" if len(words) == 1 else "are"


def _of_release(compiled: Compiled, target: Target) -> Iterator[str]:
    installed = Version.parse(compiled.installed_torch)
    if installed != target.torch:
        yield (
            f"the Inductor of torch {target.torch}: that of torch {compiled.installed_torch}, which is "
            "installed here, wrote the kernels"
        )
