"""Writes the results as Parquet tables (schema.py)."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import astuple, replace

from opcheck.common.errors import explain_errors
from opcheck.common.files import open_replacement
from opcheck.common.vocabulary import HEADLINES
from opcheck.data.sweep_tables import TABLES, Column
from opcheck.features.sweep.sweep_folder import SweepDescription, read
from opcheck.features.sweep.sweep_records import SweepOutcome, SweepResult
from opcheck.features.sweep.sweep_summary import attribute

#: rows that are written at once
_ROWS = 100_000

Row = tuple[object, ...]


def write(folder: Path) -> dict[str, int]:
    """Write ``FOLDER/NAME.parquet`` for each table, whole or not at all; the rows of each, and the ``verdicts``.

    Raises:
        UsageError: there is no sweep in the folder, or it cannot be written to.
    """
    counts = {}
    headlines: Counter[object] = Counter()
    for name in TABLES:
        what, results = read(folder)
        made = _ROWS_OF[name]
        rows: Iterator[Row] = (row for result in results for row in made(result))
        if name == "outcomes":
            rows = _count_headlines(rows, headlines)
        counts[name] = _write(folder / f"{name}.parquet", TABLES[name], rows, what)
    counts["verdicts"] = headlines.total() - headlines[_NOTHING.headline]
    return counts


def _count_headlines(rows: Iterator[Row], headlines: Counter[object]) -> Iterator[Row]:
    for row in rows:
        headlines[row[_NAMES.index("headline")]] += 1
        yield row


def _write(
    path: Path, columns: tuple[Column, ...], rows: Iterator[Row], what: SweepDescription
) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = replace(what, keys=())
    # pyarrow has no alias for a list.
    lists = {"list<string>": pa.list_(pa.string())}
    types = (lists.get(each.type) or pa.type_for_alias(each.type) for each in columns)
    schema = pa.schema(
        list(zip((column.name for column in columns), types, strict=True)),
        metadata={"opcheck": msgspec.json.encode(about)},
    )
    count = 0
    hint = "the results stay as they are: run the same command again once there is room"
    with (
        explain_errors(OSError, "cannot write the table", context=path, hint=hint),
        open_replacement(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while part := [*islice(rows, _ROWS)]:
            values = dict(zip(schema.names, zip(*part, strict=True), strict=True))
            writer.write_table(pa.table(values, schema=schema))
            count += len(part)
    return count


def _model(result: SweepResult) -> Row:
    return result.model.spec, result.model.library, result.model.family, result.mode


def _target(name: str) -> Row:
    torch, _, macos = name.removesuffix("+").partition("/")
    return torch, macos, name.endswith("+")


def _outcomes(result: SweepResult) -> Iterator[Row]:
    config = msgspec.json.encode(result.config).decode() if result.config else ""
    rest = (result.captures, result.seconds, config)
    outcomes = {name: outcome for outcome in result.outcomes for name in outcome.targets}
    missing = (name for failure in result.failures for name in failure.targets)
    for name in dict.fromkeys((*outcomes, *missing)):
        outcome = outcomes.get(name, _NOTHING)
        counts = (outcome.totals.get(column.name, 0) for column in _TOTALS)
        yield (
            *_model(result),
            *_target(name),
            outcome.headline,
            outcome.complete,
            *counts,
            outcome.capture,
            *rest,
        )


_NOTHING = SweepOutcome(targets=(), headline=HEADLINES[1], complete=False, totals={}, capture=-1)
_NAMES = [column.name for column in TABLES["outcomes"]]
_TOTALS = TABLES["outcomes"][_NAMES.index("calls") : _NAMES.index("capture")]


def _operators(result: SweepResult) -> Iterator[Row]:
    for outcome in result.outcomes:
        for name in outcome.targets:
            for native in outcome.not_native:
                yield (*_model(result), *_target(name), *astuple(native))


def _uses(result: SweepResult) -> Iterator[Row]:
    for op, calls in result.uses.items():
        yield (*_model(result), op, calls)


def _failures(result: SweepResult) -> Iterator[Row]:
    for failure in result.failures:
        owner, why = attribute(result.model.spec, failure)
        yield (*_model(result), *astuple(failure), owner, why)


_ROWS_OF: dict[str, Callable[[SweepResult], Iterator[Row]]] = {
    "outcomes": _outcomes,
    "operators": _operators,
    "uses": _uses,
    "failures": _failures,
}
