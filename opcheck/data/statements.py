"""The curated statements: what a registered kernel refuses, narrows or gets wrong, with evidence.

People edit ``op_lists/limitations/*.yaml`` and ``op_lists/advisories/*.yaml``.  Reading YAML is too
slow for an operator lookup, so ``op_lists/statements.json`` has the same statements, compiled.
Where its fingerprint differs from that of the YAML, the YAML is read instead: an edit takes effect
at once, and ``scripts/compile_statements.py`` makes reading fast again.
"""

import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.errors import OpListError
from opcheck.common.memo import cached_method
from opcheck.data.statement_files import SORTS, read_statements, yaml_files
from opcheck.data.statement_model import Arguments, Statement
from opcheck.model.records import Record

INDEX = "statements.json"
#: The schema number of the compiled form; an index with another number is not used.
INDEX_SCHEMA = 1


class Index(Record, frozen=True, kw_only=True):
    """The compiled form of all statements."""

    schema: int
    #: SHA-256 over the names and bytes of the YAML files that it was compiled from.
    fingerprint: str
    statements: tuple[Statement, ...]
    #: operator -> its arguments by name, for the operators that have a condition.
    arguments: dict[str, Arguments] = {}


class CuratedStatements:
    """All curated statements, by operator; ``load_statements`` reads them."""

    def __init__(
        self,
        statements: Iterable[Statement] = (),
        arguments: Mapping[str, Arguments] | None = None,
        fingerprint: str = "",
    ) -> None:
        """Store the statements in the order of their ids."""
        self.all = tuple(sorted(statements, key=lambda statement: statement.id))
        self.by_id = {statement.id: statement for statement in self.all}
        self.arguments = arguments or {}
        self.fingerprint = fingerprint
        pairs = [(name, statement) for statement in self.all for name in statement.ops]
        self._globs = [(name[:-1], statement) for name, statement in pairs if name.endswith("*")]
        self._exact: defaultdict[str, list[Statement]] = defaultdict(list)
        for name, statement in pairs:
            self._exact[name].append(statement)

    @cached_method
    def for_op(self, op: str, line: str | None = None) -> tuple[Statement, ...]:
        """Return the statements on an overload, and those on every operator, in the order of their ids.

        Args:
            op: the overload as the dispatcher writes it.
            line: return only the statements whose span contains this release line, such as ``2.13``.
        """
        if line is not None:
            spanning = self._spanning(line)
            return tuple(each for each in self.for_op(op) if each.id in spanning)
        by_prefix = (each for prefix, each in self._globs if op.startswith(prefix) and not each.excepts(op))
        statements = {each.id: each for each in (*self._exact.get(op, ()), *by_prefix)}
        return tuple(statements[name] for name in sorted(statements))

    @cached_method
    def _spanning(self, line: str) -> frozenset[str]:
        return frozenset(statement.id for statement in self.all if statement.spans(line))

    def need_details(self, op: str, line: str | None = None) -> bool:
        """Return whether some statement may apply to only some calls of the operator with the same dtypes."""
        return any(each.condition or each.dtypes_of for each in self.for_op(op, line))


def load_statements(directory: Path) -> CuratedStatements:
    """Read the curated statements below a directory.

    The same directory is read once; ``forget`` makes the next call read it again.

    Raises:
        OpListError: the files hold problems; all of them are named.
    """
    return _load(directory.resolve())


def forget() -> None:
    """Make the next ``load_statements`` read the files again: they were rewritten."""
    _load.cache_clear()


def fingerprint(directory: Path) -> str:
    """Return the SHA-256 over the names and the bytes of the YAML files.

    Raises:
        OpListError: one of them cannot be read.
    """
    digest = hashlib.sha256()
    for sort in SORTS:
        for path in yaml_files(directory, sort):
            try:
                raw = documents.read(path)
            except OSError as error:
                raise OpListError(
                    "a file of statements cannot be read", context=f"{path}: {error.strerror}", hint="restore the file"
                ) from error
            digest.update(f"{sort}/{path.name}\0{len(raw)}\0".encode() + raw)
    return digest.hexdigest()


@functools.cache
def _load(directory: Path) -> CuratedStatements:
    index = read_index(directory)
    now = fingerprint(directory)
    if index is not None and index.fingerprint == now:
        return CuratedStatements(index.statements, index.arguments, now)
    # The YAML does not have the operators' arguments; those of the last compilation remain true.
    arguments = index.arguments if index is not None else {}
    return CuratedStatements(read_statements(directory), arguments, now)


def read_index(directory: Path) -> Index | None:
    """Read the compiled index below a directory; None where there is no index of this schema."""
    try:
        index = msgspec.json.decode(documents.read(directory / INDEX), type=Index)
    except (OSError, msgspec.DecodeError):
        return None
    return index if index.schema == INDEX_SCHEMA else None


def dump_index(index: Index) -> str:
    """Return the text of the compiled index: one statement or operator per line."""

    def text(value: object) -> str:
        return msgspec.json.encode(value).decode()

    statements = ",\n".join(map(text, sorted(index.statements, key=lambda statement: statement.id)))
    arguments = ",\n".join(f"{text(name)}:{text(each)}" for name, each in sorted(index.arguments.items()))
    return (
        f'{{"schema":{index.schema},"fingerprint":"{index.fingerprint}",\n'
        f'"statements":[\n{statements}\n],\n"arguments":{{\n{arguments}\n}}}}\n'
    )
