"""Turn a damaged wheel, or a wheel made to fill a disk, into an error of three lines."""

from __future__ import annotations

import contextlib
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from opcheck.common import documents
from opcheck.common.errors import OpListError

#: An unpacked wheel may take this many times its size, plus these bytes: torch's wheels take four times their size.
MOST_TIMES, MOST_BESIDE = 50, 64 << 20
#: The errors that zipfile, its decompressors, ast and the readers of members raise for damaged bytes.
#: RuntimeError: a member is encrypted, or compressed in an unknown way; ValueError: a date of zeros, no UTF-8.
_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    OSError,
    EOFError,
    LookupError,
    SyntaxError,
    RuntimeError,
    ValueError,
    ArithmeticError,
    MemoryError,
)


@contextlib.contextmanager
def report_damage(path: Path, hint: str) -> Iterator[None]:
    """Report an error that the block raises over the bytes of a wheel as damage of the wheel.

    Raises:
        OpListError: it is damaged.
    """
    try:
        yield
    except _ERRORS as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise OpListError(
            "the wheel is damaged", context=f"{path.name}: {reason}", hint=hint
        ) from error


@contextlib.contextmanager
def open_archive(path: Path, hint: str) -> Iterator[zipfile.ZipFile]:
    """Open the archive of a wheel, so that the block can read its members.

    Raises:
        OpListError: the wheel is damaged, or is far larger unpacked than any real wheel.
    """
    with (
        report_damage(path, hint),
        documents.open_file(path) as file,
        documents.open_zip(file) as wheel,
    ):
        size = sum(member.file_size for member in wheel.infolist())
        if size > MOST_TIMES * path.stat().st_size + MOST_BESIDE:
            raise OpListError(
                "the wheel is no wheel: unpacked it takes far more than any does",
                context=f"{path.name}: {size:,} bytes",
                hint=hint,
            )
        yield wheel
