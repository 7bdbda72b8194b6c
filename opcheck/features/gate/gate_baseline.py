"""The baseline: known findings in a file that is reviewed like code; the gate fails only on others.

The file is YAML, or JSON by its suffix: ``opcheck-baseline/1``.  A finding is known on the targets
in its entry, and on a target that the file does not have, if it is not worse there.  On another
target of the file it is new.  Fingerprints (fingerprint.py) are compared; the rest is for readers.
"""

import itertools
import json
import operator
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from opcheck.common import tool
from opcheck.common.files import write_text
from opcheck.common.text import duration
from opcheck.common.vocabulary import SEVERITIES
from opcheck.common.yaml_text import dump
from opcheck.data.chips import load_chips, load_parameters
from opcheck.features.gate.gate_records import GateCell, Known
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED, speaks_of_calls
from opcheck.judge.timing.estimates import estimate, middle
from opcheck.model.fingerprint import VERSION, read_baseline
from opcheck.model.options import Option
from opcheck.model.records import Count, Finding, Record, Report

#: The chip whose estimates are compared: the ratio of two estimates hardly depends on it.
CHIP = "M4"
#: A growth that is reported without a limit.
_NOTED = 1.25

MAX_SLOWDOWN = Option(
    "Fail where launches or estimated time grow beyond so many times the baseline.",
    metavar="FACTOR",
    above=1,
)


class Cost(Record, frozen=True, kw_only=True):
    """The whole run of a model on a target."""

    launches: Count
    waits: Count
    seconds: Annotated[
        float, msgspec.Meta(ge=0, description=f"the middle of the estimate for {CHIP}")
    ]


def cost_of(report: Report) -> Cost | None:
    """Return the cost of a report's run; None: its calls were not kept, or it broke off.

    Raises:
        OpListError: a list is damaged.
    """
    gpus, parameters = load_chips()[CHIP].gpus, load_parameters()
    parts = [estimate(work, CHIP, gpus, parameters) for work in report.workloads]
    if not parts:
        return None
    return Cost(
        launches=sum(part.launches for part in parts),
        waits=sum(part.waits for part in parts),
        seconds=float(f"{sum(map(middle, parts)):.3g}"),
    )


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
        "seconds": f"estimated time than the baseline (about {_on_chip(before)} then, "
        f"{_on_chip(after)} now on {CHIP})",
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


def with_growth(cell: GateCell, growth: tuple[str, ...]) -> GateCell:
    """Return a cell whose cost grew by more than is allowed."""
    if not growth:
        return cell
    code = FINDINGS if cell.code in {PASSED, COULD_NOT_TELL} else cell.code
    return replace(cell, code=code, reasons=(*cell.reasons, *growth))


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
    models: dict[str, tuple[Known, ...]] = {}
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
    text = (
        json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        if path.suffix == ".json"
        else dump(content)
    )
    write_text(path, text)


def update_baseline(
    before: Baseline | None, cells: Collection[GateCell], op_lists: str, *, whole: bool
) -> Baseline:
    """Return the baseline with every counted, not ignored finding of these cells.

    Of a cell whose report is missing or not whole, what was known stays; so does, where the run was not ``whole``, what
    is known of models and targets that were not in it.
    """
    known: dict[str, dict[str, Known]] = {}
    judged = {(cell.model, cell.target): cell for cell in cells}
    for model, entries in before.models.items() if before else ():
        for entry in entries:
            cells_of_entry = ((target, judged.get((model, target))) for target in entry.targets)
            stays = [
                target
                for target, cell in cells_of_entry
                if (not _is_whole(cell) if cell else not whole)
            ]
            _add(known, model, entry, stays)
    for cell in judged.values():
        if cell.report is not None and _is_whole(cell):
            for entry in known_in(cell.report):
                _add(known, cell.model, entry, [cell.target])
    costs = {model: dict(of_model) for model, of_model in before.costs.items()} if before else {}
    for cell in judged.values():
        cost = cost_of(cell.report) if cell.report is not None and _is_whole(cell) else None
        if cost is not None:
            costs.setdefault(cell.model, {})[cell.target] = cost
    order = operator.attrgetter("rule", "op", "where", "line", "fingerprint")
    seen = {*(before.targets if before else ()), *(c.target for c in cells if _is_whole(c))}
    return Baseline(
        op_lists=op_lists,
        targets=tuple(sorted(seen, key=_numbers)),
        models={model: tuple(sorted(known[model].values(), key=order)) for model in sorted(known)},
        costs={model: dict(sorted(costs[model].items())) for model in sorted(costs)},
    )


def known_in(report: Report) -> Iterator[Known]:
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
                yield Known(
                    fingerprint=name,
                    rule=finding.rule,
                    op=finding.op,
                    where=" ".join(filter(None, parts)),
                    line=where.text.strip() if where else "",
                    severity=finding.severity,
                )


def _is_whole(cell: GateCell) -> bool:
    return cell.report is not None and cell.report.capture.complete


def _add(
    known: dict[str, dict[str, Known]], model: str, entry: Known, targets: Iterable[str]
) -> None:
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
