"""The watermarks of the MPS allocator: what environment variables set, and what torch raises for invalid ones.

aten/src/ATen/mps/MPSAllocator.mm, ``init_allocator``, ``setHighWatermarkRatio`` and ``setLowWatermarkRatio``.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from opcheck.common.errors import InputError
from opcheck.common.versions import Version
from opcheck.data.environment import ENVIRONMENT
from opcheck.model.records import Watermarks

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


def watermarks(variables: Mapping[str, str], torch: Version) -> Watermarks:
    """Return the ratios of a process with these environment variables.

    Args:
        variables: the environment variables by name.
        torch: the release, for its defaults.
    """
    high, low = (_read(variables[name]) if name in variables else _default(name, torch) for name in (HIGH, LOW))
    return Watermarks(high, low)


def find_invalid(ratios: Watermarks) -> InvalidWatermark | None:
    """Return the ratio that the allocator refuses; None: it takes both."""
    ends = ((HIGH, "high", ratios.high, UPPER_BOUND), (LOW, "low", ratios.low, ratios.high or UPPER_BOUND))
    for variable, name, ratio, bound in ends:
        if not 0 <= ratio <= bound:
            return InvalidWatermark(variable, ratio, bound, f"invalid {name} watermark ratio {ratio:g}")
    return None


def set_watermarks(variables: Mapping[str, str], torch: Version) -> Watermarks | None:
    """Return the ratios that a capture follows; None: no variable sets one.

    Raises:
        InputError: the allocator refuses them, so that the Mac's program ends at its first tensor on the GPU.
    """
    if HIGH not in variables and LOW not in variables:
        return None
    ratios = watermarks(variables, torch)
    invalid = find_invalid(ratios)
    if invalid is not None:
        raise InputError(
            f"torch raises at the first tensor on the GPU: {invalid.prints}",
            context=", ".join(f"{name}={variables[name]}" for name in (HIGH, LOW) if name in variables),
            hint=f"export {invalid.variable}={invalid.bound:g}, or unset both",
        )
    return ratios


def _default(name: str, torch: Version) -> float:
    variable = ENVIRONMENT.load().explain(name, torch).variable
    assert variable is not None
    return float(variable.default)


def _read(text: str) -> float:
    """Read a value as strtod does: the number at its beginning; 0 where there is none."""
    start = _NUMBER.match(text)
    if start is None:
        return 0.0
    try:
        return (float.fromhex if start["hex"] else float)(start[0].strip())
    except OverflowError:
        return math.inf
