"""The folder of a sweep: a small file for each model and mode, named by the digest of its inputs.

``sweep.json`` describes the sweep, ``results/ab/abcd....json`` are its results, ``sweep.lock`` is its lock.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import platform
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple, replace

from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.files import open_replacement, write_text
from opcheck.common.tool import VERSION
from opcheck.common.versions import Target
from opcheck.common.vocabulary import HEADLINES, Mode
from opcheck.data.sweep_tables import FORMAT, TABLES, Column
from opcheck.features.sweep.sweep_records import Model, SweepOutcome, SweepResult, target_name
from opcheck.features.sweep.sweep_summary import attribute
from opcheck.model.records import Record
from opcheck.worker.platform import lock

if TYPE_CHECKING:
    from typing_extensions import Self

_ROOM = "what is finished stays; run the same command again once there is room, or name another --folder"
_explain_write = functools.partial(explain_errors, OSError, "cannot write the results", hint=_ROOM)
ABOUT, LOCK, RESULTS = "sweep.json", "sweep.lock", "results"
_PART, _RESULT = re.compile("[0-9a-f]{2}"), re.compile(r"[0-9a-f]{32}\.json")

#: The sources that results depend on; a test compares them with the imports of ``features/sweep/server.py``.
SOURCES = (
    *("capture", "common", "data", "judge", "model", "simulator", "tracing", "weights", "worker"),
    *("features/sweep/server.py", "features/sweep/sweep_records.py"),
)


class SweepDescription(Record, frozen=True, kw_only=True):
    """The description of a sweep."""

    format: int = FORMAT
    opcheck: str = VERSION
    #: digest of the op lists, and of the sources in ``SOURCES``
    op_lists: str
    sources: str
    packages: dict[str, str]
    targets: tuple[str, ...]
    modes: tuple[Mode, ...]
    small: bool = True
    #: results by their names, in the order of the models
    keys: tuple[str, ...] = ()


class Folder:
    """A folder that only this process writes to within a with block."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        self._fresh = fresh
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            UsageError: it cannot be written to, another sweep writes there, or an older version wrote it.
        """
        with _explain_write(context=self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as lock_of_block:
            lock_of_block.enter_context(_hold_lock(self.path / LOCK))
            if self._fresh:
                _marker(self.path)  # it raises unless --fresh may delete the folder
            else:
                read_description(self.path)
            self._lock = lock_of_block.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._lock.close()

    def begin(self, what: SweepDescription) -> None:
        """Write the description of the sweep; with ``fresh``, delete earlier results."""
        if self._fresh:
            _forget(self.path)
        text = msgspec.json.format(msgspec.json.encode(what)).decode()
        write_text(self.path / ABOUT, f"{text}\n")

    def keep(self, result: SweepResult) -> None:
        """Write a result atomically.

        Raises:
            UsageError: it cannot be written.
        """
        place = _place(self.path, result.key)
        with _explain_write(context=place):
            place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, msgspec.json.encode(result).decode())

    def has(self, key: str) -> bool:
        """Return whether there is a result of this name."""
        return _place(self.path, key).is_file()


def read_description(path: Path) -> SweepDescription | None:
    """Read the description of a folder; None: it is new.

    Raises:
        UsageError: another version wrote it, or nothing of ours did.
    """
    file = path / ABOUT
    marker = _marker(path)
    if marker is None:
        return None
    with explain_errors(
        documents.DocumentError, "the folder's description is damaged", context=file, hint="start again with --fresh"
    ):
        if marker["format"] == FORMAT:
            return documents.convert(marker, SweepDescription)
    raise UsageError(
        f"the folder was written by another version of opcheck: its format is {marker['format']}, this one's {FORMAT}",
        context=str(file),
        hint="sweep into another folder, or start again with --fresh",
    )


def _marker(path: Path) -> dict[str, Any] | None:
    """Read a folder's description of any version; None: the folder is empty.

    Raises:
        UsageError: it is not the folder of a sweep.
    """
    problem = f"{ABOUT} does not describe a sweep"
    try:
        content = documents.read(path / ABOUT, follow=False)
        description: dict[str, Any] = documents.from_json(content, dict[str, Any])
        if [type(description.get(key)) for key in ("format", "opcheck")] == [int, str]:
            return description
    except documents.DocumentError as error:
        if error.missing and all(each.name == LOCK for each in path.iterdir()):
            return None
        problem = f"the folder's description is damaged: {error}"
        if error.missing:
            problem = "this folder is not that of a sweep, and not empty"
    hint = "name another folder with --folder; it is made where there is none"
    raise UsageError(problem, context=str(path), hint=hint)


def read(path: Path) -> tuple[SweepDescription, Iterator[SweepResult]]:
    """Read a folder's description and results, in the order of the models.

    Raises:
        UsageError: there is no sweep in it, or another version wrote it.
    """
    description = read_description(path) if path.is_dir() else None
    if description is None:
        hint = "opcheck sweep MODELS --folder DIR"
        raise UsageError("there is no sweep in this folder", context=str(path), hint=hint)
    return description, _results(path, description.keys)


def _results(path: Path, keys: Iterable[str]) -> Iterator[SweepResult]:
    for key in keys:
        place = _place(path, key)
        try:
            yield documents.from_json(documents.read(place, follow=False), SweepResult)
        except documents.DocumentError as error:
            if error.missing:
                continue
            hint = "remove the file, and run the sweep again: it makes what is missing"
            raise UsageError(f"a result is damaged: {error}", context=str(place), hint=hint) from error


def key_of(model: Model, mode: str, targets: Iterable[Target], settings: dict[str, object]) -> str:
    """Return the name of a result: a digest of its inputs."""
    content = (model, mode, list(map(target_name, targets)), sorted(settings.items()))
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]


def sources() -> str:
    """Return the digest of the sources that results depend on."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for name in SOURCES:
        place = package / name
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(str(file.relative_to(package)).encode() + b"\0" + documents.read(file))
    return digest.hexdigest()[:12]


def _place(path: Path, key: str) -> Path:
    return path / RESULTS / key[:2] / f"{key}.json"


def _forget(path: Path) -> None:
    """Delete the results and the tables, by the names that a sweep gives them; no link is followed."""
    results = path / RESULTS
    for folder in results.iterdir() if _is_real(results) else ():
        if _is_real(folder) and _PART.fullmatch(folder.name):
            for result in folder.iterdir():
                if _RESULT.fullmatch(result.name) and result.name.startswith(folder.name):
                    result.unlink()
    for name in TABLES:
        (path / f"{name}.parquet").unlink(missing_ok=True)


def _is_real(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


@contextlib.contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Lock a sweep that writes; the system releases the lock when the process dies.

    Raises:
        UsageError: another process has it.
    """
    with _explain_write(context=path):
        file = os.fdopen(_open_own(path), "r+b", buffering=0)
    with file:
        if not lock(file.fileno()):
            holder = file.read(100).decode(errors="replace").strip()
            problem = f"another sweep writes into this folder{': ' + holder if holder else ''}"
            hint = "wait for it, or name another folder with --folder"
            raise UsageError(problem, context=str(path.parent), hint=hint)
        with _explain_write(context=path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}\n".encode())
        yield


def _open_own(path: Path) -> int:
    """Open a regular file and create it if missing; links are not followed."""
    # Windows has neither flag, nor named pipes in folders.
    safe = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | safe, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no file")
    return descriptor


#: rows that are written at once
_ROWS = 100_000

Row = tuple[object, ...]


def write(folder: Path) -> dict[str, int]:
    """Write ``FOLDER/NAME.parquet`` for each table, whole or not at all; the rows of each, and the ``verdicts``.

    Raises:
        UsageError: there is no sweep in the folder, or it cannot be written to.
    """
    counts = {}
    headlines: Counter[str] = Counter()
    for name in TABLES:
        what, results = read(folder)
        rows = (row for result in results for row in _rows_of(name, result, headlines))
        counts[name] = _write(folder / f"{name}.parquet", TABLES[name], rows, what)
    counts["verdicts"] = headlines.total() - headlines[_NOTHING.headline]
    return counts


def _rows_of(table: str, result: SweepResult, headlines: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a result in a table; those of outcomes are counted by headline."""
    model = (result.model.spec, result.model.library, result.model.family, result.mode)
    outcomes = {name: outcome for outcome in result.outcomes for name in outcome.targets}
    if table == "outcomes":
        config = msgspec.json.encode(result.config).decode() if result.config else ""
        missing = (name for failure in result.failures for name in failure.targets)
        for name in dict.fromkeys((*outcomes, *missing)):
            outcome = outcomes.get(name, _NOTHING)
            headlines[outcome.headline] += 1
            numbers = (outcome.totals.get(column.name, 0) for column in _TOTALS)
            verdict = (outcome.headline, outcome.complete, *numbers, outcome.capture)
            yield *model, *_target(name), *verdict, result.captures, result.seconds, config
    elif table == "operators":
        for name, outcome in outcomes.items():
            for native in outcome.not_native:
                yield *model, *_target(name), *astuple(native)
    elif table == "uses":
        yield from ((*model, op, calls) for op, calls in result.uses.items())
    else:
        for failure in result.failures:
            yield *model, *astuple(failure), *attribute(result.model.spec, failure)


def _write(path: Path, columns: tuple[Column, ...], rows: Iterator[Row], what: SweepDescription) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # pyarrow has no alias for a list.
    lists = {"list<string>": pa.list_(pa.string())}
    fields = [(each.name, lists.get(each.type) or pa.type_for_alias(each.type)) for each in columns]
    schema = pa.schema(fields, metadata={"opcheck": msgspec.json.encode(replace(what, keys=()))})
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


def _target(name: str) -> Row:
    torch, _, macos = name.removesuffix("+").partition("/")
    return torch, macos, name.endswith("+")


_NOTHING = SweepOutcome(targets=(), headline=HEADLINES[1], complete=False, totals={}, capture=-1)
_NAMES = [column.name for column in TABLES["outcomes"]]
_TOTALS = TABLES["outcomes"][_NAMES.index("calls") : _NAMES.index("capture")]
