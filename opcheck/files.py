"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

from opcheck.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write beside the file and rename, so that an interrupted run leaves no half of it.

    A device or a pipe is written to as it is.  A link to a file is replaced, and never followed: a link in a project
    may lead to any file of the user's.

    Raises:
        UsageError: it cannot be written.
    """
    # Half a character, as in a file's name that is no UTF-8, as the six characters of its number.
    content = text.encode("utf-8", "backslashreplace")
    beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        if _is_device(path):
            # Renaming over /dev/null would leave a file there.
            path.write_bytes(content)
            return
        try:
            _create(beside, content)
            beside.replace(path)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
    except (OSError, ValueError) as error:  # a ValueError: there is a null character in the name
        raise UsageError(
            f"cannot write the file: {getattr(error, 'strerror', None) or error}",
            context=str(path),
            hint="name a file in a directory that exists and that you may write to",
        ) from error


def is_file(path: str | Path) -> bool:
    """Whether there is a regular file; a name that the system refuses is none, as one that is too long."""
    return os.path.isfile(path)  # noqa: PTH113  (Path.is_file raises for such names)


def _is_device(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # it does not exist, or its links go round in a circle
        return False


def _create(path: Path, content: bytes) -> None:
    """Write a file that was not there before."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(content)
