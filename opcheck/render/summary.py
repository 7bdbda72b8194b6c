"""The sentences of a report that several formats share."""

from __future__ import annotations

import shlex

from opcheck.common.sanitize import one_line
from opcheck.common.text import and_more, filesize, plural
from opcheck.judge.judge import OUTCOMES
from opcheck.model.records import CaptureFacts, GroupLocation, Report


def headline(report: Report) -> str:
    """Return a line that begins with our own words, so that no model's name reads as a command."""
    return f"{report.headline}: {one_line(report.model)} on {report.target}"


def totals(report: Report) -> str:
    """Return ``12 calls of 3 operators: 11 native, 1 unknown``; no percentage without its denominator."""
    numbers = report.totals
    shares = [
        f"{numbers[f'{status}_{kind}' if kind else status]:,} {row.label}"
        for (status, kind), row in OUTCOMES.items()
        if numbers[f"{status}_{kind}" if kind else status]
    ]
    return (
        f"{plural(numbers['calls'], 'call')} of {plural(numbers['operators'], 'operator')}"
        + (": " if shares else "")
        + "; ".join(shares)
    )


#: What a program's run was, by its tracer.
_RUNS = {
    "emulator": "a run on an emulated Mac",
    "log": "read in what a Mac printed",
    "mac": "a run observed on this Mac",
    "stand-in": "a run observed on an emulated Mac, to test the observation",
}

#: Tracers that know of copies what was printed of them.
_UNCOUNTED = ("log", "mac", "stand-in")


def capture(report: Report) -> str:
    """Say how the calls were captured, and with what."""
    facts = report.capture
    size = f"{facts.parameters:,} parameters"
    given = f", inputs {', '.join(facts.inputs)}" if facts.inputs else ""
    given += f" ({facts.inputs_note})" if facts.inputs_note else ""
    given += f", called for {'; '.join(facts.called)}" if facts.called else ""
    end = "" if facts.complete else ", broke off before its end"
    if facts.mode == "run":
        how = _RUNS.get(facts.tracer, _RUNS["emulator"])
        return how + (f", torch {facts.installed_torch}" if facts.installed_torch else "") + end
    parts = (
        facts.mode,
        facts.optimizer and f"optimizer {facts.optimizer}",
        facts.autocast and f"autocast {facts.autocast}",
        facts.loss and f"loss: {facts.loss}",
    )
    mode = ", ".join(filter(None, parts))
    return f"{mode}, tracer {facts.tracer}, {_environment(facts)}, {size}{given}{end}"


def _environment(facts: CaptureFacts) -> str:
    """Name the torch that ran, and with --exact the libraries of its environment."""
    torch = f"torch {facts.installed_torch}"
    if "--exact" not in facts.flags:
        return torch
    libraries = (f"{name} {version}" for name, version in facts.packages.items() if name != "torch")
    return f"in an environment of its own with {', '.join((torch, *libraries))}"


def transfers(report: Report) -> str:
    """Count the copies of the fallbacks, or say that there are none."""
    partition = report.partition
    if not partition.transfers_to_cpu + partition.transfers_to_mps:
        counted = report.capture.tracer not in _UNCOUNTED
        return (
            "no copies by a CPU fallback"
            if counted
            else "what CPU fallbacks copied was not told apart"
        )
    regions = sum(region.side == "cpu" for region in partition.regions)
    return (
        f"{plural(partition.transfers_to_cpu, 'copy')} to the CPU "
        f"({filesize(partition.bytes_to_cpu)}), "
        f"{partition.transfers_to_mps:,} back ({filesize(partition.bytes_to_mps)})"
        # Of a run that was counted, not kept, nobody knows how its calls hang together.
        + (f", around {plural(regions, 'CPU region')}" if regions else "")
    )


def evidence(report: Report) -> str:
    """Name the wheel that the registrations were read from, and say how old that data is."""
    lists = report.op_lists
    return (
        f"registrations of {lists.wheel} (sha256 {lists.sha256[:12]}), "
        f"built {lists.built}; op lists {lists.digest[:12]}"
    )


def certain_statements(report: Report) -> frozenset[str]:
    """Return the limitations and advisories that some call certainly meets."""
    return frozenset(entry.detail for group in report.groups for entry in group.verdict.evidence)


def statements(report: Report) -> list[tuple[str, str]]:
    """Write a line for each limitation and advisory that operators meet or may meet: who, and what.

    A statement that no call certainly meets says so. A statement that the lists do not describe,
    such as a refusal of the capture, has its id alone.
    """
    operators: dict[str, list[str]] = {}
    for group in report.groups:
        for name in (*group.verdict.limitations, *group.verdict.advisories):
            operators.setdefault(name, []).append(group.op)
    certain = certain_statements(report)
    lines = []
    for name in sorted(operators):
        who = and_more(sorted(set(operators[name])), 3)
        statement = report.statements.get(name)
        perhaps = "" if name in certain else " (perhaps)"
        lines.append((name, f"{who}{perhaps}: {statement.summary}" if statement else who))
    return lines


#: Where a call is made that no line of the program makes.
_NOWHERE = {
    "move": "as it is moved to mps",
    "forward": "in forward",
    "backward": "in backward",
    "optimizer": "in the optimizer step",
}


def place(entry: GroupLocation) -> str:
    """Return ``file:line in function (module)``, with the count where it is more than one.

    A call of backward has the line of the forward call that it belongs to, and says so.
    """
    where = entry.location
    parts = [str(where) if where else f"(no line of the program: {_NOWHERE[entry.phase]})"]
    # What a torch.autograd.Function does in its backward stands at its own line.
    if where and entry.phase == "backward" and not where.function.endswith("backward"):
        parts.insert(0, "in the backward of")
    if where and where.function:
        parts.append(f"in {where.function}")
    if entry.module:
        parts.append(f"({entry.module})")
    if entry.count > 1:
        parts.append(f"x{entry.count:,}")
    return " ".join(parts)


def next_command(report: Report) -> str:
    """Return what to run now: the page of the worst finding, or the gate that keeps a good result."""
    worst = next(iter(report.findings), None)
    if worst is not None and worst.severity != "note":
        return f"opcheck explain {worst.rule}"
    if report.capture.mode == "run" and report.capture.tracer != "emulator":
        return (
            "opcheck verify PREDICTION.json OBSERVATION.json, with an audit's report and this one"
        )
    if report.capture.mode == "run":
        return (
            "keep it so in CI: opcheck run --fail-on fallback, or the pytest fixture mps_emulated"
        )
    words = ["opcheck", "audit", report.model, *report.capture.flags]
    words += ["--torch", report.target.torch, "--macos", report.target.macos]
    return shlex.join([*words, "--fail-on", "fallback"])
