"""Writes a file completely or not at all."""

import contextlib
import errno
import functools
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors

#: Seconds that a pipe is given to get a reader.
_PATIENCE = 10.0
#: Devices that a check has opened: the reader of a pipe would take a close before the text for the end.
_CHECKED: dict[Path, int] = {}
#: Bytes that a disk must take before the work starts whose result it is to have.
_ROOM = 1 << 16


def inside(root: Path, name: str | Path) -> Path:
    """Return the path of a name below a folder: each name of a stranger's that becomes a path goes through here.

    Args:
        root: the folder.
        name: relative to the folder, or a path in it; links are followed to see where they lead.

    Raises:
        UsageError: it leads out of the folder, or cannot be a path.
    """
    path = root / name
    try:
        # "~" is a home folder to other functions.
        if not str(name).startswith("~") and path.resolve().is_relative_to(root.resolve()):
            return path
    except (OSError, ValueError, RuntimeError):  # a null character, a name that is too long, links in a circle
        pass
    hint = "write a path below that folder; no link on the way may leave it"
    raise UsageError(f"the path {str(name)[:200]!r} leads out of its folder", hint=hint)


_HINT = "name a file in a directory that exists and that you may write to"


def write_text(path: Path, text: str) -> None:
    """Write to a new file and rename it, so that an interrupted run leaves no partial file.

    A device or a pipe is written to as it is.  A link to a file is replaced, and never followed: a link in a project
    may lead to any file of the user's.

    Raises:
        UsageError: it cannot be written.
    """
    # Half a character, as in a file's name that is no UTF-8, as the six characters of its number.
    content = text.encode("utf-8", "backslashreplace")
    with _explain_writing(path, _HINT):
        if _is_device(path):
            # Renaming over /dev/null would leave a file there.
            _write_to_device(path, content)
            return
        with open_replacement(path) as file:
            file.write(content)


def check_writable(path: Path) -> None:
    """Check that ``write_text`` can write a short file, before the work whose result it writes.

    Raises:
        UsageError: it cannot: the disk is full, the folder is not to be written to, or a pipe has no reader.
    """
    with _explain_writing(path, _HINT):
        if _is_device(path):
            _CHECKED[path] = _open_device(path)
            os.write(_CHECKED[path], b"")  # /dev/full refuses that, too
        else:
            with _open_beside(path) as (file, _):
                file.write(bytes(_ROOM))


def _explain_writing(path: Path, otherwise: str) -> contextlib.AbstractContextManager[None]:
    errors = (OSError, ValueError)  # a ValueError: there is a null character in the name
    hint = functools.partial(hint_of, otherwise=otherwise)
    return explain_errors(errors, "cannot write the file", context=path, hint=hint)


def hint_of(error: Exception, otherwise: str) -> str:
    """Return what to do about an error of writing."""
    return "free some space" if is_out_of_space(error) else otherwise


def is_out_of_space(error: Exception) -> bool:
    """Return whether the disk, a quota or a limit of the process has no room."""
    return getattr(error, "errno", 0) in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def rewrite(path: Path, before: bytes, after: bytes) -> None:
    """Replace a file of the user's by changed content, if it still is as it was read; its permissions stay.

    Args:
        path: the file, no symbolic link.
        before: its content when it was read; empty: there is no such file yet.
        after: its new content.

    Raises:
        UsageError: it has changed since, it is read-only, or it cannot be written; it stays as it is.
    """
    with _explain_writing(path, "make the file and its directory writable, or leave it out with --exclude"):
        status = None
        if before or os.path.lexists(path):
            status = path.stat()
            if documents.read(path) not in (before, after):
                raise UsageError("the file changed while it was read", context=str(path), hint="run the command again")
        # A rename needs no right to write to the old file; its owner has protected it.
        if status is not None and not (status.st_mode & 0o222 and os.access(path, os.W_OK)):
            raise PermissionError(errno.EACCES, "it is read-only")
        with open_replacement(path, status) as file:
            file.write(after)


@contextlib.contextmanager
def open_replacement(path: Path, status: os.stat_result | None = None, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a new file that replaces the path at the end of the block.

    Args:
        path: the file.
        status: of the old file, whose permissions, owner and hard links stay; None: those of a new file.
        mode: the permissions of a new file, less the user's mask.

    Raises:
        OSError: it cannot be made, or cannot take that place; whatever is raised, nothing of it stays.
    """
    try:
        with _open_beside(path, mode) as (file, beside):
            with file:
                yield file
            if status is not None and _is_another_file(status, beside.stat()):
                _write_in_place(path, beside.read_bytes())
                return
            if status is not None:
                beside.chmod(stat.S_IMODE(status.st_mode))
            beside.replace(path)
    except OSError as error:
        # The error of a write has no name.
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def _open_beside(path: Path, mode: int = 0o666) -> Iterator[tuple[BinaryIO, Path]]:
    """Open a new file in the folder of another file, and remove it at the end of the block if it is still there."""
    # No one can guess this name and put a link there; even then the link is not followed.
    beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(beside, flags, mode), "wb") as file:
            yield file, beside
    finally:
        with contextlib.suppress(OSError, ValueError):
            beside.unlink()


def _is_another_file(old: os.stat_result, new: os.stat_result) -> bool:
    """Return whether a new file would not take all places of an old one: its hard links, its owner and its group."""
    return old.st_nlink > 1 or (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid)


def _write_in_place(path: Path, content: bytes) -> None:
    """Write over a file; what it held comes back if that fails.

    Raises:
        OSError: it cannot be written.
    """
    before = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        try:
            _overwrite(file, content)
        except OSError:
            _overwrite(file, before)
            raise


def _overwrite(file: FileIO, content: bytes) -> None:
    file.seek(0)
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
    file.truncate(len(content))


def is_file(path: str | Path) -> bool:
    """Return whether there is a regular file; a name that the system refuses, such as a long name, is none."""
    return os.path.isfile(path)  # noqa: PTH113  (Path.is_file raises for such names)


def describe_missing(path: str | Path) -> str:
    """Return the text of an error for a path that is no regular file."""
    return f"{path} is not a regular file" if os.path.lexists(path) else f"there is no file {path}"


def _is_device(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return not stat.S_ISREG(path.stat().st_mode)
    return False


def _open_device(path: Path) -> int:
    # Opening a pipe would wait for a reader, without a limit.
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            # A socket cannot be opened at all.
            if error.errno != errno.ENXIO or not path.is_fifo() or time.monotonic() >= until:
                raise
            time.sleep(0.05)


def _write_to_device(path: Path, content: bytes) -> None:
    descriptor = _CHECKED.pop(path) if path in _CHECKED else _open_device(path)
    with os.fdopen(descriptor, "wb") as file:
        if sys.platform != "win32":
            os.set_blocking(descriptor, True)
        file.write(content)
