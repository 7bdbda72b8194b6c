"""A verification as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import msgspec
from tabulate import tabulate

from opcheck.common.sanitize import for_json, for_log
from opcheck.common.text import plural
from opcheck.device.observe.reported_calls import ReportedCalls
from opcheck.device.verify import Pair, Verification, ratio
from opcheck.model.visible import one_line

#: How many entries of a list the text shows, unless all are asked for.
_SHOWN = 20
_WIDE = 100


def text(found: Verification, *, full: bool = False) -> str:
    """What a person reads."""
    return for_log("\n".join(_lines(found, full=full)))


def as_json(found: Verification, *, full: bool = False) -> str:
    """One object; every key always present."""
    del full
    rates = [
        {
            "status": status,
            "both": both,
            "predicted": predicted,
            "observed": observed,
            "precision": both / predicted if predicted else None,
            "recall": both / observed if observed else None,
        }
        for status, both, predicted, observed in found.rates()
    ]
    content = {
        "schema": "opcheck-verification/1",
        **msgspec.to_builtins(found),
        "rates": rates,
    }
    content["pairs"] = [
        {**pair, "agrees": one.agrees}
        for pair, one in zip(content["pairs"], found.pairs, strict=True)
    ]
    return for_json(json.dumps(content, indent=2, ensure_ascii=False))


FORMATS: dict[str, Callable[..., str]] = {"text": text, "json": as_json}


def _lines(found: Verification, *, full: bool) -> Iterator[str]:
    where = f"torch {found.torch}, macOS {found.macos}"
    yield _cut(
        f"{one_line(found.prediction)}, held against {one_line(found.observation)} ({where})"
    )
    unknown = sum(pair.predicted == "unknown" for pair in found.pairs)
    yield _cut(
        f"{plural(len(found.pairs), 'pair')}: {plural(len(found.agreements), 'agreement')}, "
        f"{plural(len(found.contradictions), 'contradiction')}"
        + (f", {unknown:,} of which the prediction knew nothing" if unknown else "")
    )
    rows = [
        (status, predicted, observed, both, ratio(both, predicted), ratio(both, observed))
        for status, both, predicted, observed in found.rates()
    ]
    if rows:
        headers = ("status", "predicted", "observed", "both", "precision", "recall")
        yield ""
        yield tabulate(rows, headers=headers, tablefmt="plain", disable_numparse=True)
    yield from _section("Contradictions", found.contradictions, _contradiction, full=full)
    yield from _section("Observed, not predicted", found.unforeseen, _place, full=full)
    yield from _section("Predicted, not observed", found.unseen, _place, full=full)
    if found.notes:
        yield ""
        yield "Notes"
        yield from (f"  {one_line(note)}" for note in found.notes)


def _section(
    title: str,
    entries: Sequence[Pair | ReportedCalls],
    write: Callable[[Pair | ReportedCalls], str],
    *,
    full: bool,
) -> Iterator[str]:
    if not entries:
        return
    yield ""
    yield title
    shown = entries if full else entries[:_SHOWN]
    yield from (f"  {write(one) if full else _cut(write(one), _WIDE - 2)}" for one in shown)
    if len(shown) < len(entries):
        yield f"  {len(entries) - len(shown):,} more (-v shows all)"


def _contradiction(one: Pair | ReportedCalls) -> str:
    assert isinstance(one, Pair)
    at = f" at {one_line(one.line)}" if one.line else ""
    return f"{one_line(one.op)}{at}: predicted {one.predicted}, observed {one.observed}; {one_line(one.seen)}"


def _place(one: Pair | ReportedCalls) -> str:
    assert isinstance(one, ReportedCalls)
    at = f" at {one_line(one.line)}" if one.line else ""
    return f"{one_line(one.op)}{at}: {one.status}"


def _cut(line: str, width: int = _WIDE) -> str:
    return line if len(line) <= width else line[: width - 3] + "..."
