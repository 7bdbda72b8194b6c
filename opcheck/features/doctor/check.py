"""The rules of ``opcheck doctor``: what a rule examines, and which facts it needs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from opcheck.common import documents
from opcheck.common.catalogue import CatalogueRule
from opcheck.common.versions import Version
from opcheck.common.vocabulary import Severity
from opcheck.data.packages import PYTHONS
from opcheck.data.registrations import OpLists
from opcheck.features.doctor.machine_environment import Environment, Torch
from opcheck.model.records import Finding, GroupLocation, Record


class Requirement(Record, frozen=True, kw_only=True):
    """A line of a requirements.txt, or a dependency in a pyproject.toml."""

    text: str
    place: GroupLocation
    #: the severity if the package cannot be installed: a warning for an extra
    severity: Severity


@dataclass(frozen=True, kw_only=True)
class Examined:
    """An environment, the op lists, and what the user wants to run in the environment."""

    environment: Environment
    lists: OpLists
    #: the content of requirement files
    requirements: tuple[Requirement, ...] = ()
    #: findings about the variables that a script sets; None if no script was read
    script: tuple[Finding, ...] | None = None

    @property
    def lines(self) -> tuple[Version, ...]:
        """Return the release lines of torch in the lists, the oldest first."""
        return self.lists.versions

    @property
    def torch(self) -> Version:
        """Return the installed release line; without torch, the newest in the lists."""
        installed = self.environment.torch
        return installed.line if installed else self.lines[-1]

    @property
    def is_listed(self) -> bool:
        """Return whether the lists cover the installed torch."""
        return self.environment.torch is not None and self.torch in self.lines

    @property
    def macos(self) -> Version:
        """Return the macOS version; only for rules that need it."""
        assert self.environment.macos is not None
        return self.environment.macos

    @property
    def installed_torch(self) -> Torch:
        """Return the installed torch; only for rules that need it."""
        assert self.environment.torch is not None
        return self.environment.torch

    def minimum(self, line: Version) -> Version:
        """Return the oldest macOS where a release starts its MPS backend.

        Raises:
            OpListError: the lists do not have the release.
        """
        return self.lists.release(str(line)).minimum

    def installable(self) -> tuple[Version, ...]:
        """Return the releases with a wheel for this Python whose MPS backend starts on this macOS."""
        python, macos = self.environment.python.version, self.environment.macos
        span = PYTHONS.load().by_python.get(Version.parse(python)) if python else None
        lines = [line for line in self.lines if span is not None and line in span]
        return tuple(line for line in lines if macos is None or self.minimum(line) <= macos)


#: Facts that the user may give; a rule without them is not reported as unchecked.
GIVEN = ("a script to read (--script)", "requirements to read (--requirements)")

#: The facts that rules need, as the report lists the unknown ones.
FACTS: dict[str, Callable[[Examined], bool]] = {
    "a Mac": lambda examined: examined.environment.is_mac,
    "the macOS version": lambda examined: examined.environment.macos is not None,
    "the chip": lambda examined: examined.environment.machine.apple_silicon is not None,
    "the memory": lambda examined: examined.environment.machine.memory is not None,
    "the version of Python": lambda examined: bool(examined.environment.python.version),
    "an installed torch": lambda examined: examined.environment.torch is not None,
    "an installed torch that the lists cover": lambda examined: examined.is_listed,
    "an import of torch": lambda examined: (
        examined.environment.torch is not None and examined.environment.torch.built is not None
    ),
    GIVEN[0]: lambda examined: examined.script is not None,
    GIVEN[1]: lambda examined: bool(examined.requirements),
}

Check = Callable[[Examined], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class DoctorRule(CatalogueRule):
    """A rule of ``opcheck doctor``."""

    check: Check
    #: names of FACTS
    needs: tuple[str, ...] = ()

    def missing(self, examined: Examined) -> str:
        """Return the first fact that is needed and unknown; empty if there is none."""
        return next((name for name in self.needs if not FACTS[name](examined)), "")


class _DoctorText(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts of a finding; fields in braces come from the function of its rule."""

    message: str
    hint: str
    #: None: the rule's own
    severity: Severity | None = None
    prints: str = ""


class _DoctorDeclaration(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of ``checks.toml``."""

    severity: Severity
    needs: tuple[str, ...] = ()
    texts: dict[str, _DoctorText] = {}


_FILE = Path(__file__).with_name("checks.toml")
_DECLARED = msgspec.convert(documents.from_toml(documents.read_text(_FILE)), dict[str, _DoctorDeclaration])
_TEXTS = {name: (code, each, text) for code, each in _DECLARED.items() for name, text in each.texts.items()}


def rule(code: str) -> Callable[[Check], DoctorRule]:
    """Make the rule of an entry in ``checks.toml`` of the function below, which yields findings from an environment."""
    entry = _DECLARED[code]
    return lambda check: DoctorRule(id=code, severity=entry.severity, check=check, needs=entry.needs)


def finding(text: str, /, *, place: GroupLocation | None = None, count: int = 1, **fields: object) -> Finding:
    """Return a finding with a text of ``checks.toml``, by its name and the values of its fields."""
    code, entry, words = _TEXTS[text]
    message, hint, prints = (each.format(**fields) for each in (words.message, words.hint, words.prints))
    severity, places = words.severity or entry.severity, (place,) if place else ()
    return Finding(
        rule=code, severity=severity, message=message, hint=hint, prints=prints, count=count, locations=places
    )


def install(line: Version) -> str:
    """Return the command that installs a release line of torch."""
    return f'pip install "torch=={line}.*"'
