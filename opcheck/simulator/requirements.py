"""Read which torch an installed library requires; a library that excludes the target's torch sees the installed one.

Another version of the library, unknown to opcheck, would be installed beside the target's torch.  transformers 5
would turn its models off (utils/import_utils.py, is_torch_available), others fail to import.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from typing import TYPE_CHECKING

import torch
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from opcheck.common.versions import Version
from opcheck.data.registrations import load
from opcheck.simulator import python_visible_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opcheck.common.versions import Target
    from opcheck.simulator.callers import Caller

#: without what a build appends: +cpu, +cu126
INSTALLED = str(torch.__version__).partition("+")[0]
_INSTALLED_LINE = Version.parse(INSTALLED)


def version_of(target: Target) -> str:
    """Return ``torch.__version__`` on the target: the newest patch release in the lists."""
    if target.torch == _INSTALLED_LINE:
        return INSTALLED
    return load().release(str(target.torch)).torch


def admits(target: Target, package: str) -> bool:
    """Return whether the library may be installed beside the target's torch."""
    return _requirement(package).contains(version_of(target), prereleases=True)


_libraries = False

#: libraries whose import failed with the target's version, and that were imported with the installed one
outdated: set[str] = set()


@contextlib.contextmanager
def libraries_see_the_target() -> Iterator[None]:
    """Show the target's torch to installed libraries, as the program always sees it, in the block.

    ``opcheck run`` has one target and enters this.  A capture does not: libraries choose by release when they are
    imported, and one import would no longer serve more than one release (17 imports of transformers for BertModel).
    """
    global _libraries  # noqa: PLW0603 - one Mac at a time
    before, _libraries = _libraries, True
    try:
        yield
    finally:
        _libraries = before


def sees_the_target(who: Caller) -> bool:
    """Return whether that code sees the Python of the target's torch."""
    if who.kind != "library":
        return who.kind == "program"
    return (
        _libraries
        and who.package not in outdated
        and python_visible_target.ask(admits, who.package)
    )


def note_installed(who: Caller, what: str) -> None:
    """Note that a library saw the installed torch where the target's differs."""
    if not _libraries:
        return  # the report says it of all libraries at once
    package = who.package
    why = (
        "cannot be imported with the target's version"
        if package in outdated
        else f"requires torch{_requirement(package)}"
    )
    python_visible_target.note(
        package,
        f"{_described(package)} {why}: it ran as with torch {INSTALLED}, first at {who.place} ({what})",
    )


@functools.cache
def _requirement(package: str) -> SpecifierSet:
    """Return the versions of torch that a top-level package's distribution requires, extras included."""
    distribution = _distribution(package) if package else None
    specifiers = SpecifierSet()
    for line in distribution.requires or () if distribution else ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name == "torch":
            specifiers &= requirement.specifier
    return specifiers


def _described(package: str) -> str:
    distribution = _distribution(package)
    return f"{package} {distribution.version}" if distribution else package


@functools.cache
def _distribution(package: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(package, ())
        return importlib.metadata.distribution(names[0]) if names else None
