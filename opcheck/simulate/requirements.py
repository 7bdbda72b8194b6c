"""Which torch an installed library asks for: one that does not take the target's sees the installed torch.

Beside the target's torch another version of the library would be installed, which nobody knows here.  transformers 5
would turn its models off (utils/import_utils.py, is_torch_available), others fail to import.
"""

from __future__ import annotations

import functools
import importlib.metadata
from typing import TYPE_CHECKING

import torch
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from opcheck.oplists.registrations import load
from opcheck.simulate import told
from opcheck.versions import Version

if TYPE_CHECKING:
    from opcheck.simulate.callers import Caller
    from opcheck.versions import Target

#: without what a build appends: +cpu, +cu126
INSTALLED = str(torch.__version__).partition("+")[0]
_INSTALLED_LINE = Version.parse(INSTALLED)


def version_of(target: Target) -> str:
    """``torch.__version__`` on the target: the newest patch release in the lists."""
    if target.torch == _INSTALLED_LINE:
        return INSTALLED
    return load().release(str(target.torch)).torch


def admits(target: Target, package: str) -> bool:
    """Whether the library may be installed beside the target's torch."""
    return _requirement(package).contains(version_of(target), prereleases=True)


def sees_the_target(who: Caller) -> bool:
    """Whether that code sees the Python of the target's torch; that it does not is noted."""
    if who.kind != "library":
        return who.kind == "program"
    package = who.package
    if told.ask(admits, package):
        return True
    told.note(
        f"{_described(package)} requires torch{_requirement(package)}: it ran as with torch {INSTALLED}"
    )
    return False


@functools.cache
def _requirement(package: str) -> SpecifierSet:
    """What the distribution of a top-level package asks of torch, extras included."""
    distribution = _distribution(package)
    found = SpecifierSet()
    for line in distribution.requires or () if distribution else ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name == "torch":
            found &= requirement.specifier
    return found


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
