"""The findings as the workflow commands that GitHub Actions shows as annotations."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.sanitize import finished
from opcheck.model.records import Report
from opcheck.model.visible import one_line, visible
from opcheck.render import markdown, summary
from opcheck.render.where import Hit, hits

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}

#: GitHub refuses a step's summary of more than 1 MiB.
SUMMARY_LIMIT = 1 << 20
_CUT = "\n\n(cut here: GitHub takes no longer summary)\n"


def render(report: Report) -> str:
    """A command a finding and place, then the headline as a line of the log."""
    shown = visible(report)
    return "".join(f"{line}\n" for line in (*_annotations(shown), summary.headline(shown)))


def step_summary(report: Report) -> str:
    """The report as Markdown that is not too long for a step's summary."""
    return cut(finished(markdown.render(report), "markdown"))


def _annotations(report: Report) -> Iterator[str]:
    """The first places of all findings, then the others: GitHub shows ten of a kind, no more."""
    first: list[Hit] = []
    others: list[Hit] = []
    seen: set[int] = set()
    for hit in hits(report):
        (others if id(hit.finding) in seen else first).append(hit)
        seen.add(id(hit.finding))
    return map(command, (*first, *others))


def command(hit: Hit, kind: str = "", *more: str) -> str:
    """The annotation of a finding at one of its places; as ``kind``, else by its severity."""
    finding = hit.finding
    where = {"file": hit.file, "line": str(hit.line)} if hit.file else {}
    title = f"{finding.rule} {finding.op}".strip()
    properties = ",".join(
        f"{name}={_property(value)}" for name, value in {**where, "title": title}.items()
    )
    lines = [
        finding.message,
        hit.place.location.text if hit.place and hit.place.location else "",
        f"module: {hit.place.module}" if hit.place and hit.place.module else "",
        f"prints: {finding.prints}" if finding.prints else "",
        f"help: {finding.hint}" if finding.hint else "",
        f"try: {finding.remedy}" if finding.remedy else "",
        f"ignored: {finding.ignored}" if finding.ignored else "",
        *more,
    ]
    text = "\n".join(one_line(line) for line in lines if line)
    kind = kind or ("notice" if finding.ignored else _COMMANDS[finding.severity])
    return f"::{kind} {properties}::{_data(text)}"


def message(kind: str, text: str) -> str:
    """An annotation that is of no line."""
    return f"::{kind}::{_data(one_line(text))}"


def cut(text: str) -> str:
    """Markdown that is not too long for a step's summary."""
    whole = text.encode("utf-8", "backslashreplace")
    if len(whole) < SUMMARY_LIMIT:
        return text
    return whole[: SUMMARY_LIMIT - 100].decode("utf-8", "ignore") + _CUT


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")
