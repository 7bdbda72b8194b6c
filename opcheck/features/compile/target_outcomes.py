"""Judges compiled variants for a target, and advises which to use.

What is known decides: kernels and eager operators are held against the target's lints, its known defects
(op_lists/compile.yaml) and its op lists, and whatever raises or is wrong changes the outcome of its variant.
"""

import itertools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import OpcheckError
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.text import and_more, join_and
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import HEADLINES, Mode
from opcheck.data.compile_defects import DECIDING, DEFECTS, CompileDefect
from opcheck.data.registrations import OpLists
from opcheck.features.compile import compile_records as records
from opcheck.features.compile.check.metal_check import NOT_CHECKED, lint
from opcheck.features.compile.compile_process import AHEAD_SINCE, METAL_SINCE
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED
from opcheck.lookup.plain_call import OperatorLookup
from opcheck.model.records import Report
from opcheck.orchestrator import audit

#: The outcome of what cannot be determined here.
_UNKNOWN = "could not tell"
#: The release whose notes announce it as more than a prototype.
METAL_READY = Version(2, 8)

#: Variants that were tried.
Attempts = Sequence[records.TriedVariant]
#: A run of the program without torch.compile: its dtype, and whether it is a training step.
Eager = tuple[str, bool]
#: Its audit, or why there is none.
Audit = Report | OpcheckError

#: What a portable backend does on the target, by the headline of the audit of the same run.
_EAGER_OUTCOMES = dict(zip(HEADLINES, ("fails", _UNKNOWN, "needs fallback", "", ""), strict=True))


def report(
    compiled: records.CompiledVariants,
    target: Target,
    lists: OpLists,
    tool: str,
    *,
    eager: Mapping[Eager, Audit] | None = None,
    unread: str = "",
    differing: Sequence[str] = (),
    command: str = "",
) -> records.CompileReport:
    """Judge what was compiled.

    Args:
        compiled: the variants that were tried.
        target: the release and the macOS version that they are judged for.
        lists: the op lists.
        tool: name and version of this program.
        eager: the audits of the program without torch.compile, by run.
        unread: why the target's own Metal backend could not be read.
        differing: operators that the target decomposes or lowers otherwise than the installed torch.
        command: the command line that compiles this program, without its backends.

    Raises:
        OpListError: the lists have no such torch release, or are damaged.
    """
    known, lookup = _defects_of(target, compiled), OperatorLookup(lists)
    tried = tuple(_by_audit(_on_target(attempt, target, known, lookup), eager or {}) for attempt in compiled.tried)
    externs = _judge_externs(tried, target, lookup)
    differs, mismatch = _release_mismatch(compiled, target, unread, differing)
    not_checked = [*NOT_CHECKED["always"]]
    if any(attempt.variant.backend == records.AOTINDUCTOR for attempt in tried):
        not_checked.append(NOT_CHECKED["ahead"])
    if compiled.ended:
        not_checked.append(f"{compiled.lacking} variants: {compiled.ended} ended the run")
    return records.CompileReport(
        tool=tool,
        model=compiled.model,
        target={"torch": str(target.torch), "macos": str(target.macos)},
        advice=_advice(tried, externs, target, known),
        next=_next(tried, command),
        differs=differs,
        rows=tuple(_rows(tried)),
        failures=tuple(_failures(tried, known)),
        advisories=tuple(_advisories(tried, known)),
        externs=externs,
        kernels=sum(len(graph.kernels) for attempt in tried for graph in attempt.side),
        not_checked=(*not_checked, *compiled.not_checked, *mismatch),
        compiled=replace(compiled, tried=tried),
    )


def eager_runs(tried: Iterable[records.TriedVariant]) -> tuple[Eager, ...]:
    """Return the runs without torch.compile that the variants are judged by."""
    return tuple(dict.fromkeys((v.dtype, v.training) for v in (each.variant for each in tried if _needs_audit(each))))


def _needs_audit(tried: records.TriedVariant) -> bool:
    return tried.variant.backend in records.PORTABLE or tried.outcome in _ENDED


def exit_code(report: records.CompileReport, *, each_dtype: bool = False) -> int:
    """Return 0 where each run works in Metal in some dtype; 1 where a run does not, 3 where the outcome is not known.

    Where nothing was compiled for Metal, one variant that works is enough.

    Args:
        report: the judged variants.
        each_dtype: it must work in every dtype: the user named them.
    """
    attempts = report.compiled.tried
    metal = _plain(attempts)
    variants = ((attempt.variant, attempt.outcome) for attempt in metal or attempts)
    runs = group_values(
        ((v.training, v.dtype if each_dtype else "") if metal else (), outcome) for v, outcome in variants
    )
    failing = [outcomes for outcomes in runs.values() if "works" not in outcomes]
    if not failing:
        return PASSED if runs else COULD_NOT_TELL
    return COULD_NOT_TELL if all(_UNSURE.intersection(outcomes) for outcomes in failing) else FINDINGS


#: Outcomes that say nothing of the target: this machine may be slow.
_UNSURE = frozenset({_UNKNOWN, "too long"})
#: Outcomes of a variant whose process was ended, or ended itself.
_ENDED = frozenset({"died", "too long"})


def _by_audit(tried: records.TriedVariant, eager: Mapping[Eager, Audit]) -> records.TriedVariant:
    """Return a variant that generates no code as the target runs it: its operators are those of the eager program.

    Where the audit ended, too, the program, and not the compiler, may have ended the process of a variant.
    """
    audit = eager.get((tried.variant.dtype, tried.variant.training)) if _needs_audit(tried) else None
    both_ended = tried.outcome in _ENDED and (isinstance(audit, OpcheckError) or (audit and audit.problems))
    if audit is None or not (both_ended or tried.outcome in {"works", "one shape only", "differs"}):
        return tried
    outcome, failure = _of_audit(audit)
    return replace(tried, outcome=outcome, failure=failure) if outcome else tried


def _of_audit(audit: Audit) -> tuple[str, records.CompileFailure | None]:
    """Return the outcome of a program that runs on mps without code of its own, and why; empty where it runs."""
    if isinstance(audit, OpcheckError):
        message = f"not checked on mps: the audit of this run ended: {audit.message}"
        return _UNKNOWN, records.CompileFailure(kind="harness", message=message, ours=True)
    outcome = _EAGER_OUTCOMES[audit.headline]
    group = next((group for group in audit.groups if group.status != "native"), None)
    if group is None or (outcome == _UNKNOWN and audit.problems):
        why = audit.problems[0].message if outcome == _UNKNOWN and audit.problems else audit.headline
        return outcome, records.CompileFailure(kind="audit", message=f"on mps without torch.compile: {why}")
    message = f"on mps, with or without torch.compile: {group.prints or group.because}"
    place = next((place.location for place in group.locations), None)
    location = place and replace(place, statement="")
    return outcome, records.CompileFailure(kind="audit", message=message, op=group.op, location=location)


class _Defects(NamedTuple):
    """The known defects of the target, and those that it no longer has and the Inductor that compiled may have."""

    present: tuple[CompileDefect, ...]
    mended: tuple[CompileDefect, ...]

    def cause(self, failure: records.CompileFailure) -> CompileDefect | None:
        """Return the target's defect that explains a failure."""
        text = failure.message
        explains = (d for d in self.present if text.startswith(f"{d.id}: ") or d.when.explains(text))
        return next(explains, None)

    def release_that_mended(self, failure: records.CompileFailure) -> str:
        """Return the release that fixed the failure, or empty."""
        releases = (d.torch.until for d in self.mended if d.when.explains(failure.message))
        return str(next(releases, ""))


def _defects_of(target: Target, compiled: records.CompiledVariants) -> _Defects:
    """Return the known defects; where the target's own backend wrote the kernels no failure of theirs is mended."""
    defects = DEFECTS.load().defects
    written_by = Version.parse(compiled.metal_backend or compiled.installed_torch)
    mended = (d for d in defects if d.torch.until is not None and target.torch >= d.torch.until)
    present = tuple(defect for defect in defects if target.torch in defect.torch)
    return _Defects(present, () if written_by == target.torch else tuple(mended))


def _absent(variant: records.Variant, target: Target) -> str:
    """Return what the target's Inductor lacks for a variant, or empty."""
    if target.torch < METAL_SINCE:
        return (
            f"Metal backend in Inductor (it came with {METAL_SINCE}): torch.compile(model) raises on mps, "
            "backend='aot_eager' does not"
        )
    if variant.backend == records.AOTINDUCTOR and target.torch < AHEAD_SINCE:
        return f"AOTInductor for mps (its C++ wrapper came with {AHEAD_SINCE})"
    return ""


def _on_target(
    tried: records.TriedVariant, target: Target, known: _Defects, lookup: OperatorLookup
) -> records.TriedVariant:
    """Return the variant with its outcome on the target's release and in Metal."""
    if not tried.variant.metal:
        return tried
    if absent := _absent(tried.variant, target):
        failure = records.CompileFailure(kind="backend", message=f"torch {target.torch} has no {absent}")
        return replace(tried, outcome="no backend", failure=failure, side=(), side_again=())

    def judge_graph(graph: records.SideGraph) -> records.SideGraph:
        own = (_with_defect(failure, known) for failure in (*graph.failures, *lint(graph)))
        deciding = (_list_affected(defect, (graph,)) for defect in known.present if defect.effect in DECIDING)
        met = (failure for failures in deciding for failure in itertools.islice(failures, 1))
        return replace(graph, failures=(*own, *met, *_refusals(graph, target, lookup)))

    judged = tried.with_graphs(judge_graph)
    return replace(judged, outcome=_outcome(judged, known))


def _with_defect(failure: records.CompileFailure, known: _Defects) -> records.CompileFailure:
    """Return a failure; what is wrong with the text of a kernel is preceded by the defect that explains it."""
    defect = known.cause(failure) if failure.kind == "shader" else None
    if defect is None:
        return failure
    return replace(failure, message=f"{_cause(defect)}: {failure.message}")


def _list_affected(defect: CompileDefect, graphs: Iterable[records.SideGraph]) -> Iterator[records.CompileFailure]:
    """Yield a failure for each kernel and each eager call that meets a defect."""

    def failure(op: str, source: records.FusedNode | records.Extern | None) -> records.CompileFailure:
        location, module = (source.location, source.module) if source else (None, "")
        kind, message = defect.effect, _cause(defect)
        return records.CompileFailure(kind=kind, message=message, op=op, location=location, module=module)

    for graph in graphs:
        for kernel in graph.kernels:
            ops = frozenset(node.op for node in kernel.nodes)
            calls = [node.call for node in kernel.nodes]
            if defect.when.holds_for(kernel.source, ops, calls, kernel.notes):
                located = (node for node in kernel.nodes if node.location)
                yield failure(kernel.name, next(located, next(iter(kernel.nodes), None)))
        for extern in graph.externs:
            if defect.when.holds_for_call(extern.call):
                yield failure(extern.op, extern)


def _refusals(graph: records.SideGraph, target: Target, lookup: OperatorLookup) -> Iterator[records.CompileFailure]:
    """Yield the operators that compiled code calls eagerly and that the target refuses."""
    # What Inductor calls without the dispatcher, such as a branch of torch.cond, has no namespace.
    for extern in (each for each in graph.externs if "::" in each.op):
        verdict = lookup.verdict(extern.op, target, next(iter(extern.dtypes), "float32"))
        refused = verdict.status == "unsupported"
        if refused or (verdict.kind == "env" and not target.cpu_fallback):
            how = "raises" if refused else "raises without PYTORCH_ENABLE_MPS_FALLBACK=1"
            yield records.CompileFailure(
                kind="extern" if refused else "fallback",
                message=f"compiled code calls {extern.op} eagerly, which {how} on mps",
                **pick(extern, "op", "location", "module"),
            )


def _outcome(tried: records.TriedVariant, known: _Defects) -> str:
    """Return the outcome with all that is known of the target; a failure that the target mended does not count."""
    if tried.outcome not in {"works", "fails", "one shape only"}:
        return tried.outcome
    if tried.failure is not None and tried.outcome == "fails":
        return "fails"
    first = [failure for graph in tried.side for failure in graph.failures]
    again = [failure for graph in tried.side_again for failure in graph.failures]
    counting = {f.kind for f in first if not (f.ours or known.release_that_mended(f))}
    if counting:
        lesser = (outcome for kind, outcome in _LESSER.items() if kind in counting)
        return "fails" if counting - _LESSER.keys() else next(lesser)
    # If Inductor itself raised, the graph has no kernel to judge.
    if any(failure.kind != "shader" for failure in first):
        return _UNKNOWN
    mended = tried.failure is None and all(map(known.release_that_mended, again))
    return "works" if mended else "one shape only"


#: The kinds of failures that leave a program running, the worst first, and what it then does.
_LESSER = {"wrong result": "wrong result", "fallback": "needs fallback", "perhaps wrong": _UNKNOWN}


def _advisories(tried: Attempts, known: _Defects) -> Iterator[records.Advisory]:
    compiled = [attempt for attempt in tried if attempt.side or attempt.side_again]
    for defect in known.present:
        by_variant = [(each, tuple(_list_affected(defect, (*each.side, *each.side_again)))) for each in compiled]
        affected = [place for _, places in by_variant for place in places]
        variants = [attempt for attempt, places in by_variant if places]
        if affected or (compiled and defect.when.any):
            yield records.Advisory(
                **pick(defect, "id", "effect", "summary", "links"),
                mended=str(defect.torch.until or ""),
                kernels=len(affected),
                variants=_called_together(variants) if len(variants) < len(compiled) else (),
                line=next((str(place.location) for place in affected if place.location), ""),
            )


def _rows(tried: Attempts) -> Iterator[records.VariantRow]:
    for (variant, run), members in _by_run(tried).items():
        outcomes = {member.variant.dtype: member.outcome for member in members}
        yield records.VariantRow(variant=variant, run=run, outcomes=outcomes, graphs=members[0].graphs)


def _failures(tried: Attempts, known: _Defects) -> Iterator[records.FailureGroup]:
    """Group the failures that have one cause: a known defect, or the same message but for the kernel's name."""
    met = ((attempt, failure, known.cause(failure)) for attempt in tried for failure in failures_of(attempt))
    groups = group_values(
        ((failure.kind, defect.id if defect else _KERNEL.sub("a kernel", failure.message)), (attempt, failure))
        for attempt, failure, defect in met
    )
    for members in groups.values():
        failure = members[0][1]
        failing = [attempt for attempt in tried if any(attempt is failed for failed, _ in members)]
        defect = known.cause(failure)
        links = [d.links for d in known.mended if d.when.explains(failure.message)]
        yield records.FailureGroup(
            **pick(failure, "kind", "message", "op", "module", "ours"),
            line=str(failure.location or ""),
            text=failure.location.text if failure.location else "",
            variants=_called_together(failing) if len(failing) < len(tried) else (),
            places=len({(str(f.location or f.module), f.op, f.message) for _, f in members}),
            defect=defect.id if defect else "",
            links=defect.links if defect else tuple(itertools.chain(*links)),
            mended=known.release_that_mended(failure),
        )


#: What two kernels with one fault differ in.
_KERNEL = re.compile(r"\b\w*(?:kernel|mps_lib)_\d+(?:, line \d+: [rxyz]\w+)?")


def failures_of(tried: records.TriedVariant) -> Iterator[records.CompileFailure]:
    """Yield the variant's own failure, how far its results are too far from eager's, and the failures of its graphs."""
    if tried.failure is not None:
        yield tried.failure
    for name, each in (("outputs", tried.outputs), ("gradients", tried.gradients)):
        if tried.outcome == "differs" and each is not None and not each.agrees:
            message = (
                f"on this machine the {name} differ from the eager program's by {each.compiled:.2g} of their "
                f"size; {each.allowed:.2g} is rounding"
            )
            yield records.CompileFailure(kind="differs", message=message)
    for graph in (*tried.side, *tried.side_again):
        yield from graph.failures


def _called_together(tried: Iterable[records.TriedVariant]) -> tuple[str, ...]:
    """Return each variant and run once, with its dtypes: ``inductor for Metal (training, float32 and float16)``."""
    return tuple(
        f"{name} ({run}, {join_and([*dict.fromkeys(each.variant.dtype for each in members)])})"
        for (name, run), members in _by_run(tried).items()
    )


def _by_run(tried: Iterable[records.TriedVariant]) -> dict[tuple[str, str], list[records.TriedVariant]]:
    """Return the variants by their name and way of running."""
    return group_values(((str(attempt.variant), attempt.variant.run), attempt) for attempt in tried)


def _judge_externs(tried: Attempts, target: Target, lookup: OperatorLookup) -> tuple[records.JudgedExtern, ...]:
    """Judge each operator that compiled code calls eagerly once: an extern need not be supported."""
    judged: dict[records.JudgedExtern, int] = {}
    for extern in (e for attempt in tried for graph in attempt.side for e in graph.externs):
        verdict = lookup.verdict(extern.op, target, next(iter(extern.dtypes), "float32"))
        entry = records.JudgedExtern(
            **pick(extern, "op", "dtypes", "module"),
            status=f"{verdict.status} {verdict.kind or ''}".strip(),
            because=verdict.because,
            route=lookup.operators.route(extern.op, str(target.torch)).kind,
            line=str(extern.location or ""),
        )
        judged[entry] = max(judged.get(entry, 0), extern.count)
    counted = [replace(entry, count=count) for entry, count in judged.items()]
    return tuple(sorted(counted, key=lambda e: (e.status == "native", e.op, e.line, e.module)))


def _advice(tried: Attempts, externs: Iterable[records.JudgedExtern], target: Target, known: _Defects) -> str:
    """Return which backend to use, for each run and dtype, and why not Inductor in the others."""
    metal = _plain(tried)
    if metal and all(attempt.outcome == "nothing compiled" for attempt in metal):
        return "torch.compile does nothing for this program: no graph was compiled"
    works, not_works = _ways(metal)
    why = _why_not([attempt for attempt in metal if attempt.outcome != "works"], known)
    if not works:
        return _without_inductor(tried, metal, why, known)
    prototype = " (a prototype in 2.7)" if target.torch < METAL_READY else ""
    parts = [f"use inductor{prototype} {works}{_instead(tried)}"]
    if not_works:
        outcomes = {attempt.outcome for attempt in metal} - {"works"}
        parts.append(f"not {'known ' * (outcomes <= _UNSURE)}{not_works}: {why}")
    others = {(extern.op, extern.status) for extern in externs if extern.status != "native"}
    slow = sorted({op for op, status in others if status != "unknown"})
    unknown = sorted({op for op, status in others if status == "unknown"})
    if slow:
        are = "is" if len(slow) == 1 else "are"
        parts.append(f"it calls {join_and(slow)} eagerly, which {are} not native")
    if unknown:
        parts.append(f"it calls {join_and(unknown)} eagerly without data in the op lists")
    return "; ".join([*parts, *_settings(tried, metal, known)])


def _without_inductor(tried: Attempts, metal: Attempts, why: str, known: _Defects) -> str:
    """Return the advice where Inductor works for Metal in no run: another backend, or what was tried in vain."""
    if all(attempt.failure and attempt.failure.kind == "model" for attempt in tried):
        return f"could not tell: the program raises {why or _why_not(tried, known)}"
    backend, where = _portable(tried)
    if backend and any(f.kind == "perhaps wrong" for each in metal for f in failures_of(each)):
        head = f"could not tell whether inductor is right {_ways(metal)[1]}"
        return f"{head}: {why}; backend={backend!r}{where} is not affected"
    if backend:
        return f"use backend={backend!r}{where}: {why or 'Inductor for Metal was not tried'}"
    portable = [attempt for attempt in tried if attempt.variant.backend in records.PORTABLE]
    if portable:
        # Eager operators do the same with or without torch.compile.
        head = _PORTABLE_ADVICE.get(portable[0].outcome, "torch.compile does not help")
        return f"{head}: {_why_not(portable, known)}"
    if not metal:
        return f"nothing was compiled for Metal: {_why_not(tried, known)}"
    unsure = {attempt.outcome for attempt in metal} <= _UNSURE
    head = "could not tell whether inductor works" if unsure else "do not use inductor"
    return f"{head} {_ways(metal)[1]}: {why}"


#: The advice where no backend works, by the outcome of a backend without code.
_PORTABLE_ADVICE = {"needs fallback": "only with PYTORCH_ENABLE_MPS_FALLBACK=1", _UNKNOWN: _UNKNOWN}


def _next(tried: Attempts, command: str) -> str:
    """Return the command that tries a backend that generates no code, where none was tried and Inductor fails a run."""
    runs = group_values((attempt.variant.run, attempt.outcome) for attempt in _plain(tried))
    works = runs and all("works" in outcomes for outcomes in runs.values())
    if not command or works or any(attempt.variant.backend in records.PORTABLE for attempt in tried):
        return ""
    return f"{command} --backend {records.PORTABLE[0]}"


def _plain(tried: Attempts) -> list[records.TriedVariant]:
    """Return what decides: Inductor for Metal as torch.compile calls it; else what was tried for Metal."""
    metal = [attempt for attempt in tried if attempt.variant.metal]
    return [attempt for attempt in metal if _setting(attempt.variant) == ""] or metal


def _setting(variant: records.Variant) -> str:
    """Return how a variant for Metal differs from the usual variant, in words."""
    return str(variant).replace(str(replace(records.METAL, run_metal=variant.run_metal)), "").strip()


def _settings(tried: Attempts, plain: Attempts, known: _Defects) -> Iterator[str]:
    """Yield the settings that make Inductor for Metal fail in a run that works without them, and why."""
    worked = {(each.variant.run, each.variant.dtype) for each in plain if each.outcome == "works"}
    others = (each for each in tried if each.variant.metal and each.outcome != "works" and each not in plain)
    failing = (each for each in others if (each.variant.run, each.variant.dtype) in worked)
    for name, attempts in group_values((_setting(each.variant), each) for each in failing).items():
        yield f"not with {name}: {_why_not(attempts, known)}"


def _ways(attempts: Attempts, enough: Container[str] = ("works",)) -> tuple[str, str]:
    """Return the runs and dtypes where every variant works, and the rest, in words.

    Args:
        attempts: the variants.
        enough: the outcomes that count as working.
    """
    runs: dict[str, dict[str, bool]] = {}
    for each in attempts:
        dtypes = runs.setdefault(each.variant.run, {})
        dtypes[each.variant.dtype] = dtypes.get(each.variant.dtype, True) and each.outcome in enough
    return _in_words(runs, works=True), _in_words(runs, works=False)


def _in_words(runs: Mapping[str, Mapping[str, bool]], *, works: bool) -> str:
    """Return ``with float32``, ``in inference`` or ``in training with float16``; empty where there are none."""
    chosen = {run: [d for d, outcome in runs[run].items() if outcome is works] for run in runs}
    if len({tuple(dtypes) for dtypes in chosen.values()}) == 1:
        dtypes = next(iter(chosen.values()))
        return f"with {join_and(dtypes)}" if dtypes else ""
    parts = {run: f" with {join_and(dtypes)}" if len(dtypes) < len(runs[run]) else "" for run, dtypes in chosen.items()}
    return join_and([f"in {run}{part}" for run, part in parts.items() if chosen[run]])


def _instead(tried: Attempts) -> str:
    """Return the backend for a run without a dtype that Inductor for Metal can compile, in words."""
    text = ""
    for run in dict.fromkeys(attempt.variant.run for attempt in tried):
        members = [attempt for attempt in tried if attempt.variant.run == run]
        metal = {attempt.outcome for attempt in members if attempt.variant.metal}
        portable, _ = _portable(members)
        if metal and "works" not in metal and portable:
            text += f", backend={portable!r} in {run}"
    return text


def _portable(tried: Attempts) -> tuple[str, str]:
    """Return the first backend that generates no code and works, and where, if not wherever it was tried.

    It does the same on mps.  A backend that works everywhere comes first.
    """
    partly = ("", "")
    for backend in records.PORTABLE:
        whole = [each for each in tried if each.variant.backend == backend]
        members = [each for each in whole if not each.variant.fullgraph]
        works, not_works = _ways(members, ("works", "one shape only"))
        if works and not not_works:
            return backend, ""
        if works and not partly[0]:
            partly = backend, f" {works}"
    return partly


def _why_not(attempts: Attempts, known: _Defects) -> str:
    """Return why a variant does not work: what decided its outcome, rather than a limit of opcheck's."""

    def weight(reason: tuple[records.CompileFailure, records.TriedVariant]) -> tuple[bool, bool, bool]:
        failure, attempt = reason
        decides = attempt.outcome in {failure.kind, _LESSER.get(failure.kind, "fails")}
        unsure = failure.ours or failure.kind in {"timeout", "died"}
        return bool(known.release_that_mended(failure)), unsure, not decides

    reasons = [(failure, attempt) for attempt in attempts for failure in failures_of(attempt)]
    if not reasons:
        return next((f"{_called_together([each])[0]}: {each.outcome}" for each in attempts), "")
    failure = min(reasons, key=weight)[0]
    # A known defect is the reason, not the kernel that met it.
    causes = map(_cause, DEFECTS.load().defects)
    message = next((c for c in causes if failure.message.startswith(c)), failure.message)
    until = known.release_that_mended(failure)
    return message + (f"; torch {until} fixes it: install that release and compile again" if until else "")


def _cause(defect: CompileDefect) -> str:
    return f"{defect.id}: {defect.summary.rstrip('.')}"


def _release_mismatch(
    compiled: records.CompiledVariants, target: Target, unread: str, differing: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Return where the target differs from the torch that compiled for it, and what that leaves unchecked."""
    installed, metal = compiled.installed_torch, compiled.metal_backend
    if Version.parse(installed) == target.torch:
        return "", ()
    differs = (
        f"torch {target.torch} decomposes or lowers {and_more(differing, 6)} differently from torch {installed}, "
        "which compiled it here: --exact uses the target's own"
    )
    versions = {"target": target.torch, "installed": installed, "metal": metal}
    words = {"operators": and_more(differing, 20) or "none", "why": f" ({unread})" if unread else ""}
    unchecked: str = NOT_CHECKED["own_metal" if metal else "other_metal"].format(**versions, **words)
    return differs if differing else "", (unchecked,)


def audits(
    request: CaptureRequest, runs: Iterable[Eager], lists: OpLists, progress: Callable[[str], None] | None
) -> dict[Eager, Audit]:
    """Audit the program without torch.compile in each run; of a run that cannot be captured, why."""
    reports: dict[Eager, Audit] = {}
    for dtype, training in runs:
        if progress:
            progress(f"auditing the program in {dtype}, {'training' if training else 'inference'}")
        mode: Mode = "train" if training else "inference"
        try:
            reports[dtype, training] = audit(replace(request, dtype=dtype, mode=mode), lists)
        except OpcheckError as error:
            reports[dtype, training] = error
    return reports
