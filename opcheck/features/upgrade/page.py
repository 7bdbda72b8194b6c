"""The answer to ``opcheck upgrade`` as a page: the upgrade, each finding's smallest change, the grid."""

import shlex
from collections.abc import Iterator

from opcheck.common.grouping import group_values
from opcheck.common.sanitize import one_line
from opcheck.common.text import plural, shorten
from opcheck.common.versions import Version
from opcheck.common.vocabulary import HEADLINES, ROUTE_WORDS
from opcheck.features.upgrade.upgrade_advice import Advice, Removal, Upgrade, UpgradeCell
from opcheck.judge.target_change import VersionChange
from opcheck.render.document import Block, Bullets, Facts, Heading, Lines, Table, TextSpan, section
from opcheck.render.summary import HEADLINE_STYLES
from opcheck.render.wording import list_findings

#: The headlines in a word each, as the grid has them.
WORDS: dict[str, str] = dict(zip(HEADLINES, ("fails", "unknown", "variable", "partly", "native"), strict=True))
#: What each of them means, in the order of the legend; a model that fails does so by an error.
_MEANINGS = {WORDS[each]: each for each in (*HEADLINES[:1:-1], *HEADLINES[:2])} | {"fails": "raises"}
_GRID = "Releases and macOS versions"
_NONE = "none"
#: Columns that the name of a finding may take: leaves room for two versions of a change within 100.
_WIDEST = 44


def document(advice: Advice, *, full: bool = True) -> Iterator[Block]:
    """Make the page; unless it is full, without the grid and with one line of things not checked."""
    yield Heading(f"{one_line(advice.model)}: upgrades from {advice.target}", 1)
    yield Lines(tuple(_answer(advice)))
    headers = ("finding", "line", "torch alone", "macOS alone", "both")
    smallest = Table(headers, tuple(map(_row, advice.findings)))
    yield from section("The smallest change without each finding", smallest)
    for upgrade in dict.fromkeys(filter(None, (advice.upgrade, advice.newest))):
        yield from section(f"What {_words(upgrade.change)} brings", Bullets(tuple(list_findings(upgrade.new))))
    rest = f"{advice.not_checked[0]} (-v shows the grid, and more)"
    if full:
        rest = ""
        yield Heading(_GRID)
        yield _grid(advice.grid)
        yield Lines(tuple(_legend(advice.grid)))
        yield from section("Not checked", Bullets(advice.not_checked))
    following = ("next", TextSpan(_next(advice)))
    yield Facts((("not checked", rest), following) if rest else (following,))


def _answer(advice: Advice) -> Iterator[str]:
    errors = sum(finding.severity == "error" for finding in advice.findings)
    warnings = len(advice.findings) - errors
    yield f"now: {advice.headline} ({plural(errors, 'error')}, {plural(warnings, 'warning')})"
    if not advice.complete:
        yield "the run of the model ended early: later calls were not compared"
    best = advice.upgrade
    if best is None:
        nothing = "nothing to upgrade for: there are no errors or warnings"
        yield "no newer release or macOS version is better" if advice.findings else nothing
    else:
        yield f"upgrade to {_outcome(best, advice)}"
    if apple := sum(each.calls for each in advice.apple):
        names = " and ".join(ROUTE_WORDS[each.route] for each in advice.apple)
        calls = plural(apple, "call")
        yield f"an upgrade of macOS alone can change the results of {calls}: {names}"
    if advice.newest and advice.newest != best:
        yield f"the newest, {_outcome(advice.newest, advice)}"


def _outcome(upgrade: Upgrade, advice: Advice) -> str:
    new = plural(len(upgrade.new), "new finding") if upgrade.new else "nothing new"
    removed = f"removes {upgrade.removed} of {plural(len(advice.findings), 'finding')}, "
    return f"{_words(upgrade.change)}: {removed * bool(advice.findings)}brings {new}; then: {upgrade.headline}"


def _words(change: VersionChange) -> str:
    release = f"torch {change.torch}" if change.torch else ""
    system = f"macOS {change.macos}" if change.macos else ""
    return " and ".join(part for part in (release, system) if part)


def _row(removal: Removal) -> tuple[str, ...]:
    name = one_line(f"{removal.severity} {removal.rule} {removal.op or removal.message}")
    both = f"{removal.both.torch} on {removal.both.macos}" if removal.both else ""
    if not (both or removal.torch_alone or removal.macos_alone):
        both = f"older: {_words(removal.older)}" if removal.older else _NONE
    return (
        shorten(name, _WIDEST),
        one_line(removal.line.rpartition("/")[2]),
        removal.torch_alone.torch if removal.torch_alone else "-",
        removal.macos_alone.macos if removal.macos_alone else "-",
        both or "-",
    )


def _grid(cells: tuple[UpgradeCell, ...]) -> Table:
    systems = list(dict.fromkeys(sorted((cell.macos for cell in cells), key=Version.parse)))
    rows: dict[str, dict[str, str | TextSpan]] = {}
    for cell in cells:
        row = rows.setdefault(cell.torch, dict.fromkeys(systems, "-"))
        if cell.headline:
            word = WORDS[cell.headline]
            text = f"[{word}]" if cell.current else word
            row[cell.macos] = TextSpan(text, HEADLINE_STYLES[cell.headline])
    headers = ("torch", *(f"macOS {system}" for system in systems))
    return Table(headers, tuple((line, *row.values()) for line, row in rows.items()))


def _legend(cells: tuple[UpgradeCell, ...]) -> Iterator[str]:
    texts = {WORDS[cell.headline] for cell in cells if cell.headline}
    yield "; ".join(f"{word}: {text}" for word, text in _MEANINGS.items() if word in texts)
    yield "[...]: the current target"
    reasons = group_values((cell.impossible, cell.torch) for cell in cells if cell.impossible)
    if reasons:
        spans = {why: " to ".join(dict.fromkeys((lines[0], lines[-1]))) for why, lines in reasons.items()}
        named = "; ".join(f"torch {span} {why}" for why, span in spans.items())
        yield f"-: not judged, there is no such pair: {named}"


def _next(advice: Advice) -> str:
    """Return the command that shows what the upgrade changes, or what is wrong now."""
    if advice.upgrade is None and advice.findings:
        return f"opcheck explain {advice.findings[0].rule}"
    change = advice.upgrade.change if advice.upgrade else None
    torch = (change.torch if change else "") or advice.target.torch
    macos = (change.macos if change else "") or advice.target.macos
    words = ["opcheck", "audit", advice.model, *advice.flags, "--torch", torch, "--macos", macos]
    # What is good as it is stays so.
    return shlex.join(words if change else [*words, "--fail-on", "fallback"])
