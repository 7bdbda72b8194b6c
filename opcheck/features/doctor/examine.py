"""Examines an environment: what is wrong with it, and what could not be checked."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.files import describe_missing
from opcheck.common.tool import TOOL
from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.common.vocabulary import SEVERITIES
from opcheck.data.registrations import OpLists
from opcheck.features.doctor.check import GIVEN, Examined, Requirement
from opcheck.features.doctor.checks import RULES
from opcheck.features.doctor.machine_environment import Environment
from opcheck.model.records import Finding, GroupLocation, Record, SourceLocation
from opcheck.source.engine import scan
from opcheck.source.rules import BY_ID
from opcheck.source.scan_requirements import in_lines, in_pyproject

#: What no rule checks.
_NEVER_CHECKED = (
    "the GPU itself: no tensor was made on it, and nothing was observed on a Mac",
    "the model: opcheck audit MODEL judges its calls",
)


class Diagnosis(Record, frozen=True, kw_only=True):
    """The answer of ``opcheck doctor``."""

    schema: str = "opcheck-doctor/2"
    tool: str
    environment: Environment
    #: findings by severity
    totals: dict[str, int]
    findings: tuple[Finding, ...]
    #: the codes of the rules that were checked
    checked: tuple[str, ...]
    #: each unknown fact, with the codes of the rules that were not checked without it
    unknown: dict[str, tuple[str, ...]]
    not_checked: tuple[str, ...] = _NEVER_CHECKED


def examine(
    environment: Environment, lists: OpLists, *, script: Path | None = None, requirements: Sequence[Path] = ()
) -> Diagnosis:
    """Check every rule whose facts are known.

    Args:
        environment: gathered here or on another machine.
        lists: the op lists.
        script: a program whose settings of environment variables are read.
        requirements: files that list packages.

    Raises:
        UsageError: the script or a requirement file cannot be read.
        OpListError: the data is damaged.
    """
    listed = tuple(each for path in requirements for each in _requirements(path))
    examined = Examined(environment=environment, lists=lists, requirements=listed)
    if script is not None:
        macos = environment.macos or Version(MACOS_MAJORS[-1])
        scanned = _script(script, Target(torch=examined.torch, macos=macos))
        examined = dataclasses.replace(examined, script=scanned)
    unknown: dict[str, list[str]] = {}
    checked: list[str] = []
    findings: list[Finding] = []
    for rule in RULES:
        missing = rule.missing(examined)
        if not missing:
            checked.append(rule.id)
            findings += rule.check(examined)
        elif missing not in GIVEN:
            unknown.setdefault(missing, []).append(rule.id)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Diagnosis(
        tool=TOOL,
        environment=environment,
        totals={name: sum(finding.severity == name for finding in findings) for name in SEVERITIES},
        findings=tuple(findings),
        checked=tuple(checked),
        unknown={name: tuple(ids) for name, ids in unknown.items()},
    )


def _requirements(path: Path) -> tuple[Requirement, ...]:
    hint = "name a requirements.txt or a pyproject.toml"
    with explain_errors(ValueError, "cannot read the requirements", context=f"--requirements {path}", hint=hint):
        content = documents.read_text(path)
        is_toml = path.suffix == ".toml"
        listed = list(in_pyproject(content) if is_toml else in_lines(content.splitlines()))
    file = path.as_posix()
    places = (SourceLocation(file=file, line=line, text=text) for text, line, _ in listed)
    return tuple(
        Requirement(text=text, place=GroupLocation.at(place, module="", count=1), severity=severity)
        for (text, _, severity), place in zip(listed, places, strict=True)
    )


def _script(path: Path, target: Target) -> tuple[Finding, ...]:
    """The findings of ``opcheck scan`` about the variables that a script sets."""
    report = scan([str(path)], target) if path.is_file() else None
    if report is None or report.problems:
        cannot = f"cannot read the script: {report.problems[0].message}" if report else ""
        raise UsageError(cannot or describe_missing(path), context=f"--script {path}", hint="name a Python file")
    return tuple(finding for finding in report.findings if finding.rule == BY_ID["OC216"].id)
