"""The environment variables that a release reads for MPS, and those that only guides mention."""

import functools
import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import VariableStatus
from opcheck.data.statement_model import EvidenceEntries
from opcheck.data.strict_yaml import Document
from opcheck.data.tables import ListFile
from opcheck.model.records import Record

#: The names that occur in each wheel; scripts/check_environment.py writes the file.
FOUND = "environment.found.yaml"

#: The pattern of these variables' names in every release so far.
NAME = re.compile(r"PYTORCH_[A-Z0-9_]*MPS[A-Z0-9_]*")
_Name = Annotated[str, msgspec.Meta(pattern=f"^{NAME.pattern}$")]


class Bit(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bit of a variable whose value is a sum of bits."""

    value: int
    name: str


class MpsVariable(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable that a release reads."""

    #: the key of its entry
    name: str = ""
    torch: Span
    meaning: str
    #: the values that it accepts, and its default.
    values: str
    default: str
    #: when PyTorch reads it: a later change has no effect.
    read: str
    bits: tuple[Bit, ...] = ()
    evidence: EvidenceEntries


class InventedName(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name that guides mention and no release reads."""

    instead: str


class Explanation(Record, frozen=True, kw_only=True):
    """The meaning of a variable's name for a release."""

    name: str
    #: read, later, earlier, invented, unknown
    status: VariableStatus
    text: str
    #: the variable, if any release reads it.
    variable: MpsVariable | None = None


class MpsVariables(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The content of ``environment.yaml``."""

    schema: int
    by_name: Mapping[_Name, MpsVariable] = msgspec.field(name="variables")
    invented: Mapping[_Name, InventedName]

    @functools.cached_property
    def variables(self) -> Mapping[str, MpsVariable]:
        """The variables by their names."""
        return {name: msgspec.structs.replace(variable, name=name) for name, variable in self.by_name.items()}

    def known(self, line: str) -> tuple[MpsVariable, ...]:
        """Return the variables that a release line such as ``2.13`` reads, by name.

        Raises:
            UsageError: not a version.
        """
        version = Version.parse(line)
        return tuple(v for _, v in sorted(self.variables.items()) if version in v.torch)

    def explain(self, name: str, version: Version) -> Explanation:
        """Explain the effect of a variable in a release; the status of an unrecorded name is ``unknown``."""
        variable = self.variables.get(name)
        status: VariableStatus = "unknown"
        text = f"opcheck does not know {name}"
        if name in self.invented:
            status, text = "invented", f"no release of PyTorch reads {name}. {self.invented[name].instead}"
        elif variable is None and NAME.fullmatch(name):
            text += f"; torch {version} does not read it, according to its wheel"
        elif variable is not None and version in variable.torch:
            status, text = "read", variable.meaning
        elif variable is not None and variable.torch.since and version < variable.torch.since:
            status, text = "later", f"torch {version} does not read {name}: it came with {variable.torch.since}"
        elif variable is not None:
            status, text = "earlier", f"torch {version} no longer reads {name}: it went with {variable.torch.until}"
        return Explanation(name=name, status=status, text=text, variable=variable)


def number(text: str) -> float | None:
    """Return a variable's value as a number (decimal or 0x...); None where it is not a number."""
    try:
        return float(int(text, 0)) if text.lower().startswith("0x") else float(text)
    except (ValueError, OverflowError):
        return None


def _check(document: Document, content: MpsVariables) -> None:
    for name in sorted(content.by_name.keys() & content.invented.keys()):
        document.report(("invented", name), "a variable that releases read is not invented")


ENVIRONMENT = ListFile("environment.yaml", MpsVariables, check=_check)
