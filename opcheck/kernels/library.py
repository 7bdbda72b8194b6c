"""The Metal library of a torch release: from its wheel, kept next to the wheels."""

import contextlib
import re
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.caches import make, require_private
from opcheck.common.errors import OpListError
from opcheck.common.files import open_replacement
from opcheck.data.wheels import archive, metal_source, metallib
from opcheck.data.wheels.archive import open_archive

#: The variant for every supported macOS; in 2.6 to 2.8 the variant for macOS 14 and newer, which
#: alone has the bfloat16 kernels (aten/src/ATen/mps/MPSDevice.mm, 2.8.0).
SECTIONS = ("metal_bfloat", "metal_basic")
#: The name of the kernels that a wheel has as source text alone: all of 1.13 to 2.5.
SOURCE = "source text"
_HINT = "kernels are compiled into the wheels of torch 2.6 and newer"
_NAME = re.compile(r"torch-(?P<release>\d+\.\d+\.\d+)")


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one release, by name."""

    torch: str
    section: str
    functions: dict[str, metallib.Function]

    def check_compiled(self) -> None:
        """Refuse kernels that a wheel has as source text.

        Raises:
            OpListError: there is no compiled code.
        """
        if self.section == SOURCE:
            raise OpListError(
                "the wheel has kernels as source text, which only a Mac compiles",
                context=f"torch {self.torch}",
                hint=_HINT,
            )


def read(release: str, cache: Path | None = None, section: str = "") -> Library:
    """Return the library of a release such as 2.15.0, or of a wheel's path; a wheel is downloaded once.

    Args:
        release: the release, or the path of a macOS arm64 wheel of torch.
        cache: where wheels are kept.
        section: a section of the wheel; else the first of ``SECTIONS`` that it has.

    Raises:
        OpListError: the wheel cannot be had or read, or it has no such section and no source text.
    """
    cache = cache or archive.default_cache()
    kept = require_private(cache.parent / "kernels") / "libraries"
    for name in [section] if section else SECTIONS:
        path = kept / f"{name}-{release}.metallib"
        if path.is_file():
            return _library(release, name, documents.read(path))
    wheel = archive.obtain(release, cache)
    with open_archive(wheel, "delete the file and run the command again, which downloads it") as members:
        dylib = members.read(archive.LIBRARY)
    sections = metallib.sections(dylib)
    match = _NAME.match(wheel.name)
    release = match["release"] if match else release
    chosen = section or next((name for name in SECTIONS if name in sections), "")
    if not chosen and (texts := metal_source.functions(dylib)):
        functions = {function.name: function for function in texts}
        return Library(torch=release, section=SOURCE, functions=functions)
    if chosen not in sections:
        raise OpListError(
            f"the wheel has no compiled kernels{section and f' of {section}'}",
            context=wheel.name,
            hint=f"it has {', '.join(sorted(sections))}" if sections else _HINT,
        )
    with contextlib.suppress(OSError), open_replacement(make(kept) / f"{chosen}-{release}.metallib") as file:
        file.write(sections[chosen])
    return _library(release, chosen, sections[chosen])


def _library(release: str, section: str, data: bytes) -> Library:
    functions = {function.name: function for function in metallib.functions(data)}
    return Library(torch=release, section=section, functions=functions)
