"""What the user wants to run in an environment: requirement files and a script, read and not run."""

from __future__ import annotations

from pathlib import Path

from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.common.versions import Target
from opcheck.model.records import Finding, GroupLocation, Record, SourceLocation
from opcheck.source.engine import scan
from opcheck.source.requirements import in_lines, in_pyproject
from opcheck.source.rules import oc216_environment_variable as variables


class Requirement(Record, frozen=True, kw_only=True):
    """One line of a requirements.txt, or one dependency of a pyproject.toml."""

    text: str
    place: GroupLocation
    #: how severe its absence is: of an extra it is a warning.
    severity: str


def requirements(path: Path) -> tuple[Requirement, ...]:
    """What a requirements.txt or a pyproject.toml asks for.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        text = documents.read_text(path)
        listed = list(in_pyproject(text) if path.suffix == ".toml" else in_lines(text.splitlines()))
    except ValueError as error:
        raise UsageError(
            f"cannot read the requirements: {error}",
            context=f"--requirements {path}",
            hint="name a requirements.txt or a pyproject.toml",
        ) from error
    return tuple(
        Requirement(
            text=one,
            place=GroupLocation(
                location=SourceLocation(file=path.as_posix(), line=line, text=one),
                module="",
                count=1,
            ),
            severity=severity,
        )
        for one, line, severity in listed
    )


def script(path: Path, target: Target) -> tuple[Finding, ...]:
    """What is wrong with the variables that a script sets, as opcheck scan says it.

    Raises:
        UsageError: there is no such file, or it is no Python.
    """
    report = scan([str(path)], target)
    if report.problems:
        raise UsageError(
            f"cannot read the script: {report.problems[0].message}",
            context=f"--script {path}",
            hint="name a Python file",
        )
    return tuple(finding for finding in report.findings if finding.rule == variables.RULE.id)
