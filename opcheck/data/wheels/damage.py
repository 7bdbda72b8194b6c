"""A wheel may be damaged in any way, or made to fill a disk: both are said in three lines."""

from __future__ import annotations

import contextlib
import lzma
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING

from opcheck.common.errors import OpListError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: How many times its own size a wheel may take unpacked, and bytes beside: those of torch take four times theirs.
MOST_TIMES, MOST_BESIDE = 50, 64 << 20
#: What zipfile, its decompressors, ast and whatever reads the members raise for bytes that are none of theirs.
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
def undamaged(path: Path, hint: str) -> Iterator[None]:
    """What is raised in the block over the bytes of a wheel is said to be its damage.

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
def opened(path: Path, hint: str) -> Iterator[zipfile.ZipFile]:
    """The archive of a wheel, whose members may be read in the block.

    Raises:
        OpListError: it is damaged, or takes far more unpacked than any wheel does.
    """
    with undamaged(path, hint), zipfile.ZipFile(path) as wheel:
        size = sum(member.file_size for member in wheel.infolist())
        if size > MOST_TIMES * path.stat().st_size + MOST_BESIDE:
            raise OpListError(
                "the wheel is no wheel: unpacked it takes far more than any does",
                context=f"{path.name}: {size:,} bytes",
                hint=hint,
            )
        yield wheel
