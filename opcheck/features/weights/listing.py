"""The files of a folder or of a repository: their names, their configurations, and streams of their headers."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from opcheck.common import documents
from opcheck.common.documents import DocumentError
from opcheck.common.errors import ModelLoadError
from opcheck.common.files import inside
from opcheck.weights import reading
from opcheck.weights.stored import StoredFile

#: Files of a folder that are looked at, and levels of folders.
_MOST_FILES, _DEPTH = 20_000, 4
#: Bytes of a configuration.
_MOST_TEXT = 16 << 20


class Listing(Protocol):
    """Files by their names with slashes."""

    #: as the user wrote it
    source: str
    names: list[str]
    #: whether the data of a tensor must lie in its file
    is_whole: bool

    def text(self, name: str) -> str:
        """Return a short text."""

    def open_header(self, name: str) -> contextlib.AbstractContextManager[tuple[BinaryIO, int]]:
        """Open a file; its size comes with it."""


class FolderListing:
    """A folder of this machine."""

    is_whole = True

    def __init__(self, folder: Path, source: str) -> None:
        """Find the files; links that lead out of the folder are left out when they are opened."""
        self.source = source
        self._folder = folder
        self.names = sorted(self._walk())

    def _walk(self) -> Iterator[str]:
        count = 0
        for root, folders, files in os.walk(self._folder):
            depth = len(Path(root).relative_to(self._folder).parts)
            folders[:] = [] if depth + 1 >= _DEPTH else [name for name in folders if name[0] != "."]
            for name in files:
                count += 1
                if count > _MOST_FILES:
                    return
                yield (Path(root) / name).relative_to(self._folder).as_posix()

    def text(self, name: str) -> str:
        """Return a short text."""
        return documents.read_text(inside(self._folder, name), _MOST_TEXT)

    @contextlib.contextmanager
    def open_header(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        """Open a file; its size comes with it."""
        with open_local(inside(self._folder, name)) as opened:
            yield opened


@contextlib.contextmanager
def open_local(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file of this machine; its size comes with it.

    Raises:
        ModelLoadError: it cannot be opened.
    """
    try:
        stream = documents.open_file(path)
    except OSError as error:
        raise reading.make_damaged_error(str(path), str(error)) from error
    with stream:
        yield stream, os.fstat(stream.fileno()).st_size


def read_stored(listing: Listing, name: str) -> StoredFile:
    """Read the header of a file.

    Raises:
        ModelLoadError: it cannot be read.
    """
    with listing.open_header(name) as (stream, size):
        return reading.read(stream, size, name, is_whole=listing.is_whole)


def settings(listing: Listing, name: str) -> dict[str, Any]:
    """Return the content of a configuration; empty where there is no such file.

    Raises:
        ModelLoadError: it is no JSON object.
    """
    if name not in listing.names:
        return {}
    try:
        content = documents.from_python_json(listing.text(name))
    except (DocumentError, UnicodeError, json.JSONDecodeError) as error:
        raise reading.make_damaged_error(f"{listing.source}/{name}", str(error)) from error
    if not isinstance(content, dict):
        raise reading.make_damaged_error(f"{listing.source}/{name}", "it contains no settings")
    return content


def files_below(folder: str, named: Sequence[str], names: Sequence[str], index: str) -> list[str]:
    """Return the files that an index names, as paths of the listing.

    Raises:
        ModelLoadError: a name leads elsewhere, or there is no such file.
    """
    found = []
    for name in named:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or any(letter in name for letter in "\\:\0"):
            raise ModelLoadError(
                f"{PurePosixPath(index).name} names a file outside of its folder: {name[:100]!r}",
                context=f"index {index}",
                hint="an index names files next to it; do not use this one",
            )
        full = (PurePosixPath(folder) / path).as_posix()
        if full not in names:
            raise ModelLoadError(
                f"{PurePosixPath(index).name} names {name[:100]!r}, and there is no such file",
                context=f"index {index}",
                hint="download the missing file, or read one file by itself: opcheck weights FILE",
            )
        found.append(full)
    return found
