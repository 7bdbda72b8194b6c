"""The library of a release's macOS wheel, which is downloaded if the cache lacks it."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from opcheck.data.wheels.archive import LIBRARY, default_cache, obtain, read_archive
from opcheck.data.wheels.image import Image


class Library(NamedTuple):
    """``libtorch_cpu.dylib`` of a release, and its file."""

    torch: str
    image: Image
    path: Path


@contextlib.contextmanager
def open_library(release: str) -> Iterator[Library]:
    """Yield the library of a release.

    Raises:
        UsageError: neither a release nor a wheel.
        OpListError: no such wheel, or one that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="opcheck-wheel-") as folder:
        wheel = read_archive(obtain(release, default_cache()))
        wheel.unpack(Path(folder))
        path = Path(folder, LIBRARY)
        yield Library(wheel.version, Image.parse(path), path)
