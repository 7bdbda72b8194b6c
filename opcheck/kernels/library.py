"""The Metal library of a torch release, from its wheel, kept next to the wheels; its kernels, and what changed."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.caches import load, make, require_private, store
from opcheck.common.errors import OpListError
from opcheck.common.files import open_replacement
from opcheck.common.picking import pick
from opcheck.data.wheels import archive, metal_source, metallib
from opcheck.kernels import air, kernel_names
from opcheck.worker.worker import Progress

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
    with archive.open_archive(wheel, "delete the file and run the command again, which downloads it") as members:
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


#: Between two words of progress.
_STEP = 1000


class CataloguedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel of a release."""

    name: str
    operation: str
    form: str
    dtypes: tuple[str, ...]
    arguments: tuple[air.KernelParameter, ...]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels that one library has and another lacks, and those whose code differs."""

    new: tuple[str, ...]
    gone: tuple[str, ...]
    changed: tuple[str, ...]
    same: int


def entries(library: Library, pattern: str = "") -> tuple[CataloguedKernel, ...]:
    """Return the kernels whose names a pattern matches, with their arguments.

    Raises:
        UsageError: llvmlite is not installed.
    """
    names = kernel_names.matching(library.functions, pattern)
    return tuple(_catalogue(name, library.functions[name].bitcode) for name in names)


def _catalogue(name: str, bitcode: bytes) -> CataloguedKernel:
    named, arguments = kernel_names.parse(name), air.arguments(str(air.parse(bitcode))) if bitcode else ()
    return CataloguedKernel(name=name, arguments=arguments, **pick(named, "operation", "form", "dtypes"))


def changes(
    old: Library, new: Library, pattern: str = "", progress: Progress | None = None, cache: Path | None = None
) -> Changes:
    """Return what differs between two libraries: code is compared without metadata.

    Args:
        old: the earlier library.
        new: the later library.
        pattern: of names.
        progress: is called with a line now and then.
        cache: the folder for digests of code; else the folder of the wheels.

    Raises:
        UsageError: llvmlite is not installed.
    """
    before = set(kernel_names.matching(old.functions, pattern))
    after = set(kernel_names.matching(new.functions, pattern))
    both = sorted(before & after)
    doubtful = [n for n in both if old.functions[n].digest != new.functions[n].digest]
    digests = [
        _digests(library, doubtful, progress, cache or archive.default_cache().parent / "kernels")
        for library in (old, new)
    ]
    changed = tuple(name for name in doubtful if digests[0][name] != digests[1][name])
    return Changes(
        new=tuple(sorted(after - before)),
        gone=tuple(sorted(before - after)),
        changed=changed,
        same=len(both) - len(changed),
    )


def _digests(library: Library, wanted: Sequence[str], progress: Progress | None, cache: Path) -> dict[str, str]:
    """Return the digest of each kernel's code, by name; kept by the bitcode's own digest.

    The digest of a kernel in source text is that of the text.
    """
    if library.section == SOURCE:
        return {name: library.functions[name].digest for name in wanted}
    path = cache / f"code-{library.section}-{library.torch}.json"
    kept: dict[str, str] = {}
    with contextlib.suppress(documents.DocumentError):
        kept = documents.from_json(load(path) or b"", dict[str, str])
    missing = [name for name in wanted if _key(library.functions[name]) not in kept]
    for number, name in enumerate(missing):
        if progress and number % _STEP == 0:
            progress(f"torch {library.torch}: {number:,} of {len(missing):,} kernels read")
        function = library.functions[name]
        kept[_key(function)] = air.code_digest(str(air.parse(function.bitcode)))
    if missing:
        with contextlib.suppress(OSError):
            store(path, msgspec.json.encode(kept))
    return {name: kept[_key(library.functions[name])] for name in wanted}


def _key(function: metallib.Function) -> str:
    return function.digest or function.name
