"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from opcheck.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write beside the file and rename, so that an interrupted run leaves no half of it.

    A link is followed; a device or a pipe is written to as it is.

    Raises:
        UsageError: it cannot be written.
    """
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():
            # Renaming over /dev/null would leave a file there.
            target.write_text(text, encoding="utf-8")
            return
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise UsageError(
            f"cannot write the file: {error.strerror}",
            context=str(path),
            hint="name a file in a directory that exists and that you may write to",
        ) from error
