"""What ``opcheck compare`` found, as a page."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from opcheck.common.text import plural
from opcheck.numerics.compare.records import NOT_WRITTEN, headline
from opcheck.render.document import Block, Bullets, Document, Heading, Lines, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.numerics.compare.records import Comparison, Operator, Time, Wrong

#: rows of the tables of operators and of times
_MOST = 20


def document(found: Comparison) -> Document:
    """The page: the first wrong operator, then the others, then what was compared and how."""
    return tuple(_blocks(found))


def _blocks(found: Comparison) -> Iterator[Block]:
    machine = found.machine
    yield Heading(f"{found.model} on {machine.device}, beside float64 on the CPU", 1)
    yield Lines((f"{headline(found)}.", *_run(found)))
    if found.wrong:
        yield Heading("Wrong, in the order of the run")
        yield Bullets(tuple(_wrong(mismatch) for mismatch in found.wrong))
    if found.reproducer is not None:
        yield Heading("Reproducer")
        yield Bullets(tuple(_reproducer(found)))
    yield Heading("Operators, the least exact first")
    yield from _operators(found)
    reasons: Counter[str] = Counter()
    for operator in found.operators:
        reasons.update(operator.reasons)
    if reasons:
        yield Heading("Not compared")
        yield Bullets(
            tuple(f"{plural(n, 'call')}: {reason}" for reason, n in reasons.most_common())
        )
    if found.times:
        yield Heading("Time, the most lost on the device first")
        yield from _times(found)
    yield Heading("How it was compared")
    yield Bullets((*_tolerances(found), *found.notes))


def _run(found: Comparison) -> Iterator[str]:
    machine = found.machine
    name = f" ({machine.device_name})" if machine.device_name else ""
    yield (
        f"{machine.device}{name}, {machine.os} {machine.os_version} {machine.arch}, torch "
        f"{machine.torch}; {found.mode}, {found.dtype or 'no floating weights'}"
    )
    if found.inputs:
        note = f" ({found.inputs_note})" if found.inputs_note else ""
        yield f"inputs: {', '.join(found.inputs)}{note}"
    if found.loss:
        yield f"loss: {found.loss}"
    counts = [
        f"{found.outcomes[name]:,} {text}" for name, text in _OUTCOMES if found.outcomes.get(name)
    ]
    yield f"{plural(found.calls, 'call')}: {', '.join(counts) or 'none'}"
    aside = [
        f"{plural(found.views, 'view')}" if found.views else "",
        f"{plural(found.elsewhere, 'call')} on the CPU alone" if found.elsewhere else "",
    ]
    if any(aside):
        yield f"beside them, not judged: {', '.join(filter(None, aside))}"
    if not found.complete:
        yield f"The run {found.problem}; what follows was not seen."


_OUTCOMES = (
    ("wrong", "wrong"),
    ("agrees", "within the tolerance"),
    ("loose", "beyond it, as the CPU's own kernels are in that dtype"),
    ("not compared", "not compared"),
)


def _wrong(one: Wrong) -> str:
    place = one.place
    where = (
        f"{place.location}: {place.location.text}" if place.location else "no line of the model's"
    )
    module = f", module {place.module}" if place.module else ""
    error = "" if one.error is None else f"; {one.error:g} tolerances"
    cpu = "" if one.error_cpu is None else f", the CPU in {one.dtype}: {one.error_cpu:g}"
    return (
        f"{one.op}, {place.phase}, call {one.first + 1}"
        f"{f' and {place.count - 1} more' if place.count > 1 else ''}, {where}{module} -- "
        f"{one.kind}: result {one.output} at {list(one.element)} is {one.found}, exact {one.exact}"
        f"{error}{cpu} -- inputs {', '.join(one.inputs) or 'none'}"
    )


def _reproducer(found: Comparison) -> Iterator[str]:
    reproducer = found.reproducer
    assert reproducer is not None
    if reproducer.state == NOT_WRITTEN:
        yield f"of the first wrong call, {reproducer.state}: {reproducer.detail}"
        return
    yield f"{reproducer.path}/repro.py, with its inputs beside it; it needs torch alone"
    yield f"run alone, it {reproducer.state}{f': {reproducer.detail}' if reproducer.detail else ''}"


def _operators(found: Comparison) -> Iterator[Block]:
    worst: dict[str, float] = {}
    for wrong in found.wrong:
        worst[wrong.op] = max(worst.get(wrong.op, 0.0), inf if wrong.error is None else wrong.error)
    errors = {
        operator.op: max(operator.error or 0.0, worst.get(operator.op, 0.0))
        for operator in found.operators
    }
    rows = sorted(found.operators, key=lambda one: (one.op not in worst, -errors[one.op]))
    compared = [row for row in rows if row.op in worst or row.error is not None]
    heads = ("operator", "calls", "wrong", "loose", "tolerances", "not compared")
    cells = (_operator(one, errors[one.op]) for one in compared[:_MOST])
    yield Table(heads, tuple(cells), code=(0,))
    if len(compared) > _MOST:
        yield Lines((f"and {plural(len(compared) - _MOST, 'operator')} with smaller errors",))


def _operator(one: Operator, error: float) -> tuple[str, ...]:
    wrong, loose, aside = (
        str(one.outcomes.get(name, "")) for name in ("wrong", "loose", "not compared")
    )
    return one.op, str(one.calls), wrong, loose, f"{error:.3g}", aside


def _times(found: Comparison) -> Iterator[Block]:
    device = found.machine.device
    if device == "cpu":
        cells = (
            (timing.op, str(timing.calls), f"{1000 * timing.device:.3f}") for timing in found.times
        )
        yield Table(("operator", "calls", "cpu ms"), tuple(cells)[:_MOST], code=(0,))
        return
    heads = ("operator", "calls", f"{device} ms", "cpu ms", "lost ms", "times faster")
    yield Table(heads, tuple(_time(timing) for timing in found.times[:_MOST]), code=(0,))
    known = [timing for timing in found.times if timing.cpu is not None]
    here, cpu = sum(time.device for time in known), sum(one.cpu or 0.0 for one in known)
    together = f"together {1000 * here:.2f} ms on {device}, {1000 * cpu:.2f} ms on the CPU"
    yield Lines((f"{together}; each call by itself, waited for: in a model they overlap",))


def _time(one: Time) -> tuple[str, ...]:
    device = f"{1000 * one.device:.3f}"
    if one.cpu is None:
        return one.op, str(one.calls), device, "no kernel", "", ""
    ratio = f"{one.cpu / one.device:.2g}" if one.device else ""
    return one.op, str(one.calls), device, f"{1000 * one.cpu:.3f}", f"{1000 * one.lost:.3f}", ratio


def _tolerances(found: Comparison) -> Iterator[str]:
    for dtype in found.dtype.split(", "):
        if dtype in found.tolerances:
            share, of_all = found.tolerances[dtype]
            yield (
                f"one tolerance in {dtype}: {share:g} of the exact element and {of_all:g} of the result's "
                "root mean square (after the numbers of torch.testing.assert_close)"
            )
    beyond, times = found.allowed
    if found.machine.device == "cpu":
        yield f"wrong: more than {times:g} tolerances; whole numbers: any difference"
    else:
        yield (
            f"wrong: more than {beyond:g} tolerances, and more than {times:g} times what the CPU loses in "
            "the same dtype; whole numbers: any difference that is no tie"
        )
