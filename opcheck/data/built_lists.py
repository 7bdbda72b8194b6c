"""Op lists of a wheel that is no listed release, such as a nightly build; they lie in the user's cache.

Built lists are a copy of the shipped lists with the registrations of one more wheel.  A run takes them where it names
the wheel's version (``--torch 2.16.0.dev20261120``) or ``nightly``; every other run has the shipped lists.  The
variable OPCHECK_LISTS passes the choice on to the processes of the run.
"""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.caches import require_private
from opcheck.common.errors import OpListError, UsageError, explain_missing
from opcheck.common.files import write_text
from opcheck.data.registrations import NIGHTLY, VARIABLE, forget, is_unlisted_name, load, shipped_directory
from opcheck.model.records import Record

#: What a folder of built lists has when it is complete.
_ABOUT = "built.json"
#: 2.16.0.dev20261120, 2.16.0rc1
_PRERELEASE = re.compile(r"\d(?:\.dev|a|b|rc)\d")
#: Review material, which no run reads.
_REVIEW = shutil.ignore_patterns("extracted", "texts.yaml", "reports.yaml", "opinfo")


class BuiltLists(Record, frozen=True, kw_only=True):
    """The description of built lists, which lies next to them."""

    torch: str
    line: str
    wheel: str
    sha256: str
    #: the digest of the shipped lists that they extend
    base: str
    #: the newest release of the shipped lists that is not newer: the statements on it apply to the wheel, too
    carried: str

    @property
    def is_new_line(self) -> bool:
        """Return whether the shipped lists have no release of its line."""
        return not self.carried.startswith(f"{self.line}.")


def folder() -> Path:
    """Return where built lists are kept: next to the wheels."""
    from opcheck.data.wheels.archive import default_cache

    return default_cache().parent / "lists"


def build_lists(wheel: Path) -> BuiltLists:
    """Make lists with this wheel's registrations, and keep the wheel for the verbs that read its kernels.

    Raises:
        OpListError: it is no macOS arm64 wheel of torch, or is damaged.
        UsageError: the cache cannot be written, or others can write to it.
    """
    from opcheck.data.wheels.archive import default_cache
    from opcheck.data.wheels.release import build

    shipped = load(shipped_directory())
    kept = require_private(folder())
    with tempfile.TemporaryDirectory(prefix=".making-", dir=kept) as making:
        lists = Path(making, "lists")
        shutil.copytree(shipped_directory(), lists, ignore=_REVIEW)
        release = build(str(wheel), lists, default_cache()).release
        if any(release.torch == listed.torch for listed in shipped.releases):
            message = f"torch {release.torch} is a listed release: no lists are needed for it"
            raise UsageError(message, context=wheel.name, hint=f"name it: --torch {release.line}")
        older = [each for each in shipped.releases if each.version <= release.version]
        carried = max(older or shipped.releases[:1], key=lambda each: each.version).torch
        built = {**msgspec.to_builtins(release), "wheel": wheel.name, "base": shipped.digest, "carried": carried}
        about = msgspec.convert(built, BuiltLists)
        write_text(lists / _ABOUT, msgspec.json.encode(about).decode())
        final = kept / release.torch
        if final.exists():
            final.rename(Path(making, "replaced"))
        lists.rename(final)
    _keep_wheel(wheel, require_private(default_cache()))
    return about


def build_nightly() -> BuiltLists:
    """Download the newest nightly wheel, and make its lists.

    Raises:
        OpListError: it cannot be downloaded or read.
        UsageError: a package that reads wheels is missing.
    """
    from opcheck.data.wheels.archive import default_cache, obtain_nightly

    with require_readers("--torch nightly"):
        return build_lists(obtain_nightly(default_cache()))


def require_readers(place: str) -> contextlib.AbstractContextManager[None]:
    """Turn a missing package that reads wheels into the command that installs it.

    Raises:
        UsageError: the package is missing.
    """
    hint = "pip install 'opcheck[wheels]'"
    return explain_missing("reading a wheel needs", "lief", "capstone", "numpy", context=place, hint=hint)


def _keep_wheel(wheel: Path, cache: Path) -> None:
    kept = cache / wheel.name
    if kept.exists() or wheel.resolve().parent == cache.resolve():
        return
    partial = kept.with_suffix(".partial")
    shutil.copyfile(wheel, partial)
    partial.rename(kept)


def list_built() -> dict[str, BuiltLists]:
    """Return all built lists by the version of their wheel, the oldest first; what cannot be read is left out."""
    from packaging.version import InvalidVersion, Version

    kept = []
    for file in folder().glob(f"*/{_ABOUT}"):
        with contextlib.suppress(OSError, documents.DocumentError, msgspec.DecodeError, InvalidVersion):
            about = msgspec.json.decode(documents.read(file), type=BuiltLists)
            kept.append((Version(about.torch), about))
    return {about.torch: about for _, about in sorted(kept, key=lambda each: each[0])}


def select(*texts: str | None) -> BuiltLists | None:
    """Choose the lists of this process and those that it starts, by the releases that a user names.

    Returns:
        The built lists that they have; None: the shipped lists.

    Raises:
        UsageError: two of the texts name different built lists.
        OpListError: the built lists extend lists of another opcheck; a nightly wheel cannot be had.
    """
    names = {text.strip() for text in texts if text}
    chosen = {about.torch: about for name in names if (about := find(name))}
    if len(chosen) > 1:
        message = f"two wheels that are no listed releases: {' and '.join(chosen)}"
        raise UsageError(message, context="--torch", hint="name a single unlisted version in a run")
    about = next(iter(chosen.values()), None)
    if (about is None) != (VARIABLE not in os.environ):
        forget()
    if about is None:
        os.environ.pop(VARIABLE, None)
        return None
    if about.base != load(shipped_directory()).digest:
        raise OpListError(
            f"the lists of torch {about.torch} extend other op lists than those of this opcheck",
            context=str(folder() / about.torch),
            hint=f"make it again: opcheck lists build --wheel {folder().parent / 'wheels' / about.wheel}",
        )
    place = str(require_private(folder() / about.torch))
    if os.environ.get(VARIABLE) != place:
        os.environ[VARIABLE] = place
        forget()
    return about


def find(name: str) -> BuiltLists | None:
    """Return the built lists of a version, or the newest of a prerelease for ``nightly``; None: there are none.

    Raises:
        OpcheckError: ``nightly``, there are none, and they cannot be made.
    """
    if not is_unlisted_name(name):
        return None
    every = list_built()
    if name != NIGHTLY:
        return every.get(name)
    nightlies = [about for torch, about in every.items() if _PRERELEASE.search(torch)]
    return nightlies[-1] if nightlies else build_nightly()


def find_selected() -> BuiltLists | None:
    """Return the built lists of this process; None: the shipped ones."""
    place = os.environ.get(VARIABLE)
    if not place:
        return None
    try:
        return msgspec.json.decode(documents.read(Path(place, _ABOUT)), type=BuiltLists)
    except (OSError, msgspec.DecodeError):
        return None
