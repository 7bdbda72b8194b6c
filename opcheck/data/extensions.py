"""The lists of extension libraries: their releases, and the release that pairs with a torch release."""

import functools
import re
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from opcheck.common import documents
from opcheck.common.memo import cached_method
from opcheck.common.versions import Version
from opcheck.data.files import dump_release_list, in_order, read_history
from opcheck.data.history import SCHEMA, column
from opcheck.data.strict_yaml import Document, read_as

FILE = "extensions.yaml"

#: The values that their files may contain; op_lists/README.md explains them.
VALUES = frozenset({"kernel", "cpu_only", "composite_explicit", "composite_implicit", "no_dense_kernel"})

#: The last release line of torchaudio.
_LAST_TORCHAUDIO = Version(2, 11)
#: torchvision 0.N was released with torch 2.(N - 15).
_TORCHVISION = 15
_RELEASE_LINE = re.compile(r"\d+\.\d+")


def paired_line(library: str, torch_line: str) -> str | None:
    """Return the release line of a library that was released with a torch line; None where there is none.

    Source: the compatibility matrices in the READMEs of pytorch/vision and pytorch/audio.

    Raises:
        UsageError: not a version.
    """
    torch = Version.parse(torch_line)
    if torch.major == 2 and library == "torchvision":
        return str(Version(0, torch.minor + _TORCHVISION))
    return str(torch) if torch.major == 2 and library == "torchaudio" and torch <= _LAST_TORCHAUDIO else None


def torch_line_of(library: str, line: str) -> str:
    """Return the torch line that a library's release line was released with: the inverse of ``paired_line``.

    Raises:
        UsageError: not a version.
    """
    version = Version.parse(line)
    return str(Version(2, version.minor - _TORCHVISION) if library == "torchvision" else version)


#: The libraries; the namespace of a library's operators is its name.
LIBRARIES = ("torchvision", "torchaudio")


def registrations_file(library: str) -> str:
    """Return the file of a library's registrations, relative to the op lists' directory."""
    return f"registrations/{library}.json"


class ExtensionCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of operators of each sort in a release."""

    mps: int
    cpu_only: int
    operators: int


class ExtensionRelease(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release of an extension library whose wheel was read."""

    version: str
    line: str
    #: the torch line that it was released with, and the torch that its wheel requires.
    torch_line: str
    requires: str
    wheel: str
    sha256: str
    commit: str
    built: date
    #: the files of the wheel that register operators.
    libraries: tuple[str, ...]
    counts: ExtensionCounts

    def admits(self, torch_line: str) -> bool:
        """Return whether pip installs the release alongside a torch line newer than its own.

        Raises:
            UsageError: not a version.
        """
        from packaging.specifiers import SpecifierSet

        asked = SpecifierSet(self.requires.removeprefix("torch").strip(" ()"))
        newer = Version.parse(torch_line) > Version.parse(self.torch_line)
        return newer and asked.contains(torch_line)


class ExtensionList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of extensions.yaml."""

    schema: int
    extensions: dict[Literal["torchvision", "torchaudio"], dict[str, ExtensionRelease]]


def dump_extensions(releases: Mapping[str, Iterable[ExtensionRelease]]) -> str:
    """Return the text of extensions.yaml: one mapping per release, in the order of the versions."""
    libraries = {library: in_order(releases[library]) for library in sorted(releases)}
    return dump_release_list({"extensions": libraries})


def _check(document: Document, content: ExtensionList) -> None:
    if content.schema != SCHEMA:
        document.report(("schema",), f"the schema must be {SCHEMA}")
    for library, releases in content.extensions.items():
        for line, release in releases.items():
            at = ("extensions", library, line)
            if not _RELEASE_LINE.fullmatch(line) or not release.version.startswith(f"{line}."):
                document.report(at, "a release under another's key")
            elif (release.line, release.torch_line) != (line, torch_line_of(library, line)):
                document.report(at, "its line or its torch line is another one")


def read_extensions(path: Path) -> dict[str, tuple[ExtensionRelease, ...]]:
    """Read the releases of each library, in the order of their versions.

    Raises:
        OpListError: the file is missing or damaged; all of its problems are named.
    """
    hint = "restore the file, or rebuild it: opcheck lists build torchvision==0.28.0"
    return {
        library: tuple(sorted(releases.values(), key=lambda each: Version.parse(each.line)))
        for library, releases in read_as(path, ExtensionList, _check, hint).extensions.items()
    }


class Extensions:
    """The lists of the extension libraries below a directory, read on first use."""

    def __init__(self, directory: Path | None = None) -> None:
        """Take the directory of the op lists; None means empty lists."""
        self._directory = directory

    @functools.cached_property
    def releases(self) -> Mapping[str, tuple[ExtensionRelease, ...]]:
        """The releases of each library.

        Raises:
            OpListError: the file is damaged.
        """
        path = self._directory / FILE if self._directory else None
        return read_extensions(path) if path is not None and path.is_file() else {}

    def raw(self) -> bytes:
        """Return the bytes of all files, for a digest."""
        if self._directory is None:
            return b""
        files = [FILE, *map(registrations_file, LIBRARIES)]
        paths = [self._directory / file for file in files]
        return b"".join(documents.read(path) for path in paths if path.is_file())

    def release(self, library: str, torch_line: str) -> ExtensionRelease | None:
        """Return the release that pairs with a torch line; None where no list has it.

        This is the release that was published with the torch line, else the newest earlier release
        whose wheel does not exclude that torch: wheels built on PyTorch's stable ABI pin none.

        Raises:
            OpListError: the file is damaged.
            UsageError: not a version.
        """
        line = paired_line(library, torch_line)
        releases = self.releases.get(library, ())
        paired = next((release for release in releases if release.line == line), None)
        admitting = (release for release in reversed(releases) if release.admits(torch_line))
        return paired or next(admitting, None)

    @cached_method
    def operators(self, library: str, line: str) -> Mapping[str, str]:
        """Return every operator of a release line of the library, with its value.

        Raises:
            OpListError: a file is damaged.
        """
        lines = [release.line for release in self.releases.get(library, ())]
        if self._directory is None or not lines:
            return MappingProxyType({})
        history = read_history(self._directory / registrations_file(library), lines, VALUES)[0]
        return MappingProxyType(column(history.operators, lines, line))
