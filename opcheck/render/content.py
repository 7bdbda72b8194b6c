"""The report as plain data, schema ``opcheck-report/1``: what YAML and JSON both write."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from opcheck.judge.examples import example_content
from opcheck.model.fingerprint import fingerprints
from opcheck.model.records import (
    CallGroup,
    Finding,
    GroupLocation,
    Memory,
    Precision,
    PrecisionLine,
    Report,
)


def as_dict(report: Report) -> dict[str, object]:
    """Everything in the report but its graph as dicts, lists and scalars; every key always present."""
    return {
        "schema": report.schema,
        "tool": report.tool,
        "headline": report.headline,
        "model": report.model,
        "target": dict(report.target),
        "totals": dict(report.totals),
        "findings": [
            finding_content(finding, own)
            for finding, own in zip(report.findings, fingerprints(report.findings), strict=True)
        ],
        "calls": [_group(group) for group in report.groups],
        "statements": {name: dict(said) for name, said in report.statements.items()},
        "partition": {
            **msgspec.to_builtins(report.partition),
            "regions": [msgspec.to_builtins(region) for region in report.partition.regions],
        },
        "memory": _memory(report.memory) if report.memory else None,
        "precision": [_finite(_precision(run)) for run in report.precision],
        "capture": msgspec.to_builtins(report.capture),
        "op_lists": msgspec.to_builtins(report.op_lists),
        "not_checked": list(report.not_checked),
        "problems": [
            {
                "kind": problem.kind,
                "message": problem.message,
                "line": str(problem.location or ""),
                "module": problem.module,
            }
            for problem in report.problems
        ],
    }


def _group(group: CallGroup) -> dict[str, object]:
    verdict = group.verdict
    return {
        "op": group.op,
        "status": verdict.status,
        "kind": verdict.kind,
        "because": verdict.because,
        "count": group.count,
        "named": verdict.named,
        "prints": verdict.prints,
        "confidence": verdict.confidence,
        "evidence": [msgspec.to_builtins(entry) for entry in verdict.evidence],
        "limitations": list(verdict.limitations),
        "advisories": list(verdict.advisories),
        "dtypes": list(group.dtypes),
        "phases": list(group.phases),
        "locations": [_location(place) for place in group.locations],
        "example": example_content(group.example) if group.example else None,
    }


def _memory(memory: Memory) -> dict[str, object]:
    """All sizes in bytes, but a Mac's memory, which is in GB."""
    return {
        "asked": memory.asked,
        "peaks": [
            {
                "phase": peak.phase,
                "total": peak.total,
                "held": dict(peak.held),
                "op": peak.op,
                "location": _location(peak.place) if peak.place else None,
            }
            for peak in memory.peaks
        ],
        "holders": [
            {
                "kind": holder.kind,
                "bytes": holder.nbytes,
                "tensors": holder.tensors,
                "op": holder.op,
                "location": _location(holder.place),
            }
            for holder in memory.holders
        ],
        "largest": memory.largest,
        "macs": [
            {
                "memory": mac.memory,
                "working_set": mac.working_set,
                "limit": mac.limit,
                "basis": mac.basis,
                "state": mac.state,
                "prints": mac.prints,
                "location": _location(mac.place) if mac.place else None,
            }
            for mac in memory.macs
        ],
        "advice": list(memory.advice),
        "notes": list(memory.notes),
    }


def _precision(run: Precision) -> dict[str, object]:
    """Errors are relative, of norms."""
    return {
        "dtype": run.dtype,
        "limit": run.limit,
        "calls": run.calls,
        "divergence": _precision_line(run.divergence) if run.divergence else None,
        "crossing": _precision_line(run.crossing) if run.crossing else None,
        "events": [
            {
                "kind": event.kind,
                "op": event.op,
                "elements": event.elements,
                "of": event.of,
                "location": _location(event.place),
            }
            for event in run.events
        ],
        "lines": [_precision_line(line) for line in run.lines],
        "modules": [msgspec.to_builtins(module) for module in run.modules],
        "outputs": dict(run.outputs),
        "loss": run.loss,
        "gradients": dict(run.gradients),
        "complete": run.complete,
        "notes": list(run.notes),
    }


def _finite(content: Any) -> Any:
    """Plain data in which a number that JSON cannot write is a word."""
    if isinstance(content, float) and not math.isfinite(content):
        return str(content).removeprefix("-")
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    return [_finite(value) for value in content] if isinstance(content, list) else content


def _precision_line(line: PrecisionLine) -> dict[str, object]:
    return {
        "op": line.op,
        "local": line.local,
        "inherited": line.inherited,
        "total": line.total,
        "location": _location(line.place),
    }


def finding_content(finding: Finding, own: tuple[str, ...]) -> dict[str, object]:
    """One finding and its fingerprints; every key always present."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "message": finding.message,
        "hint": finding.hint,
        "remedy": finding.remedy,
        "op": finding.op,
        "prints": finding.prints,
        "count": finding.count,
        "locations": [_location(place) for place in finding.locations],
        "fingerprints": list(own),
        "ignored": finding.ignored,
    }


def _location(place: GroupLocation) -> dict[str, object]:
    where = place.location
    return {
        "line": str(where or ""),
        "function": where.function if where else "",
        "text": where.text if where else "",
        "module": place.module,
        "phase": place.phase,
        "count": place.count,
    }
