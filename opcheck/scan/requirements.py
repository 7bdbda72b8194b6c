"""Requirement files: packages that pip does not find for a Mac."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from opcheck.documents import from_toml
from opcheck.scan.packages import packages
from opcheck.scan.rule import Hit
from opcheck.scan.rules.oc214_package_without_macos import RULE, describe

#: What a marker asks about on a Mac; what is not here is as on this machine.
_MAC = {
    "sys_platform": "darwin",
    "platform_system": "Darwin",
    "platform_machine": "arm64",
    "os_name": "posix",
}
#: The libraries of CUDA, one package each.
_NVIDIA = re.compile(r"nvidia-[a-z-]+-cu\d+")
_COMMENT = re.compile(r"(^|\s)#.*$")


def check_lines(lines: list[str]) -> Iterator[Hit]:
    """The findings in a requirements.txt."""
    for wanted in in_lines(lines):
        yield from judge(*wanted)


def check_pyproject(text: str) -> Iterator[Hit]:
    """The findings in a pyproject.toml; extras are named as warnings.

    Raises:
        ValueError: it is not TOML.
    """
    for wanted in in_pyproject(text):
        yield from judge(*wanted)


def in_lines(lines: list[str]) -> Iterator[tuple[str, int, str]]:
    """What a requirements.txt asks for: the requirement, its line, how severe its absence is."""
    for number, line in enumerate(lines, 1):
        text = _COMMENT.sub("", line).strip()
        if text and not text.startswith("-"):
            yield text.split(" --")[0], number, "error"


def in_pyproject(text: str) -> Iterator[tuple[str, int, str]]:
    """The same of a pyproject.toml; without an extra the program still runs.

    Raises:
        ValueError: it is not TOML.
    """
    content = from_toml(text)
    project = content.get("project", {})
    lines = text.splitlines()
    for one in project.get("dependencies", []):
        yield one, _line(one, lines), "error"
    for extra in project.get("optional-dependencies", {}).values():
        for one in extra:
            yield one, _line(one, lines), "warning"


def _line(text: str, lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines, 1) if text in line), 1)


def judge(text: str, line: int, severity: str) -> Iterator[Hit]:
    """The finding about one requirement, where a Mac installs it and has no wheel of it."""
    try:
        wanted = Requirement(text)
    except InvalidRequirement:  # an address, or a name of pip's own syntax: nothing is claimed
        return
    name = canonicalize_name(wanted.name)
    package = packages().by_name.get(name)
    if package is None and not _NVIDIA.fullmatch(name):
        return
    if wanted.marker is not None and not wanted.marker.evaluate(_MAC):
        return
    if package is not None and package.since and _may_be(wanted, package.since):
        return
    where = ast.Pass(lineno=line, end_lineno=line, col_offset=0)
    said = describe(name, package) if package else f"{name} is a library of CUDA"
    instead = f"; instead: {package.instead}" if package else ""
    yield Hit(
        node=where,
        severity=severity,
        message=f"{said}: pip does not install it on a Mac",
        hint=f'for other machines only: {wanted.name}; sys_platform == "linux"{instead}',
    )


def _may_be(wanted: Requirement, since: str) -> bool:
    """Whether pip may choose a version that has a wheel: it takes the newest that is allowed."""
    newer = (since, f"{since}.1", f"{since}.999", "999")
    return any(wanted.specifier.contains(version) for version in newer)


__all__ = ["RULE", "check_lines", "check_pyproject", "in_lines", "in_pyproject", "judge"]
