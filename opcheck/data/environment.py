"""The environment variables that a release reads for MPS, those that only guides mention, and the watermarks.

The allocator reads two of them: aten/src/ATen/mps/MPSAllocator.mm, ``init_allocator``, ``setHighWatermarkRatio`` and
``setLowWatermarkRatio``.
"""

import functools
import math
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec

from opcheck.common.errors import InputError
from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import VariableStatus
from opcheck.data.statement_model import EvidenceEntries
from opcheck.data.strict_yaml import Document
from opcheck.data.tables import ListFile
from opcheck.model.records import Record, Watermarks

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


# -- the watermarks of the allocator: what two variables set, and what torch raises for invalid ones --

HIGH = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
LOW = "PYTORCH_MPS_LOW_WATERMARK_RATIO"
#: MPSAllocator.h, default_high_watermark_upper_bound
UPPER_BOUND = 2.0
#: What strtod reads of a text, with the hexadecimal digits apart; of the rest it reads nothing.
_NUMBER = re.compile(
    r"\s*(?:(?P<hex>[+-]?0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?\d+)?)"
    r"|[+-]?(?:inf(?:inity)?|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))",
    re.IGNORECASE,
)


class InvalidWatermark(NamedTuple):
    """A ratio that the allocator refuses when it starts: the variable, its value, its bound, and the text of torch."""

    variable: str
    ratio: float
    bound: float
    prints: str


def watermarks(variables: Mapping[str, str]) -> Watermarks:
    """Return the ratios of a process with these environment variables; every release has the same defaults."""
    defaults = ENVIRONMENT.load().by_name
    return Watermarks(*(_read(variables.get(name, defaults[name].default)) for name in (HIGH, LOW)))


def find_invalid(ratios: Watermarks) -> InvalidWatermark | None:
    """Return the ratio that the allocator refuses; None: it takes both."""
    ends = ((HIGH, "high", ratios.high, UPPER_BOUND), (LOW, "low", ratios.low, ratios.high or UPPER_BOUND))
    for variable, name, ratio, bound in ends:
        if not 0 <= ratio <= bound:
            return InvalidWatermark(variable, ratio, bound, f"invalid {name} watermark ratio {ratio:g}")
    return None


def set_watermarks(variables: Mapping[str, str]) -> Watermarks | None:
    """Return the ratios that a capture follows; None: no variable sets one.

    Raises:
        InputError: the allocator refuses them, so that the Mac's program ends at its first tensor on the GPU.
    """
    if HIGH not in variables and LOW not in variables:
        return None
    ratios = watermarks(variables)
    invalid = find_invalid(ratios)
    if invalid is not None:
        raise InputError(
            f"torch raises at the first tensor on the GPU: {invalid.prints}",
            context=", ".join(f"{name}={variables[name]}" for name in (HIGH, LOW) if name in variables),
            hint=f"export {invalid.variable}={invalid.bound:g}, or unset both",
        )
    return ratios


def _read(text: str) -> float:
    """Read a value as strtod does: the number at its beginning; 0 where there is none."""
    start = _NUMBER.match(text)
    if start is None:
        return 0.0
    try:
        return (float.fromhex if start["hex"] else float)(start[0].strip())
    except OverflowError:
        return math.inf
