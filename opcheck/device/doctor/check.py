"""What a check of ``opcheck doctor`` is, what it may look at, and the facts that it needs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opcheck.common.catalogue import Rule
from opcheck.common.versions import Version
from opcheck.data.pythons import load_wheels
from opcheck.data.registrations import OpLists
from opcheck.device.doctor.environment import Environment
from opcheck.device.doctor.wanted import Requirement
from opcheck.model.records import Finding


@dataclass(frozen=True, kw_only=True)
class Examined:
    """An environment beside the lists, and what the user wants to run in it."""

    environment: Environment
    lists: OpLists
    #: what requirement files list
    requirements: tuple[Requirement, ...] = ()
    #: what is wrong with the variables that a script sets; None: no script was read.
    script: tuple[Finding, ...] | None = None

    @property
    def lines(self) -> tuple[Version, ...]:
        """The release lines of torch that the lists hold, the oldest first."""
        return tuple(sorted(Version.parse(release.line) for release in self.lists.releases))

    @property
    def torch(self) -> Version:
        """The installed release line; of no torch the newest in the lists."""
        installed = self.environment.torch
        return installed.line if installed else self.lines[-1]

    @property
    def listed(self) -> bool:
        """Whether a torch is installed that the lists hold."""
        return self.environment.torch is not None and self.torch in self.lines

    def minimum(self, line: Version) -> Version:
        """The oldest macOS on which a release starts its MPS backend.

        Raises:
            OpListError: the lists do not hold the release.
        """
        return Version.parse(self.lists.release(str(line)).minimum_macos)

    def installable(self) -> tuple[Version, ...]:
        """The releases with a wheel for this Python whose MPS backend starts on this macOS."""
        python, macos = self.environment.python.version, self.environment.macos
        span = load_wheels().by_python.get(Version.parse(python)) if python else None
        return tuple(
            line
            for line in self.lines
            if span is not None and line in span and (macos is None or self.minimum(line) <= macos)
        )


#: Facts that the user gives or does not: without them there is nothing that could not be told.
GIVEN = ("a script to read (--script)", "requirements to read (--requirements)")

#: What a check may need to know, in the words in which its absence is told.
FACTS: dict[str, Callable[[Examined], bool]] = {
    "a Mac": lambda examined: examined.environment.is_mac,
    "the macOS version": lambda examined: examined.environment.macos is not None,
    "the chip": lambda examined: examined.environment.machine.apple_silicon is not None,
    "the memory": lambda examined: examined.environment.machine.memory is not None,
    "the version of Python": lambda examined: bool(examined.environment.python.version),
    "an installed torch": lambda examined: examined.environment.torch is not None,
    "an installed torch that the lists hold": lambda examined: examined.listed,
    "an import of torch": lambda examined: (
        examined.environment.torch is not None and examined.environment.torch.built is not None
    ),
    "a script to read (--script)": lambda examined: examined.script is not None,
    "requirements to read (--requirements)": lambda examined: bool(examined.requirements),
}


@dataclass(frozen=True, kw_only=True)
class DoctorRule(Rule):
    """A rule of ``opcheck doctor``."""

    check: Callable[[Examined], Iterator[Finding]]
    #: the names of the FACTS that the check cannot do without
    needs: tuple[str, ...] = ()

    def missing(self, examined: Examined) -> str:
        """The first fact that it lacks; empty: none."""
        return next((name for name in self.needs if not FACTS[name](examined)), "")


#: A finding whose code and severity are those of its check.
found = functools.partial(Finding, rule="", severity="")


def install(line: Version) -> str:
    """The command that installs a release line of torch."""
    return f'pip install "torch=={line}.*"'
