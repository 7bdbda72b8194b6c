"""The answer to ``opcheck compare`` as a page."""

from collections import Counter
from collections.abc import Iterator
from math import inf

from opcheck.common.text import plural
from opcheck.numerics.compare.comparison_records import NOT_WRITTEN, ComparedOperator, DeviceComparison, Wrong, headline
from opcheck.render.document import Block, Bullets, Column, Heading, Lines, Table, section, table_of

#: rows of the tables of operators and of times
_MOST = 20


def document(comparison: DeviceComparison) -> Iterator[Block]:
    """Make the page: the first wrong operator, then the others, then what was compared and how."""
    machine = comparison.machine
    yield Heading(f"{comparison.model} on {machine.device} compared with float64 on the CPU", 1)
    yield Lines((f"{headline(comparison)}.", *_run(comparison)))
    yield from section("Wrong, in the order of the run", Bullets(tuple(map(_wrong, comparison.wrong))))
    yield from section("Reproducer", Bullets(tuple(_reproducer(comparison))))
    yield Heading("Operators, the least exact first")
    yield from _operators(comparison)
    reasons: Counter[str] = Counter()
    for operator in comparison.operators:
        reasons.update(operator.reasons)
    left_out = (f"{plural(n, 'call')}: {reason}" for reason, n in reasons.most_common())
    yield from section("Not compared", Bullets(tuple(left_out)))
    if comparison.times:
        yield Heading("Time, the most lost on the device first")
        yield from _times(comparison)
    yield Heading("How it was compared")
    yield Bullets((*_tolerances(comparison), *comparison.notes))


def _run(comparison: DeviceComparison) -> Iterator[str]:
    machine = comparison.machine
    name = f" ({machine.device_name})" if machine.device_name else ""
    yield (
        f"{machine.device}{name}, {machine.os} {machine.os_version} {machine.arch}, torch "
        f"{machine.torch}; {comparison.mode}, {comparison.dtype or 'no floating weights'}"
    )
    if comparison.inputs:
        note = f" ({comparison.inputs_note})" if comparison.inputs_note else ""
        yield f"inputs: {', '.join(comparison.inputs)}{note}"
    if comparison.loss:
        yield f"loss: {comparison.loss}"
    numbers = comparison.outcomes
    counts = [f"{numbers[name]:,} {text}" for name, text in _OUTCOMES if numbers.get(name)]
    yield f"{plural(comparison.calls, 'call')}: {', '.join(counts) or 'none'}"
    aside = [plural(comparison.views, "view")] if comparison.views else []
    if comparison.elsewhere:
        aside.append(f"{plural(comparison.elsewhere, 'call')} on the CPU alone")
    if aside:
        yield f"also, not judged: {', '.join(aside)}"
    if not comparison.complete:
        yield f"The run {comparison.problem}; what follows was not seen."


_OUTCOMES = (
    ("wrong", "wrong"),
    ("agrees", "within the tolerance"),
    ("loose", "beyond it, as the CPU's own kernels are in that dtype"),
    ("not compared", "not compared"),
)


def _wrong(wrong: Wrong) -> str:
    place = wrong.place
    where = f"{place.location}: {place.location.text}" if place.location else "no line of the model's"
    module = f", module {place.module}" if place.module else ""
    error = "" if wrong.error is None else f"; {wrong.error:g} tolerances"
    cpu = "" if wrong.error_cpu is None else f", the CPU in {wrong.dtype}: {wrong.error_cpu:g}"
    return (
        f"{wrong.op}, {place.phase}, call {wrong.first + 1}"
        f"{f' and {place.count - 1} more' if place.count > 1 else ''}, {where}{module} -- "
        f"{wrong.kind}: result {wrong.output} at {list(wrong.element)} is {wrong.found}, exact {wrong.exact}"
        f"{error}{cpu} -- inputs {', '.join(wrong.inputs) or 'none'}"
    )


def _reproducer(comparison: DeviceComparison) -> Iterator[str]:
    reproducer = comparison.reproducer
    if reproducer is None:
        return
    if reproducer.state == NOT_WRITTEN:
        yield f"of the first wrong call, {reproducer.state}: {reproducer.detail}"
        return
    yield f"{reproducer.path}/repro.py, with its inputs in the same folder; it needs only torch"
    yield f"run alone, it {reproducer.state}{f': {reproducer.detail}' if reproducer.detail else ''}"


def _operators(comparison: DeviceComparison) -> Iterator[Block]:
    worst: dict[str, float] = {}
    for wrong in comparison.wrong:
        worst[wrong.op] = max(worst.get(wrong.op, 0.0), inf if wrong.error is None else wrong.error)
    errors = {o.op: max(o.error or 0.0, worst.get(o.op, 0.0)) for o in comparison.operators}
    compared = [o for o in comparison.operators if o.op in worst or o.error is not None]
    compared.sort(key=lambda each: (each.op not in worst, -errors[each.op]))
    heads = ("operator", "calls", "wrong", "loose", "tolerances", "not compared")
    cells = (_operator(operator, errors[operator.op]) for operator in compared[:_MOST])
    yield Table(heads, tuple(cells), code=(0,))
    if len(compared) > _MOST:
        yield Lines((f"and {plural(len(compared) - _MOST, 'operator')} with smaller errors",))


def _operator(operator: ComparedOperator, error: float) -> tuple[str, ...]:
    wrong, loose, aside = (str(operator.outcomes.get(name, "")) for name in ("wrong", "loose", "not compared"))
    return operator.op, str(operator.calls), wrong, loose, f"{error:.3g}", aside


def _times(comparison: DeviceComparison) -> Iterator[Block]:
    device = comparison.machine.device
    columns: dict[str, Column] = {
        "operator": "op",
        "calls": "calls",
        f"{device} ms": lambda time: f"{1000 * time.device:.3f}",
    }
    if device == "cpu":
        yield table_of(comparison.times[:_MOST], columns, code=(0,))
        return
    columns |= {
        "cpu ms": lambda time: "no kernel" if time.cpu is None else f"{1000 * time.cpu:.3f}",
        "lost ms": lambda time: "" if time.cpu is None else f"{1000 * time.excess:.3f}",
        "times faster": lambda time: f"{time.cpu / time.device:.2g}" if time.cpu is not None and time.device else "",
    }
    yield table_of(comparison.times[:_MOST], columns, code=(0,))
    known = [timing for timing in comparison.times if timing.cpu is not None]
    here, cpu = sum(time.device for time in known), sum(timing.cpu or 0.0 for timing in known)
    together = f"together {1000 * here:.2f} ms on {device}, {1000 * cpu:.2f} ms on the CPU"
    yield Lines((f"{together}; each call was timed alone: in a model calls overlap",))


def _tolerances(comparison: DeviceComparison) -> Iterator[str]:
    for dtype in comparison.dtype.split(", "):
        if dtype in comparison.tolerances:
            share, size = comparison.tolerances[dtype]
            yield (
                f"one tolerance in {dtype}: {share:g} of the exact element and {size:g} of the result's "
                "root mean square (after the numbers of torch.testing.assert_close)"
            )
    beyond, times = comparison.allowed
    text = f"wrong: more than {beyond:g} tolerances, and more than {times:g} times what the CPU loses in "
    if comparison.machine.device == "cpu":
        yield f"wrong: more than {times:g} tolerances; whole numbers: any difference"
    else:
        yield f"{text}the same dtype; whole numbers: any difference that is no tie"
