"""Decide which release of torch an installed library sees, and record what it read.

A library sees the target's release.  If its requirements exclude that release, another version of the library,
unknown to opcheck, would be installed in addition to the target's torch: transformers 5 turns its models off
(utils/import_utils.py, is_torch_available), others fail to import.  It sees the nearest release that it admits.  A
library that fails on the installed torch with the target's version sees the installed release.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Callable, Hashable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import torch
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.simulator.target_reads import READS

Kind = Literal["program", "library", "own"]


Answer = TypeVar("Answer")

#: without the suffix of a build: +cpu, +cu126
INSTALLED = str(torch.__version__).partition("+")[0]
_INSTALLED_LINE = Version.parse(INSTALLED)


def version_of(target: Target) -> str:
    """Return ``torch.__version__`` on the target: the newest patch release in the lists."""
    if target.torch == _INSTALLED_LINE:
        return INSTALLED
    return load().release(str(target.torch)).torch


def view_of(target: Target, package: str) -> Target:
    """Return the target with the release that a library sees; an empty name represents the program."""
    line = _nearest_line(_requirement(package), target)
    return target if line == target.torch else msgspec.structs.replace(target, torch=line)


@functools.cache
def _nearest_line(requirement: SpecifierSet, target: Target) -> Version:
    if requirement.contains(version_of(target), prereleases=True):
        return target.torch
    targets = (msgspec.structs.replace(target, torch=line) for line in load().versions)
    admitted = [each.torch for each in targets if requirement.contains(version_of(each), prereleases=True)]
    newer = [line for line in admitted if line > target.torch]
    return min(newer) if newer else max(admitted, default=_INSTALLED_LINE)


def is_outdated(package: str) -> bool:
    """Return whether the library failed with the target's version; an empty name represents the program."""
    return package in READS.outdated or (READS.all_outdated and bool(package))


def as_seen(target: Target, package: str, decide: Callable[..., Answer], *details: Hashable) -> Answer:
    """Return the answer of the release that the library sees."""
    return decide(view_of(target, package), *details)


def ask_for(who: Caller, decide: Callable[..., Answer], *details: Hashable) -> Answer:
    """Return ``decide(target, *details)`` for the release that the code sees, and record the question."""
    package = who.package
    if is_outdated(package):
        # Every target in this process has had the answers that the library failed with.
        answer = decide(READS.now(_with_installed), *details)
    else:
        answer = READS.ask(as_seen, package, decide, *details)
    record(who, answer, decide, *details)
    return answer


def record(who: Caller, answer: Any, decide: Callable[..., Any], *details: Hashable) -> None:
    """Record that a library got this answer; the program always gets the target's."""
    if who.package and (key := (who.package, decide, details)) not in READS.of_libraries:
        READS.of_libraries[key] = (who.place, answer)


def _with_installed(target: Target) -> Target:
    return msgspec.structs.replace(target, torch=_INSTALLED_LINE)


def differing_libraries(target: Target) -> dict[str, str]:
    """Return the libraries that did not get the target's answers, each with its first such question as a sentence."""
    first: dict[str, str] = {}
    for (package, decide, details), (place, answer) in list(READS.of_libraries.items()):
        if package not in first and decide(target, *details) != answer:
            first[package] = f"first at {place} ({describe_question(decide, details)})"
    texts = {package: f"{_why(package, target)}, {where}" for package, where in first.items()}
    if target.torch != _INSTALLED_LINE:
        why = f"was imported before the audit: what it computed then saw torch {INSTALLED}"
        texts |= {package: f"{_identify(package)} {why}" for package in sorted(READS.imported_before - texts.keys())}
    return texts


def differ_from_installed(target: Target) -> set[str]:
    """Return the libraries that got an answer that the installed release does not give."""
    installed = _with_installed(target)
    seen = list(READS.of_libraries.items())
    return {package for (package, decide, details), (_, answer) in seen if decide(installed, *details) != answer}


def describe_question(decide: Callable[..., Any], details: tuple[Hashable, ...]) -> str:
    """Return a question as Python writes it."""
    describe = DESCRIPTIONS.get(decide.__name__)
    return describe(*details) if describe else "torch.__version__"


#: how the questions of other modules read, by the name of their function
DESCRIPTIONS: dict[str, Callable[..., str]] = {}


def _why(package: str, target: Target) -> str:
    line = _INSTALLED_LINE if is_outdated(package) else view_of(target, package).torch
    why = "fails here with the target's version" if is_outdated(package) else f"requires torch{_requirement(package)}"
    seen = version_of(msgspec.structs.replace(target, torch=line))
    return f"{_identify(package)} {why}: it ran as with torch {seen}, which answers differently"


@functools.cache
def _requirement(package: str) -> SpecifierSet:
    """Return the versions of torch that a top-level package's distribution requires, extras included."""
    distribution = _distribution(package) if package else None
    specifiers = SpecifierSet()
    for line in distribution.requires or () if distribution else ():
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            specifiers &= requirement.specifier if requirement.name == "torch" else SpecifierSet()
    return specifiers


def _identify(package: str) -> str:
    distribution = _distribution(package)
    return f"{package} {distribution.version}" if distribution else package


@functools.cache
def _distribution(package: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(package, ())
        return importlib.metadata.distribution(names[0]) if names else None


# -- the readers -------------------------------------------------------------------------------------------------------


#: functorch is a part of torch's distribution, torchgen too.
_OWN = tuple(
    str(path) + os.sep
    for path in (
        Path(__file__).parents[2],
        *(Path(torch.__file__).parents[1] / name for name in ("torch", "functorch", "torchgen")),
    )
)
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
#: where packages are installed: an environment may take them from folders of another one
_SITE = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


class Caller(NamedTuple):
    """The innermost code outside the standard library."""

    kind: Kind
    file: str
    line: int

    @property
    def _below_site(self) -> Path | None:
        """The file of a library without the folder of the environment."""
        return next((Path(self.file.rpartition(folder)[2]) for folder in _SITE if folder in self.file), None)

    @property
    def package(self) -> str:
        """The top-level package of a library; empty for a program's code."""
        path = self._below_site
        return path.parts[0].removesuffix(".py") if path else ""

    @property
    def place(self) -> str:
        """The file and line; for a library, without the folder of the environment."""
        return f"{(self._below_site or Path(Path(self.file).name)).as_posix()}:{self.line}"


def caller(depth: int = 1) -> Caller:
    """Return who called the calling function; ``depth`` counts the frames above it that are opcheck's."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        if (kind := kind_of(frame.f_code)) is not None:
            return Caller(kind, frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return Caller("own", "", 0)


def kind_of(code: CodeType) -> Kind | None:
    """Return whose code a code object is; None for the standard library's, and for code without a file."""
    return _kind(code.co_filename)


@functools.cache
def _kind(file: str) -> Kind | None:
    if file.startswith(_OWN):
        return "own"
    if any(folder in file for folder in _SITE):
        return "library"
    if file.startswith((_STDLIB, "<frozen", "<string>")):
        return None
    return "program"
