"""Turn a report into the exit code of a CI job: 0 passed, 1 findings, 3 could not tell."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from opcheck.common.documents import brief
from opcheck.common.errors import UsageError
from opcheck.common.grouping import group_values
from opcheck.common.text import filesize, plural
from opcheck.common.vocabulary import HEADLINES
from opcheck.model.options import Option, failing_on
from opcheck.model.records import Finding, GroupLocation, Record, Report

PASSED, FINDINGS, COULD_NOT_TELL = 0, 1, 3
#: The headline of a report that is not conclusive.
_OPEN = HEADLINES[1]

#: The calls that each level of ``--fail-on`` refuses; each level includes the levels above it.
_LEVELS = ("unsupported", "unknown", "fallback", "advisory")
FAIL_ON: dict[str, tuple[str, ...]] = {
    "never": (),
    **{level: _LEVELS[: number + 1] for number, level in enumerate(_LEVELS)},
}

#: What ``--max`` can limit, and what it counts: calls by status or kind, or what the fallbacks copy.
_COUNTED = ("unsupported", "unknown", "fallback", "fallback_env", "fallback_always", "fallback_internal", "advisory")
LIMITS: dict[str, str] = {**dict.fromkeys(_COUNTED, "call"), "transfers": "copy", "bytes": "byte"}

#: The rules with findings about calls of each status.
_SPEAKS = {
    "unsupported": ("OC101", "OC105", "OC106"),
    "unknown": ("OC104", "OC122"),
    "fallback": ("OC102", "OC103", "OC107"),
}
#: The rules with findings about a program that ended before it made the call.
_ENDED = ("OC124", "OC126")
#: The rule about weights that are quantized, which may end the program when they are loaded.
_QUANTIZED = "OC127"
#: The rules that report calls which raise at another place: the origin of their dtype, or the model's move.
_ORIGINS = ("OC101", "OC105", "OC106", "OC140", "OC141", "OC142")

_SIZE = re.compile(r"(\d{1,18})\s*(?:([kmg])(i?)b)?", re.IGNORECASE)


def limit(text: str) -> tuple[str, int]:
    """Parse ``fallback=3``, ``transfers=10`` or ``bytes=10MB`` into a key of LIMITS and a number.

    Raises:
        UsageError: another key, or no number; of bytes KB, MB, GB are 1000 each, KiB, MiB, GiB 1024.
    """
    # A configuration's text comes in its quotes.
    name, _, value = (part.strip().strip('"') for part in text.partition("="))
    name = name.replace("-", "_")
    match = _SIZE.fullmatch(value)
    if name not in LIMITS:
        known = f"known: {', '.join(LIMITS)}"
        raise UsageError(f"nothing to limit: {brief(name)}", context=f"--max {text}", hint=known)
    if match is None or (match[2] and name != "bytes"):
        message = f"not a limit: {brief(value)}"
        hint = "write it as bytes=10MB" if name == "bytes" else f"write it as {name}=3"
        raise UsageError(message, context=f"--max {text}", hint=hint)
    power = " kmg".index(match[2].lower()) if match[2] else 0
    return name, int(match[1]) * (1024 if match[3] else 1000) ** power


def _parse_limits(numbers: Mapping[str, int | str]) -> dict[str, int]:
    """Parse the limits of a configuration table; a number of bytes may have a unit."""
    return dict(limit(f"{name}={number}") for name, number in numbers.items())


class Policy(Record, frozen=True, kw_only=True):
    """What a report is allowed."""

    fail_on: Annotated[str, failing_on(FAIL_ON)] = "unsupported"
    #: the allowed counts by the keys of LIMITS, in place of 0 where fail_on allows none.
    limits: Annotated[
        dict[str, int],
        Option(
            "Allow at most this many: fallback=3, bytes=10MB. Repeatable.",
            "max",
            metavar="NAME=NUMBER",
            values=tuple(f"{name}=" for name in LIMITS),
            read=limit,
            check=_parse_limits,
            table=dict[str, int | str],
        ),
    ] = {}
    #: a call that is unknown makes the whole of it "could not tell".
    strict: Annotated[bool, Option("Exit with 3 if a call is unknown.")] = False
    #: the nearest target that the op lists cover answers for a newer target.
    newest_known: bool = False
    #: the headline that the model is known to have: exactly it passes, without regard to fail_on; empty: none.
    expect: str = ""


class Judgement(Record, frozen=True, kw_only=True):
    """What a report comes to under a policy."""

    code: int
    #: why the code is not 0
    reasons: tuple[str, ...] = ()
    #: fingerprints of the reasons against it, in the order of the report
    against: tuple[str, ...] = ()


class _JudgedLine(NamedTuple):
    """Calls of one line that are not simply native, with the fingerprints of the findings about them."""

    names: tuple[str, ...]
    calls: int
    fingerprints: Sequence[str]


def exit_code(report: Report, *, fail_on: str, strict: bool) -> int:
    """Return the exit code of an observation or of an emulated run: without limits, baseline or expectation."""
    # What a Mac did is no prediction: the lists need not cover that Mac.
    return judge_report(report, Policy(fail_on=fail_on, strict=strict, newest_known=not strict)).code


def judge_report(report: Report, policy: Policy, known: Collection[str] = ()) -> Judgement:
    """Judge the report by the policy; a run that was not captured completely never passes.

    Args:
        report: its ignored findings excuse the calls that they are about.
        policy: what is allowed.
        known: more fingerprints that excuse calls: the fingerprints of a baseline.
    """
    names = _by_fingerprint(report)
    excused = {name for name, finding in names.items() if finding.ignored} | set(known)
    # A place without findings is not excused.
    places = _places(report, names)
    left = [each for each in places if not each.fingerprints or not excused.issuperset(each.fingerprints)]
    moved = report.partition
    counts = Counter(
        {"transfers": moved.transfers_to_cpu + moved.transfers_to_mps, "bytes": moved.bytes_to_cpu + moved.bytes_to_mps}
    )
    for place in left:
        counts.update(dict.fromkeys(place.names, place.calls))
    exceeded = [name for name, most in _limits(policy, report).items() if counts[name] > most]
    reasons = [
        _reason(name, counts[name], policy.limits.get(name, 0))
        for name in exceeded
        # The whole status exceeds its limit, so that the kind adds nothing.
        if name.partition("_")[0] not in exceeded or name in {*FAIL_ON, *policy.limits}
    ]
    against = {name for place in left if set(place.names) & set(exceeded) for name in place.fingerprints}
    if policy.expect and report.headline not in {policy.expect, _OPEN}:
        reasons.append(f"{policy.expect!r} was expected, {report.headline!r} was found")
    for about, reason in (
        (_errors_of("OC130", names), "it takes more memory than the GPU of the Mac gives"),
        (_errors_of("OC151", names), "the release's own kernels compute wrong numbers in it"),
    ):
        if about - excused and policy.fail_on != "never" and not policy.expect:
            reasons.append(reason)
            against |= about
    if report.target.beyond and not policy.newest_known:
        # Neither a pass nor a failure on the nearest target is one on this target.
        reasons.insert(0, report.target.beyond)
        return Judgement(code=COULD_NOT_TELL, reasons=tuple(reasons))
    failing = against - excused
    untold = () if policy.expect == report.headline else tuple(_untold(report, policy))
    return Judgement(
        code=FINDINGS if reasons else COULD_NOT_TELL if untold else PASSED,
        reasons=tuple(reasons) or untold,
        against=tuple(name for name in names if name in failing),
    )


def speaks_of_calls(report: Report) -> frozenset[str]:
    """Return the fingerprints of all findings that any policy can count against the report."""
    names = _by_fingerprint(report)
    calls = (name for place in _places(report, names) for name in place.fingerprints)
    return frozenset(calls) | _errors_of("OC130", names)


def _by_fingerprint(report: Report) -> dict[str, Finding]:
    """Return each finding by the fingerprints that it has at its places."""
    return {name: finding for finding in report.findings for name in finding.fingerprints}


def _places(report: Report, names: Mapping[str, Finding]) -> Iterator[_JudgedLine]:
    by_place = _by_place(report)
    origins = tuple(name for name, finding in names.items() if finding.rule in _ORIGINS)
    for group in report.groups:
        status, kind = group.verdict.status, group.verdict.kind
        if status == "native":
            continue
        # A call that was read from a log may have no line.
        for place in group.locations or (None,):
            keys = ((rule, op, place) for rule in _SPEAKS[status] for op in (group.op, ""))
            fingerprints = tuple(name for key in keys for name in by_place.get(key, ()))
            if status == "unsupported":
                fingerprints = fingerprints or origins
            named = (status, f"{status}_{kind}") if kind else (status,)
            yield _JudgedLine(named, place.count if place else group.count, fingerprints)
    for (rule, _, where), own in by_place.items():
        if rule in _ENDED or (rule == _QUANTIZED and report.headline == "fails"):
            yield _JudgedLine(("unsupported",), where.count if where else 1, own)
        if rule == "OC112" and where is not None:
            yield _JudgedLine(("advisory",), where.count, own)


def _by_place(report: Report) -> dict[tuple[str, str, GroupLocation | None], list[str]]:
    """Return the fingerprints by rule, operator and place."""
    return group_values(
        ((finding.rule, finding.op, place), name)
        for finding in report.findings
        for place, name in zip(finding.locations or (None,), finding.fingerprints, strict=True)
    )


def _limits(policy: Policy, report: Report) -> dict[str, int]:
    forbidden = () if policy.expect else FAIL_ON[policy.fail_on]
    if forbidden and not report.target.cpu_fallback:
        # Without the variable these raise NotImplementedError.
        forbidden = (*forbidden, "fallback_env")
    return {**dict.fromkeys(forbidden, 0), **policy.limits}


def _reason(name: str, count: int, most: int) -> str:
    """Return a text such as ``fallback: 4 calls, 3 allowed``."""
    in_bytes = name == "bytes"
    allowed = f", {filesize(most) if in_bytes else f'{most:,}'} allowed" if most else ""
    return f"{name}: {filesize(count) if in_bytes else plural(count, LIMITS[name])}{allowed}"


def _untold(report: Report, policy: Policy) -> Iterator[str]:
    """Yield the reasons why the report is not conclusive."""
    is_open = report.headline == _OPEN
    if not report.capture.complete:
        yield "the run broke off: what follows was not judged"
    elif not report.totals["calls"]:
        yield "no call was recorded"
    elif is_open and any(problem.kind in ("hub_kernel", "mps_in_fork", "quantized") for problem in report.problems):
        yield "a method of quantization, a kernel of the hub, or a forked process was not judged"
    elif is_open and ("OC123", "warning") in ((each.rule, each.severity) for each in report.findings):
        yield "a library did not see the target's torch (OC123)"
    elif policy.expect and report.headline != policy.expect:
        yield f"{policy.expect!r} was expected, {report.headline!r} was found"
    elif policy.strict and report.totals["unknown"]:
        yield f"unknown: {plural(report.totals['unknown'], 'call')}"


def _errors_of(rule: str, names: Mapping[str, Finding]) -> frozenset[str]:
    """Return the fingerprints of the errors that a rule found."""
    return frozenset(name for name, each in names.items() if (each.rule, each.severity) == (rule, "error"))
