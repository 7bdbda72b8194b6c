"""Read the generated op lists: the kernels that each torch release registers for MPS.

The module imports neither torch nor lief, because an operator lookup must start at once.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from opcheck.common.errors import OpListError
from opcheck.common.grouping import group_values
from opcheck.common.memo import cached_method
from opcheck.common.versions import Version
from opcheck.common.yaml_text import load_shipped
from opcheck.data.extensions import LIBRARIES, Extensions
from opcheck.data.files import read_history, read_releases
from opcheck.data.history import column
from opcheck.data.matching import Matches, match
from opcheck.data.statements import CuratedStatements, load_statements
from opcheck.data.statements import forget as forget_statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opcheck.common.versions import Target
    from opcheck.data.files import Release
    from opcheck.data.history import Entry, History
    from opcheck.model.records import OpCall

Status = Literal["native", "fallback", "unsupported", "unknown", "composite"]
Kind = Literal["always", "env", "internal"]

_TABLE: dict[str, Any] = load_shipped(__file__, "registration_values.yaml")
#: The data files by their subject: a dispatch key, or the table of DispatchStubs.
FILES: Mapping[str, str] = MappingProxyType(_TABLE["files"])
#: The outcome of a call for each value.
_MEANING: Mapping[str, tuple[Status, Kind | None]] = {name: tuple(row) for name, row in _TABLE["meaning"].items()}
_REGISTERED = frozenset(_TABLE["registered"])
#: Values that name another overload, whose value decides.
_REFERENCES = frozenset(_TABLE["references"])
#: The values that each file may contain; for "missing_stub:x", "out:x" and "wrapper:x" the first word.
VALUES: Mapping[str, frozenset[str]] = MappingProxyType(
    {"MPS": frozenset(_MEANING) | _REFERENCES, **{key: frozenset(values) for key, values in _TABLE["values"].items()}}
)


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an overload in a release according to its registrations alone."""

    status: Status
    kind: Kind | None
    #: the overloads that were followed, from the given overload to the deciding one.
    chain: tuple[str, ...]
    #: the value of the deciding overload; None where it does not exist.
    value: str | None
    #: the release of the extension library that registers it, such as ``torchvision 0.28.0``, and its
    #: files; empty for an operator of torch.
    extension: str = ""
    where: str = ""


class OpLists:
    """The registrations of every known release; ``load`` reads them."""

    def __init__(
        self,
        releases: tuple[Release, ...],
        histories: Mapping[str, History],
        sha256: str,
        statements: CuratedStatements | None = None,
        extensions: Extensions | None = None,
    ) -> None:
        """Store the data that ``load`` has read and checked."""
        #: the lists of torchvision and torchaudio, by their own versions.
        self.extensions = extensions or Extensions()
        #: the curated limitations and advisories that qualify the registrations.
        self.statements = statements or CuratedStatements()
        self.releases = releases
        self.sha256 = sha256
        self._by_name = {release.line: release for release in releases}
        self._lines = tuple(self._by_name)
        self._places = {line: place for place, line in enumerate(self._lines)}
        self._histories = histories

    @functools.cached_property
    def versions(self) -> tuple[Version, ...]:
        """The release lines as versions, the oldest first."""
        return tuple(sorted(release.version for release in self.releases))

    @property
    def digest(self) -> str:
        """The first 12 hexadecimal digits of the SHA-256 over the data files."""
        return self.sha256[:12]

    def release(self, line: str) -> Release:
        """Return the release that represents a line such as ``2.13``.

        Raises:
            OpListError: no list for that line.
        """
        release = self._by_name.get(line)
        if release is not None:
            return release
        message = f"there is no op list for torch {line}"
        hint = f"build it: opcheck lists build {line}.0"
        raise OpListError(message, context=f"the op lists have torch {', '.join(self._lines)}", hint=hint)

    def history(self, op: str, key: str = "MPS") -> tuple[Entry, ...]:
        """Return (line, value) wherever the value of an overload changes; empty if it never existed."""
        return self._histories[key].operators.get(op, ())

    def registration(self, op: str, line: str, key: str = "MPS") -> str | None:
        """Return the value of an overload in a release; None where it does not exist.

        Raises:
            OpListError: no list for that line.
        """
        self.release(line)
        return self._value(op, line, key)

    def _value(self, op: str, line: str, key: str = "MPS") -> str | None:
        """Return the value since the last change that a known release has."""
        place = self._places[line]
        changes = reversed(self.history(op, key))
        return next((value for since, value in changes if self._places[since] <= place), None)

    def matching(self, call: OpCall, target: Target) -> Matches:
        """Return the statements on the call's operator, with whether they apply to the call on the target."""
        arguments = self.statements.arguments.get(call.op)
        return match(self.statements.for_op(call.op, str(target.torch)), call, target, arguments)

    @cached_method
    def operators(self, line: str, key: str = "MPS") -> Mapping[str, str]:
        """Return every overload that has a value in a release, with the value.

        Raises:
            OpListError: no list for that line.
        """
        return MappingProxyType(column(self._histories[key].operators, self._lines, self.release(line).line))

    @cached_method
    def overloads(self, line: str) -> Mapping[str, Sequence[str]]:
        """Return the overloads of a release by the name that they share: ``aten::add`` -> ``aten::add.Tensor`` ...

        Raises:
            OpListError: no list for that line.
        """
        return group_values((name.partition(".")[0], name) for name in self.operators(line) if "." in name)

    def names(self, key: str = "MPS") -> Iterable[str]:
        """Return every overload that some release has."""
        return self._histories[key].operators.keys()

    @cached_method
    def kernels(self, line: str) -> frozenset[str]:
        """Return the overloads with an MPS registration: a kernel, a fallback or an error stub.

        Raises:
            OpListError: no list for that line.
        """
        return frozenset(n for n, v in self.operators(line).items() if v in _REGISTERED)

    def extension(self, namespace: str, torch_line: str) -> tuple[str, Mapping[str, str]] | None:
        """Return the release of an extension library that pairs with a torch line, and its operators.

        The result is None where the lists lack that release.

        Raises:
            OpListError: the lists of the extensions are damaged.
        """
        release = self.extensions.release(namespace, torch_line)
        if release is None:
            return None
        return release.version, self.extensions.operators(namespace, release.line)

    def _resolve_extension(self, op: str, line: str) -> Resolution:
        namespace = op.partition("::")[0]
        self.release(line)
        release = self.extensions.release(namespace, line)
        if release is None:
            return _resolution(None, (op,))
        value = self.extensions.operators(namespace, release.line).get(op)
        found = {"extension": f"{namespace} {release.version}", "where": ", ".join(release.libraries)}
        return _resolution(value, (op,), **found)

    def resolve(self, op: str, line: str) -> Resolution:
        """Follow ``out:`` and ``wrapper:`` to the overload that decides.

        An operator of an extension library is looked up in the library's release that pairs with the line.

        Raises:
            OpListError: no list for that line, or the references lead nowhere.
        """
        if op.partition("::")[0] in LIBRARIES:
            return self._resolve_extension(op, line)
        self.release(line)
        chain = [op]
        value = self._value(op, line)
        while value is not None and value.partition(":")[0] in _REFERENCES:
            target = value.partition(":")[2]
            referred = self._value(target, line)
            if referred is None or target in chain:
                message = f"{chain[-1]} refers to an overload that decides nothing: {target}"
                hint = "rebuild the release: opcheck lists build"
                raise OpListError(message, context=f"op_lists/{FILES['MPS']}, torch {line}", hint=hint)
            chain.append(target)
            value = referred
        return _resolution(value, tuple(chain))


def _resolution(value: str | None, chain: tuple[str, ...], **where: str) -> Resolution:
    status, kind = ("unknown", None) if value is None else _MEANING[value.partition(":")[0]]
    return Resolution(status=status, kind=kind, chain=chain, value=value, **where)


#: The variable that names the op lists of a process, where they are not the shipped ones (built_lists.py).
VARIABLE = "OPCHECK_LISTS"
#: The word for the newest built lists of a wheel that was built before its release.
NIGHTLY = "nightly"


def is_unlisted_name(text: object) -> bool:
    """Return whether a text may name built lists: ``nightly``, or a version with a third number."""
    return isinstance(text, str) and (text == NIGHTLY or text.count(".") > 1)


def data_directory() -> Path:
    """Return the directory of the op lists: the built ones that the run has chosen, else the shipped ones."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else shipped_directory()


@functools.cache
def shipped_directory() -> Path:
    """Return the directory of the shipped data: inside an installed package, else at the checkout's top."""
    package = Path(__file__).parents[1]
    installed = package / "op_lists"
    return installed if installed.is_dir() else package.parent / "op_lists"


def load(directory: Path | None = None) -> OpLists:
    """Read and check the op lists; the same directory is read once.

    Raises:
        OpListError: a file is missing, damaged, or speaks of a release that is not registered;
            or a curated statement cannot be read.
    """
    return _load((directory or data_directory()).resolve())


def forget() -> None:
    """Make the next ``load`` read the files again: they were rewritten."""
    _load.cache_clear()
    forget_statements()


@functools.cache
def _load(directory: Path) -> OpLists:
    digest = hashlib.sha256()
    releases, raw = read_releases(directory / "releases.yaml")
    digest.update(raw)
    lines = [release.line for release in releases]
    histories = {}
    for key, file in FILES.items():
        histories[key], raw = read_history(directory / file, lines, VALUES[key])
        digest.update(raw)
    statements = load_statements(directory)
    digest.update(statements.fingerprint.encode())
    extensions = Extensions(directory)
    digest.update(extensions.raw())
    return OpLists(releases, histories, digest.hexdigest(), statements, extensions)
