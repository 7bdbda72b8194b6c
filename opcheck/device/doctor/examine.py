"""An environment -> what is wrong with it, and what could not be told."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opcheck import __version__
from opcheck.common.catalogue import SEVERITIES
from opcheck.common.versions import MACOS_MAJORS, Target, Version
from opcheck.data.registrations import OpLists
from opcheck.device.doctor import wanted
from opcheck.device.doctor.check import GIVEN, DoctorRule, Examined
from opcheck.device.doctor.checks import RULES
from opcheck.device.doctor.environment import Environment
from opcheck.model.records import Finding, Record

#: No check needs them answered: they say what this is not.
_NEVER_CHECKED = (
    "the GPU itself: no tensor was made on it, and nothing was observed on a Mac",
    "the model: opcheck audit MODEL says what its calls do",
)


class Diagnosis(Record, frozen=True, kw_only=True):
    """Everything that ``opcheck doctor`` has to say."""

    schema: str = "opcheck-doctor/1"
    tool: str
    environment: Environment
    #: findings by severity
    totals: dict[str, int]
    findings: tuple[Finding, ...]
    #: the codes that were looked for
    checked: tuple[str, ...]
    #: what was not known -> the codes that were not looked for because of it.
    unknown: dict[str, tuple[str, ...]]
    not_checked: tuple[str, ...] = _NEVER_CHECKED


def examine(
    environment: Environment,
    lists: OpLists,
    *,
    script: Path | None = None,
    requirements: Sequence[Path] = (),
) -> Diagnosis:
    """Make every check whose facts are known.

    Args:
        environment: gathered here or elsewhere.
        lists: the op lists to hold it against.
        script: a program whose own settings of variables are read.
        requirements: files that list packages.

    Raises:
        UsageError: the script or a requirement file cannot be read.
        OpListError: the data is damaged.
    """
    examined = Examined(
        environment=environment,
        lists=lists,
        requirements=tuple(
            requirement for path in requirements for requirement in wanted.requirements(path)
        ),
    )
    if script is not None:
        macos = environment.macos or Version(MACOS_MAJORS[-1])
        findings = wanted.script(script, Target(torch=examined.torch, macos=macos))
        examined = dataclasses.replace(examined, script=findings)
    unknown: dict[str, list[str]] = {}
    checked: list[str] = []
    found: list[Finding] = []
    for check in RULES:
        missing = check.missing(examined)
        if missing in GIVEN:
            continue
        if missing:
            unknown.setdefault(missing, []).append(check.id)
            continue
        checked.append(check.id)
        found += [_named(finding, check) for finding in check.check(examined)]
    found.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return Diagnosis(
        tool=f"opcheck {__version__}",
        environment=environment,
        totals={name: sum(one.severity == name for one in found) for name in SEVERITIES},
        findings=tuple(found),
        checked=tuple(checked),
        unknown={name: tuple(ids) for name, ids in unknown.items()},
    )


def _named(finding: Finding, check: DoctorRule) -> Finding:
    severity = finding.severity or check.severity
    return msgspec.structs.replace(finding, rule=check.id, severity=severity)
