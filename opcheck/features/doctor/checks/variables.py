"""The checks of the environment variables that torch reads for MPS, or does not."""

import difflib
from collections.abc import Iterator

from opcheck.data.environment import Explanation, load_environment, number
from opcheck.data.watermarks import HIGH, LOW, find_invalid, watermarks
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
        yield name, value, load_environment().explain(name, str(examined.torch))


@rule("OC320", "error")
def _unknown_name(examined: Examined) -> Iterator[Finding]:
    real = load_environment().variables
    for name, value, known in _set(examined):
        if known.status == "invented":
            what, _, instead = known.text.partition(". ")
            yield finding(message=what, hint=f"unset {name}. {instead}")
        elif known.status == "unknown":
            near = difflib.get_close_matches(name, real, n=1, cutoff=0.8)
            mend = f"unset {name}; export {near[0]}={value}" if near else f"unset {name}"
            yield finding(
                severity="error" if near else "warning",
                message=f"no release of PyTorch that is in the lists reads {name}"
                + (f"; the nearest name that a release reads is {near[0]}" if near else ""),
                hint=mend,
            )


@rule("OC321", "warning", "an installed torch that the lists cover")
def _other_release(examined: Examined) -> Iterator[Finding]:
    for name, _, known in _set(examined):
        if known.status in {"later", "earlier"}:
            yield finding(message=known.text, hint=f"unset {name}, or use a torch that reads it")


@rule("OC322", "error")
def _no_number(examined: Examined) -> Iterator[Finding]:
    for name, value, known in _set(examined):
        if known.status == "read" and known.variable is not None and number(value) is None:
            yield finding(
                message=f"{name} is {value!r}, which is no number; it takes {known.variable.values}",
                hint=f"export {name}=1" if name == _FALLBACK else f"unset {name}",
            )


@rule("OC323", "error")
def _watermarks(examined: Examined) -> Iterator[Finding]:
    variables = examined.environment.variables
    if any(number(variables.get(name, "0")) is None for name in (HIGH, LOW)):
        return
    invalid = find_invalid(watermarks(variables, examined.torch))
    if invalid is None:
        return
    given = "is" if invalid.variable in variables else "is by default"
    if invalid.variable == HIGH:
        problem = f"from 0.0 to {invalid.bound:g} is taken"
    else:
        problem = f"it must not be above {HIGH}={invalid.bound:g}"
    yield finding(
        message=f"{invalid.variable} {given} {invalid.ratio:g}: {problem}",
        hint=f"unset {HIGH}" if invalid.variable == HIGH else f"export {invalid.variable}={invalid.bound:g}",
        prints=invalid.prints,
    )


@rule("OC324", "warning")
def _no_limit(examined: Examined) -> Iterator[Finding]:
    if number(examined.environment.variables.get(HIGH, "")) == 0:
        yield finding(
            message=f"{HIGH} is 0: torch takes memory without a limit, and macOS may swap until it stops responding",
            hint=f"unset {HIGH}; opcheck audit MODEL --memory GB estimates what a model needs",
        )


@rule("OC325", "warning")
def _bits(examined: Examined) -> Iterator[Finding]:
    for name, value, known in _set(examined):
        bits = known.variable.bits if known.status == "read" and known.variable else ()
        given = _whole(value)
        if not bits or given is None:
            continue
        every = sum(bit.value for bit in bits)
        set_ = {bit.name for bit in bits if bit.value & given}
        if given & ~every or given < 0:
            raises = name == _PROFILE and given > every
            yield finding(
                severity="error" if raises else "warning",
                message=f"{name} is {value}: its bits are " + ", ".join(f"{b.value} {b.name}" for b in bits),
                hint=f"export {name}={given & every if given > 0 else 0}",
                prints=f"invalid log options {given} passed to {name}" if raises else "",
            )
        elif set_ and set_ <= {*_HOW.get(name, ())}:
            yield finding(
                message=f"{name} is {value}: {', '.join(sorted(set_))} sets how to print, and no bit selects what",
                hint=f"export {name}={given | 1}",
            )


@rule("OC326", "note")
def _contradiction(examined: Examined) -> Iterator[Finding]:
    variables = examined.environment.variables
    profile = load_environment().variables[_PROFILE]
    given = _whole(variables.get(_PROFILE, "")) or 0
    asked = [bit.name for bit in profile.bits if bit.value & given]
    if examined.torch not in profile.torch or not asked or not {*asked} <= {*_FALLBACKS}:
        return
    if number(variables.get(_FALLBACK, "0")) == 0:
        yield finding(
            message=f"{_PROFILE} requests only CPU fallbacks ({', '.join(asked)}), and "
            f"{_FALLBACK} is off: an "
            "operator without a kernel raises instead, and only what always falls back is printed",
            hint=f"export {_FALLBACK}=1",
        )


def _whole(value: str) -> int | None:
    """As strtol reads it with base 0: decimal, 0x.., and 0.. as octal; None: no whole number."""
    text = value.strip().lower()
    octal = text.startswith("0") and text.isdecimal()
    try:
        return int(text, 8) if octal else int(text, 0)
    except ValueError:
        return None
