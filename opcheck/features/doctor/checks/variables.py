"""The checks of the environment variables that torch reads for MPS, or does not."""

import difflib
from collections.abc import Iterator
from typing import Any

from opcheck.data.environment import ENVIRONMENT, HIGH, LOW, Explanation, find_invalid, number, watermarks
from opcheck.features.doctor.check import Examined, finding, rule
from opcheck.model.records import Finding

_FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
_PROFILE = "PYTORCH_MPS_LOG_PROFILE_INFO"

#: Bits that say how something is printed, and not what.
_HOW = {
    _PROFILE: ("INCLUDE_GPU_TIME", "INCLUDE_KERNEL_TIME", "INCLUDE_BUFFER_ID"),
    "PYTORCH_DEBUG_MPS_ALLOCATOR": ("LARGE_ONLY",),
}
#: Bits of the profiler that print the fallbacks.
_FALLBACKS = ("CPU_FALLBACK_INFO", "CPU_FALLBACK_STATS")


def _set(examined: Examined) -> Iterator[tuple[str, str, Explanation]]:
    """The variables that are set, with their values and what the release makes of them."""
    for name, value in examined.environment.variables.items():
        yield name, value, ENVIRONMENT.load().explain(name, examined.torch)


@rule("OC320")
def _unknown_name(examined: Examined) -> Iterator[Finding]:
    for name, value, known in _set(examined):
        if known.status == "invented":
            what, _, instead = known.text.partition(". ")
            yield finding("invented variable", name=name, what=what, instead=instead)
        elif known.status == "unknown":
            near = difflib.get_close_matches(name, ENVIRONMENT.load().variables, n=1, cutoff=0.8)
            text = "misspelled variable" if near else "unknown variable"
            yield finding(text, name=name, value=value, near="".join(near))


@rule("OC321")
def _other_release(examined: Examined) -> Iterator[Finding]:
    for name, _, known in _set(examined):
        if known.status in {"later", "earlier"}:
            yield finding("variable of another release", name=name, text=known.text)


@rule("OC322")
def _no_number(examined: Examined) -> Iterator[Finding]:
    for name, value, known in _set(examined):
        if known.status == "read" and known.variable is not None and number(value) is None:
            mend = f"export {name}=1" if name == _FALLBACK else f"unset {name}"
            yield finding("no number", name=name, value=value, values=known.variable.values, mend=mend)


@rule("OC323")
def _watermarks(examined: Examined) -> Iterator[Finding]:
    variables = examined.environment.variables
    if any(number(variables.get(name, "0")) is None for name in (HIGH, LOW)):
        return
    invalid = find_invalid(watermarks(variables))
    if invalid is not None:
        text = "high watermark" if invalid.variable == HIGH else "low watermark"
        given = "is" if invalid.variable in variables else "is by default"
        yield finding(text, given=given, high=HIGH, **invalid._asdict())


@rule("OC324")
def _no_limit(examined: Examined) -> Iterator[Finding]:
    if number(examined.environment.variables.get(HIGH, "")) == 0:
        yield finding("no limit", name=HIGH)


@rule("OC325")
def _bits(examined: Examined) -> Iterator[Finding]:
    for name, value, known in _set(examined):
        bits = known.variable.bits if known.status == "read" and known.variable else ()
        given = _whole(value)
        if not bits or given is None:
            continue
        every = sum(bit.value for bit in bits)
        set_ = {bit.name for bit in bits if bit.value & given}
        about: dict[str, Any] = {"name": name, "value": value, "given": given}
        if given & ~every or given < 0:
            text = "refused bits" if name == _PROFILE and given > every else "unknown bits"
            words, instead = ", ".join(f"{b.value} {b.name}" for b in bits), given & every if given > 0 else 0
            yield finding(text, **about, bits=words, instead=instead)
        elif set_ and set_ <= {*_HOW.get(name, ())}:
            yield finding("nothing to print", **about, bits=", ".join(sorted(set_)), instead=given | 1)


@rule("OC326")
def _contradiction(examined: Examined) -> Iterator[Finding]:
    variables = examined.environment.variables
    profile = ENVIRONMENT.load().variables[_PROFILE]
    given = _whole(variables.get(_PROFILE, "")) or 0
    asked = [bit.name for bit in profile.bits if bit.value & given]
    if examined.torch not in profile.torch or not asked or not {*asked} <= {*_FALLBACKS}:
        return
    if number(variables.get(_FALLBACK, "0")) == 0:
        yield finding("only fallbacks", profile=_PROFILE, fallback=_FALLBACK, bits=", ".join(asked))


def _whole(value: str) -> int | None:
    """As strtol reads it with base 0: decimal, 0x.., and 0.. as octal; None: no whole number."""
    text = value.strip().lower()
    octal = text.startswith("0") and text.isdecimal()
    try:
        return int(text, 8) if octal else int(text, 0)
    except ValueError:
        return None
