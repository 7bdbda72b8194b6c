"""Finds the Metal backend that the target's release has, so that the kernels are those that it writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Version
from opcheck.data.files import Release
from opcheck.data.wheels import inductor
from opcheck.worker.installed import distribution_version

#: The releases whose wheels have torch/_inductor/codegen/mps.py: absent in 2.6.0, there in 2.7.0.
METAL_SINCE = Version(2, 7)
#: Those with torch/_inductor/codegen/cpp_wrapper_mps.py, of which AOTInductor has need.
AHEAD_SINCE = Version(2, 8)


class Backend(NamedTuple):
    """A release's Metal backend; all fields are empty where the installed one is to be used."""

    folder: str = ""
    release: str = ""
    #: why it is not the target's
    problem: str = ""


def backend(release: Release, progress: Callable[[str], None] | None = None) -> Backend:
    """Return the release's backend, of the cache or of its macOS wheel.

    Args:
        release: the target's release.
        progress: called before a wheel is read, which may be a download of 80 MB.
    """
    line = Version.parse(release.line)
    installed = distribution_version("torch")
    if line < METAL_SINCE or not installed or Version.parse(installed) == line:
        return Backend()
    if progress:
        progress(f"reading the Inductor of torch {release.torch}")
    try:
        return Backend(str(inductor.unpacked(release)), release.torch)
    except OpcheckError as error:
        return Backend(problem=": ".join(filter(None, (error.message, error.context))))


def includes(folder: str) -> Path | None:
    """Return the folder of the backend's headers; None for the installed backend."""
    return Path(folder) / inductor.HEADERS if folder else None
