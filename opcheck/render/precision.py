"""The comparisons with float64 as tables and sentences, for the formats for people."""

from collections.abc import Iterator, Mapping

from opcheck.common.text import and_more, filesize, plural
from opcheck.model.records import GroupLocation, Precision, PrecisionModule, RelativeError
from opcheck.render import summary
from opcheck.render.document import Block, Bullets, Column, Heading, Lines, Table, size_of, table_of
from opcheck.render.report_words import EVENTS

#: rows of the table of lines, and of that of modules
_LINES, _MODULES = 6, 8
_NAMED = 3


def blocks(run: Precision) -> Iterator[Block]:
    """Make the section of one run."""
    yield Heading(f"Precision: {run.dtype} compared with float64, on this machine's CPU")
    yield Lines((f"{_verdict(run)}.",))
    yield from (table for table in (_lines(run), _modules(run)) if table.rows)
    yield Bullets(tuple(_sentences(run)))


def _sentences(run: Precision) -> Iterator[str]:
    """Say what else the run showed, the most important first."""
    for event in run.events:
        yield (
            f"{event.kind}: {event.op} {summary.place(event.place)}: {event.elements:,} of "
            f"{plural(event.of, 'element')} {EVENTS[event.kind]}"
        )
    if run.outputs:
        yield f"results: {_errors(run.outputs)}"
    if run.gradients:
        yield f"gradients of {run.loss}, the worst: {_errors(run.gradients)}"
    elif run.loss:
        yield f"gradients: {run.loss}"
    for module in [module for module in run.modules if module.at_fault][:_NAMED]:
        yield (
            f"{module.name} needs care ({plural(module.at_fault, 'call')} in it): kept on the CPU, in float64, "
            f"{filesize(module.bytes_in)} go there and {filesize(module.bytes_out)} come back in each run"
        )
    yield from run.notes


def _verdict(run: Precision) -> str:
    """Say where digits are lost first, or that nothing needs float64."""
    limit = _number(run.limit)
    if line := run.divergence:
        return (
            f"the first call that loses digits by itself: {line.op} {summary.place(line.place)}: relative error "
            f"{_number(line.local)}, where the limit is {limit}; what it read was off by {_number(line.inherited)}"
        )
    if line := run.crossing:
        return (
            f"no single call loses more than {limit}, but what is lost adds up to "
            f"{_number(line.total)} at {line.op} {summary.place(line.place)}"
        )
    result = f"none of {plural(run.calls, 'call')} is off by more than {limit}"
    if not run.complete:
        return f"could not tell: the run broke off; until then {result}"
    return f"{run.dtype} is enough here: {result}"


def _lines(run: Precision) -> Table:
    """List the lines whose calls lose most by themselves."""
    where: dict[str, Column] = {"operator": "op", "line": lambda line: _short(line.place)}
    errors = {"own error": "local", "error of its inputs": "inherited", "error of its result": "total"}
    columns = where | {title: _error_of(field) for title, field in errors.items()}
    return table_of(run.lines[:_LINES], columns, right=(2, 3, 4))


def _modules(run: Precision) -> Table:
    """List the modules where the error grows most, in the order of the run."""
    growing = sorted(run.modules, key=_growth, reverse=True)[:_MODULES]
    errors = {"error in": _error_of("inherited"), "error out": _error_of("total")}
    sizes = {"bytes in": size_of("bytes_in"), "bytes out": size_of("bytes_out")}
    columns = {"module": "name", "kind": "kind", **errors, **sizes}
    shown = [module for module in run.modules if module in growing]
    return table_of(shown, columns, right=(2, 3, 4, 5))


def _error_of(field: str) -> Column:
    return lambda record: _number(getattr(record, field))


def _short(place: GroupLocation) -> str:
    """Write the line and the module in few columns."""
    backward = "backward of" if place.phase == "backward" else ""
    module = f"({place.module})" if place.module else ""
    return " ".join(filter(None, (backward, str(place.location or ""), module)))


def _growth(module: PrecisionModule) -> tuple[bool, float]:
    return bool(module.at_fault), float(module.total) / max(float(module.inherited), 1e-8)


def _errors(entries: Mapping[str, RelativeError]) -> str:
    return and_more([f"{name} {_number(error)}" for name, error in entries.items()], _NAMED)


def _number(error: RelativeError) -> str:
    return f"{float(error):.1e}" if error else "0"
