"""The kernels of a release as a list, and what differs between two releases."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.caches import load, store
from opcheck.data.wheels import archive
from opcheck.data.wheels.metallib import Function
from opcheck.kernels import air, kernel_names
from opcheck.kernels.library import SOURCE, Library

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
    entries = []
    for name in kernel_names.matching(library.functions, pattern):
        named = kernel_names.parse(name)
        bitcode = library.functions[name].bitcode
        entries.append(
            CataloguedKernel(
                name=name,
                operation=named.operation,
                form=named.form,
                dtypes=named.dtypes,
                arguments=air.arguments(str(air.parse(bitcode))) if bitcode else (),
            )
        )
    return tuple(entries)


def changes(
    old: Library,
    new: Library,
    pattern: str = "",
    progress: Callable[[str], None] | None = None,
    cache: Path | None = None,
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


def _digests(
    library: Library, wanted: Sequence[str], progress: Callable[[str], None] | None, cache: Path
) -> dict[str, str]:
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


def _key(function: Function) -> str:
    return function.digest or function.name
