"""Makes the gate's report of the jobs' results: applies ignores, baseline and policies to each cell."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from opcheck.common.tool import TOOL
from opcheck.features.gate.costs import compare_costs, cost_of, with_growth
from opcheck.features.gate.gate_baseline import Baseline
from opcheck.features.gate.gate_records import GateCell, GateReport
from opcheck.features.gate.jobs import JobResult
from opcheck.features.gate.settings import (
    GateModel,
    GateSettings,
    Planned,
    library_text,
    targets_of,
)
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED, Policy, judge_report
from opcheck.model.ignores import Ignores
from opcheck.model.records import Report

PolicyOf = Callable[[GateModel, Planned], Policy]


def report(
    plan: GateSettings,
    results: Mapping[str, JobResult],
    policy_of: PolicyOf,
    ignores: Ignores,
    *,
    op_lists: str,
    whole: bool,
    baseline: Baseline | None = None,
    max_slowdown: float | None = None,
) -> GateReport:
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
    left = tuple(
        name for model in plan.models for name in jobs_of(model, plan) if name not in results
    )
    notes = [*plan.left_out, *ignores.list_expired()]
    # A partial run cannot know which entries are unused.
    if whole and not left and all(cell.report is not None for cell in cells):
        notes += ignores.list_unused()
    if baseline and baseline.op_lists != op_lists:
        notes.append(
            f"the baseline was made with other op lists ({baseline.op_lists}; these are {op_lists})"
        )
    for index, cell in enumerate(cells if baseline else ()):
        assert baseline is not None
        if cell.report is not None:
            before = baseline.cost_on(cell.model, cell.target)
            growth = compare_costs(before, cost_of(cell.report), max_slowdown)
            if max_slowdown is None:
                notes += [f"{cell.model} on {cell.target}: {each}" for each in growth]
            else:
                cells[index] = with_growth(cell, growth)
    codes = {cell.code for cell in cells} | ({COULD_NOT_TELL} if left else set())
    return GateReport(
        tool=TOOL,
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
    model: GateModel,
    planned: Sequence[Planned],
    result: JobResult,
    policy_of: PolicyOf,
    ignores: Ignores,
    baseline: Baseline | None,
) -> Sequence[GateCell]:
    if (failed := result.failed) is not None:
        return [
            GateCell(
                model=model.name,
                target=each.label,
                libraries=result.libraries,
                headline="could not tell",
                code=COULD_NOT_TELL,
                reasons=(failed.message,),
                **dict.fromkeys(("against", "known", "fixed"), ()),
                failed=failed,
                report=None,
            )
            for each in planned
        ]
    return [
        _cell(
            model.name,
            each.label,
            result.libraries,
            made,
            policy_of(model, each),
            ignores,
            baseline,
        )
        for each, made in zip(planned, result.reports, strict=True)
    ]


def jobs_of(model: GateModel, plan: GateSettings) -> dict[str, tuple[Planned, ...]]:
    """Return the jobs of a model by name, with their targets; each combination of libraries is a job."""
    by_libraries: dict[tuple[str, ...], list[Planned]] = {}
    for each in targets_of(model, plan.targets):
        by_libraries.setdefault(each.libraries, []).append(each)
    return {
        ", ".join((model.name, *map(library_text, libraries))): tuple(planned)
        for libraries, planned in by_libraries.items()
    }


def _cell(
    name: str,
    target: str,
    libraries: tuple[str, ...],
    made: Report,
    policy: Policy,
    ignores: Ignores,
    baseline: Baseline | None,
) -> GateCell:
    ignores.read(
        place.location.file for group in made.groups for place in group.locations if place.location
    )
    marked = replace(made, findings=ignores.mark_ignored(made.findings, model=name))
    known = baseline.known_on(name, target) if baseline else ()
    here = {name for finding in marked.findings for name in finding.fingerprints}
    carried = baseline.carried_to(name, target, marked.findings) if baseline else ()
    names = (*(entry.fingerprint for entry in known), *carried)
    judged = judge_report(marked, policy, names)
    return GateCell(
        model=name,
        target=target,
        libraries=libraries,
        headline=marked.headline,
        **msgspec.structs.asdict(judged),
        known=tuple(own for own in names if own in here),
        # A finding that an incomplete run did not reach is not fixed.
        fixed=tuple(entry for entry in known if entry.fingerprint not in here)
        if marked.capture.complete
        else (),
        failed=None,
        report=marked,
    )
