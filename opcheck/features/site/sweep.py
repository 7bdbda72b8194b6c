"""Reads the tables of a sweep (``opcheck/data/sweep_tables.py``) for the pages."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.common.errors import UsageError, explain_missing
from opcheck.common.grouping import group_values
from opcheck.common.versions import Version
from opcheck.data.sweep_tables import FORMAT, TABLES
from opcheck.features.site.page_records import Failure, ListedModel, ModelOf, ModelPage, Models, NotNative, Outcome
from opcheck.lookup.matrix import STATES

Row = Mapping[str, Any]
#: The states that raise without the fallback variable.
STOPS = ("unsupported", "fallback_env")
#: Operators that a release names.
_MOST = 10


class At(NamedTuple):
    """A target of the sweep: in the order of versions, without the fallback variable first."""

    torch: Version
    macos: Version


class Sweep:
    """The results of a sweep, read whole."""

    def __init__(self, tables: Mapping[str, list[dict[str, Any]]], about: Mapping[str, Any]) -> None:
        """Keep the rows of each table, and what the files say of themselves."""
        self.page_head = about
        self._rows = tables
        self.targets = sorted({_target_of(row) for row in tables["outcomes"]})
        self._lines = tuple(map(str, sorted({target.torch for target in self.targets})))
        self._systems = tuple(map(str, sorted({target.macos for target in self.targets})))
        #: whether it was also run with the fallback variable alone.
        self._usual = min((row["fallback"] for row in tables["outcomes"]), default=False)
        self._by_model = {name: group_values((row["model"], row) for row in rows) for name, rows in tables.items()}
        self._by_op = group_values((row["op"], row) for row in self._usual_rows("operators"))
        self._uses = group_values((row["op"], row) for row in tables["uses"])

    def models(self) -> Iterator[ModelPage]:
        """Yield a page for every model, by library and name."""
        first = {row["model"]: row for row in self._rows["outcomes"]}
        for name in sorted(first, key=lambda model: (first[model]["library"], model.casefold(), model)):
            yield self._model(name, first[name])

    def listed(self, models: Iterable[ModelPage]) -> Models:
        """Return the page of all models."""
        return Models(
            torch=self._lines,
            macos=self._systems,
            modes=tuple(sorted({row["mode"] for row in self._rows["outcomes"]})),
            packages=dict(sorted(self.page_head.get("packages", {}).items())),
            digest=str(self.page_head.get("op_lists", "")),
            models=tuple(msgspec.convert(m, ListedModel, from_attributes=True) for m in models),
        )

    def headlines(self, line: str) -> dict[str, int]:
        """Count models and modes by headline, on the release's newest macOS of the sweep."""
        rows = self._newest(line, "outcomes")
        return dict(sorted(Counter(row["headline"] for row in rows).items()))

    def stops(self, line: str) -> tuple[tuple[str, int], ...]:
        """Return the operators that stop most models on the release's newest macOS, and how many they stop.

        A model is stopped by a call that raises without the fallback variable.
        """
        rows = self._newest(line, "operators")
        stopped = {(row["op"], row["model"]) for row in rows if _state(row) in STOPS}
        counts = Counter(op for op, _ in stopped)
        return tuple(sorted(counts.items(), key=lambda count: (-count[1], count[0]))[:_MOST])

    def not_native(self, overloads: Iterable[str]) -> tuple[ModelOf, ...]:
        """Return the models with a call of these overloads that is not native, the worst first."""
        rows = [row for op in overloads for row in self._by_op.get(op, ())]
        groups = group_values(((row["model"], row["mode"], _state(row)), row) for row in rows)
        models = []
        for (*_, state), group in groups.items():
            about = {"state": state, "calls": max(row["calls"] for row in group)}
            about["targets"] = _targets(map(_target_of, group))
            models.append(msgspec.convert({**group[0], **about}, ModelOf))
        return tuple(sorted(models, key=lambda each: (-STATES.index(each.state), each.model, each.mode)))

    def users(self, overloads: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return by mode the models that call one of these overloads."""
        models = group_values((row["mode"], row["model"]) for op in overloads for row in self._uses.get(op, ()))
        return {mode: tuple(sorted({*models[mode]})) for mode in sorted(models)}

    def _model(self, name: str, about: Row) -> ModelPage:
        outcomes = self._by_model["outcomes"][name]
        newest = max(_target_of(row) for row in outcomes)
        rows = self._by_model["uses"].get(name, ())
        uses = group_values((row["op"], (row["mode"], row["calls"])) for row in rows)
        return ModelPage(
            name=name,
            **{key: about[key] for key in ("library", "family", "config")},
            headlines={
                row["mode"]: row["headline"]
                for row in sorted(outcomes, key=lambda row: row["mode"])
                if _target_of(row) == newest and row["fallback"] == self._usual
            },
            torch=self._lines,
            macos=self._systems,
            outcomes=tuple(_outcomes(outcomes)),
            not_native=tuple(_not_native(self._by_model["operators"].get(name, ()))),
            failures=tuple(map(_failure, self._by_model["failures"].get(name, ()))),
            uses={op: dict(sorted(uses[op])) for op in sorted(uses)},
        )

    def _usual_rows(self, table: str) -> list[dict[str, Any]]:
        return [row for row in self._rows[table] if row["fallback"] == self._usual]

    def _newest(self, line: str, table: str) -> list[Row]:
        systems = [target.macos for target in self.targets if str(target.torch) == line]
        if not systems:
            return []
        newest = str(max(systems))
        rows, aim = self._usual_rows(table), (line, newest)
        return [row for row in rows if (row["torch"], row["macos"]) == aim]


def read(folder: Path) -> Sweep:
    """Return the tables of a sweep's folder.

    Raises:
        UsageError: pyarrow is missing; it is no folder of a sweep, or that of another version.
    """
    where, hint = f"opcheck site build --sweep {folder}", "pip install 'opcheck[sweep]'"
    with explain_missing("reading a sweep needs", "pyarrow", context=where, hint=hint):
        from pyarrow import ArrowException, parquet
    tables: dict[str, list[dict[str, Any]]] = {}
    about: dict[str, Any] = {}
    for name, columns in TABLES.items():
        path = folder / f"{name}.parquet"
        if not path.is_file():
            raise _refusal(path, f"the sweep has no table {name}")
        try:
            table = parquet.read_table(path)
            about = json.loads((table.schema.metadata or {}).get(b"opcheck", b"{}"))
        except (OSError, ValueError, ArrowException) as error:
            raise _refusal(path, f"cannot read a table of the sweep: {error}") from error
        for column in columns:
            if column.name not in table.column_names:
                raise _refusal(path, f"a table of the sweep has no column {column.name}")
        if about.get("format", FORMAT) != FORMAT:
            raise _refusal(path, "a table of the sweep is of another version")
        tables[name] = table.to_pylist()
    return Sweep(tables, about)


def _refusal(path: Path, problem: str) -> UsageError:
    hint = "name the folder of an opcheck sweep of this version that has come to its end"
    return UsageError(" ".join(problem.split()), context=str(path), hint=hint)


def _target_of(row: Row) -> At:
    return At(Version.parse(row["torch"]), Version.parse(row["macos"]))


def _state(row: Row) -> str:
    return f"{row['status']}_{row['kind']}" if row["kind"] else str(row["status"])


def _targets(targets: Iterable[At]) -> dict[str, tuple[str, ...]]:
    """Return the macOS versions by release line, both in their order."""
    systems_of = group_values((str(target.torch), str(target.macos)) for target in sorted(set(targets)))
    return {line: tuple(systems) for line, systems in systems_of.items()}


def _outcomes(rows: Iterable[Row]) -> Iterator[Outcome]:
    """Yield the outcomes; targets with equal results share an outcome."""

    def key(row: Row) -> tuple[Any, ...]:
        worse = tuple((state, row[state]) for state in STATES[1:] if row[state])
        return (row["mode"], row["fallback"], row["headline"], row["complete"], row["calls"], worse)

    for (*_, worse), group in sorted(
        group_values((key(row), row) for row in rows).items(),
        key=lambda entry: (*entry[0][:2], min(map(_target_of, entry[1])), entry[0]),
    ):
        targets = _targets(map(_target_of, group))
        yield msgspec.convert({**group[0], "targets": targets, "not_native": dict(worse)}, Outcome)


def _not_native(rows: Iterable[Row]) -> Iterator[NotNative]:
    """Yield the operators that are not native for a model, the worst state first."""

    def key(row: Row) -> tuple[int, str, str, bool, int]:
        return (-STATES.index(_state(row)), row["op"], row["mode"], row["fallback"], row["calls"])

    for (place, *_), group in sorted(group_values((key(row), row) for row in rows).items()):
        about = {"state": STATES[-place], "targets": _targets(map(_target_of, group))}
        yield msgspec.convert({**group[0], **about}, NotNative)


def _failure(row: Row) -> Failure:
    targets = (At(*map(Version.parse, name.rstrip("+").split("/"))) for name in row["targets"])
    return msgspec.convert({**row, "targets": _targets(targets)}, Failure)
