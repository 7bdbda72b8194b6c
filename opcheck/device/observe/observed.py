"""What was observed of an operator -> a group of calls of a report, with confidence ``observed``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from opcheck.common.text import filesize, plural
from opcheck.common.versions import Target
from opcheck.common.vocabulary import HEADLINES, PHASES, FallbackKind, Status
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_events import CONFIDENCE, NOT_NAMED
from opcheck.judge.judge import outcome
from opcheck.judge.pipeline import assemble
from opcheck.judge.rules.rule import Audited
from opcheck.model.records import (
    CallGroup,
    Evidence,
    GroupLocation,
    Partition,
    Record,
    Report,
    Trace,
    Verdict,
)

FAILS = HEADLINES[0]


class Observed(Record, frozen=True, kw_only=True):
    """All that was seen of one operator doing one thing."""

    #: empty: what was printed names none
    op: str
    #: as in Verdict
    status: Status
    kind: FallbackKind | None = None
    #: what it did, without numbers
    what: str
    #: how often; at least
    count: int
    #: where it was seen: a log and its line, a device
    seen: str
    prints: str = ""
    #: bytes copied between the devices, and ms on the CPU; None: not told.
    nbytes: int | None = None
    ms: float | None = None
    places: tuple[GroupLocation, ...] = ()
    dtypes: tuple[str, ...] = ()
    #: ids of the curated statements that it is an instance of.
    limitations: tuple[str, ...] = ()
    #: those of them that speak of the release
    met: tuple[str, ...] = ()
    advisories: tuple[str, ...] = ()


def group(one: Observed, torch: str) -> CallGroup:
    """The group of a report; ``torch`` is the release that it was observed on."""
    numbers = [plural(one.count, "time")]
    numbers += [] if one.nbytes is None else [f"{filesize(one.nbytes)} copied"]
    numbers += [] if one.ms is None else [f"{one.ms:.3f} ms on the CPU"]
    measured = Evidence(kind="measured", torch=torch, where=one.seen, detail=", ".join(numbers))
    verdict = Verdict(
        status=one.status,
        kind=one.kind,
        because=f"{one.what}: {measured.detail} ({one.seen})",
        evidence=(
            measured,
            *(Evidence(kind="limitation", torch=torch, detail=name) for name in one.met),
        ),
        confidence=CONFIDENCE,
        prints=one.prints,
        limitations=one.limitations,
        advisories=one.advisories,
    )
    phases = {place.phase for place in one.places}
    return CallGroup.judged(
        one.op or NOT_NAMED,
        verdict,
        count=one.count,
        locations=one.places,
        dtypes=one.dtypes,
        phases=tuple(phase for phase in PHASES if phase in phases),
    )


def report(
    observed: Iterable[Observed],
    trace: Trace,
    target: Target,
    lists: OpLists,
    *,
    copies: Partition,
    not_checked: Sequence[str],
    failed: bool,
) -> Report:
    """The report of an observation, in the form of an audit's.

    Args:
        observed: what was seen, an entry an operator and what it did.
        trace: how it was seen; it holds no calls.
        target: what it was seen on.
        lists: the op lists, for ways out.
        copies: what was copied between the devices.
        not_checked: what the observation cannot tell.
        failed: something ended the program, or a call of it.

    Raises:
        OpListError: the lists hold no such release, or are damaged.
    """
    groups = [group(observation, str(target.torch)) for observation in observed]
    groups.sort(key=lambda one: (-outcome(one.verdict).severity, one.op))
    audited = Audited(
        groups=tuple(groups), trace=trace, target=target, partition=copies, lists=lists
    )
    made = assemble(audited)
    return msgspec.structs.replace(
        made,
        headline=FAILS if failed else made.headline,
        not_checked=tuple(not_checked),
    )
