"""Compare the cost of a model on a target with its cost when the baseline was written."""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from opcheck.common.text import duration
from opcheck.data.chips import load_chips, load_parameters
from opcheck.features.gate.gate_records import GateCell
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED
from opcheck.judge.timing.estimates import estimate, middle
from opcheck.model.options import Option
from opcheck.model.records import Count, Record, Report

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
