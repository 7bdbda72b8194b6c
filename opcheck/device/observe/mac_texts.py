"""The texts that a Mac prints: their kinds, the wordings of ``patterns.yaml``, and those that statements quote."""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS, Confidence
from opcheck.common.yaml_text import load_shipped
from opcheck.data.registrations import OpLists
from opcheck.data.statement_model import Statement
from opcheck.model.records import Record, SourceLocation

#: The operator of a text that names none.
NOT_NAMED = "(operator not named)"
#: The strongest of model.CONFIDENCES.
CONFIDENCE: Confidence = "observed"


class TextKind(NamedTuple):
    """What a text of this kind means."""

    #: as a report describes it
    meaning: str
    #: The text ends a call, or the process.
    ends: bool = False
    #: A traceback, or the place of a warning, leads to the text.
    placed: bool = False
    #: the rules' name of a refusal (judge/rules/call_verdicts.py)
    refusal: str = ""


#: The kinds of texts (kinds.yaml).
KINDS = {
    name: TextKind(**row)
    for name, row in load_shipped(Path(__file__).with_name("kinds.yaml")).items()
}

#: The kinds that end a call, or the process.
ENDS = frozenset(name for name, kind in KINDS.items() if kind.ends)


class LogEvent(Record, frozen=True, kw_only=True):
    """A text that a Mac printed, and its meaning."""

    #: a name of KINDS
    kind: str
    #: The operator as the text names it, or empty; the profiler leaves out the overload.
    op: str = ""
    #: the releases that print this wording
    torch: Span = Span()
    #: ids of the curated statements that quote the text
    statements: tuple[str, ...] = ()
    #: the program's own line that led there, where the log has it
    location: SourceLocation | None = None
    #: sizes in bytes, times in ms, counts
    numbers: dict[str, int | float] = {}
    words: dict[str, str] = {}
    #: PyTorch's file that prints it; empty where it is Apple's
    source: str = ""
    #: the printed line, without the prefix of a log
    text: str = ""
    log: str = ""
    line: int = 0
    #: the recorder's number of the call during which it was printed; 0 where that is unknown
    call: int = 0

    @property
    def where(self) -> str:
        """``log:line``."""
        return f"{self.log}:{self.line}"


#: MPSAllocator.mm, ``format_size``, spells units in its own way up to 2.7, and as c10 does since.
_UNITS = {"bytes": 0, "KB": 1, "MB": 2, "GB": 3, "KiB": 1, "MiB": 2, "GiB": 3}

#: What the unified log puts around a message of the profiler: ``log show --signpost`` and exports
#: of Instruments. The subsystem, categories and names are MPSProfiler.mm's; what stands between
#: them is Apple's, and was not seen on a Mac.
_SIGNPOST = re.compile(
    r"PyTorchMPS\b.{0,200}?PyTorch(?:Operation|Copy|CPUFallbacks?)(?:Intervals|Events)\b"
    r"[^\w]{0,40}(?P<message>.{0,3500})"
)


class Pattern(NamedTuple):
    """A wording, as ``patterns.yaml`` describes it."""

    kind: str
    needle: str
    regex: re.Pattern[str]
    torch: Span
    source: str
    op: str


#: where a text matches, and its meaning; twice None where it does not
Match = tuple[re.Match[str], LogEvent] | tuple[None, None]


class PatternTable(NamedTuple):
    """The wordings, in the order of trying."""

    profile: tuple[Pattern, ...]
    texts: tuple[Pattern, ...]
    cut_short: tuple[Pattern, ...]
    #: what services and programs put before a line
    prefixes: tuple[re.Pattern[str], ...]
    #: the frames of a traceback
    frames: tuple[re.Pattern[str], ...]
    #: torch's version and macOS's, as programs write them
    torch: tuple[re.Pattern[str], ...]
    macos: tuple[re.Pattern[str], ...]


@functools.cache
def table() -> PatternTable:
    """Read the wordings of ``patterns.yaml``; once."""
    document = load_shipped(Path(__file__).with_name("patterns.yaml"))
    fragments: dict[str, str] = document["fragments"]
    tables: Any = (
        tuple(
            re.compile(row, re.MULTILINE) if isinstance(row, str) else _pattern(row, fragments)
            for row in document[name]
        )
        for name in PatternTable._fields
    )
    return PatternTable(*tables)


def _pattern(row: dict[str, Any], fragments: dict[str, str]) -> Pattern:
    regex = "".join(row["regex"])
    # A fragment may contain earlier ones.
    for name in reversed(fragments):
        regex = regex.replace(f"<{name}>", fragments[name])
    since, until = (Version.parse(row[end]) if end in row else None for end in ("since", "until"))
    return Pattern(
        row["kind"],
        row["needle"],
        re.compile(regex),
        Span(since=since, until=until),
        row.get("source", ""),
        row.get("op", ""),
    )


def first_match(patterns: Sequence[Pattern], text: str) -> Match:
    """The first of the patterns in the text, and its meaning."""
    for pattern in patterns:
        if pattern.needle in text:
            match = pattern.regex.search(text)
            if match is not None:
                return match, _event(pattern, match)
    return None, None


def profile_event(line: str) -> LogEvent | None:
    """The event of the profiler or the allocator in a line; None where the line is not theirs."""
    if "PyTorchMPS" in line:
        signpost = _SIGNPOST.search(line)
        return profile_event(signpost["message"]) if signpost else None
    return first_match(table().profile, line)[1]


def _event(pattern: Pattern, match: re.Match[str]) -> LogEvent:
    words = {name: text.strip() for name, text in match.groupdict().items() if text is not None}
    op = words.pop("op", pattern.op)
    numbers = {name: _NUMBERS[name](words.pop(name)) for name in [*words] if name in _NUMBERS}
    # The dispatcher's own text about MPS is that of a release from before the fallback had one.
    kind = "no_kernel" if words.get("backend") == "MPS" else pattern.kind
    return LogEvent(
        kind=kind,
        op=op.rstrip("."),
        torch=pattern.torch,
        numbers=numbers,
        words=words,
        source=pattern.source,
        text=match[0].strip(),
    )


def _size(text: str) -> int:
    """The bytes of a size such as ``1.50 MiB``, as exact as two digits after the point are."""
    number = text.rstrip("bytesKMGi B")
    return round(float(number) * 1024.0 ** _UNITS[text.removeprefix(number).strip()])


#: The groups of numbers, and how they are read; all others are words.
_NUMBERS: dict[str, Callable[[str], int | float]] = {
    **dict.fromkeys(("source_line", "value", "id", "run", "runs", "scalars"), int),
    **dict.fromkeys(("allocated", "other", "allowed", "asked", "bytes"), _size),
    **dict.fromkeys(("ratio", "mean_ms", "cpu_ms", "gpu_ms", "schedule_ms"), float),
}


#: The kind of an event by the effect of the statement that quotes its text.
_KINDS = {
    "aborts": "aborted",
    "raises": "refused",
    "falls_back": "detour",
    "wrong_result": "warned",
    "narrows": "warned",
    "warns": "warned",
}

_PLACEHOLDER = re.compile(r"\{[^{}]{1,20}\}")
#: A text without any of them counts only after the type of an exception or of a warning.
_TELLING = ("MPS", "mps", "Metal", "acOS")
_TYPED = ("Error: ", "Warning: ")


class Quoted(NamedTuple):
    """A text, and the statements that quote it."""

    needle: str
    regex: re.Pattern[str]
    statements: tuple[Statement, ...]
    #: the length of the text without its placeholders
    letters: int

    @property
    def kind(self) -> str:
        """The kind of an event with this text, by the worst effect of the statements."""
        return _KINDS[min((each.effect for each in self.statements), key=EFFECTS.index)]

    @property
    def span(self) -> Span:
        """From the first release of any of the statements to the last."""
        starts = [statement.torch.since for statement in self.statements]
        ends = [statement.torch.until for statement in self.statements]
        return Span(since=_outer_version(min, starts), until=_outer_version(max, ends))


def _outer_version(
    choose: Callable[..., Version], versions: Sequence[Version | None]
) -> Version | None:
    """The least or the greatest version; None where a span is open at that end."""
    return None if None in versions else choose(versions)


@functools.lru_cache(maxsize=4)
def quoted_texts(lists: OpLists) -> tuple[Quoted, ...]:
    """All texts of the lists, the longest first."""
    by_text: dict[str, list[Statement]] = {}
    for statement in lists.statements.all:
        if statement.error is not None:
            by_text.setdefault(statement.error.text.strip(), []).append(statement)
    quoted = [_quoted_text(text, tuple(statements)) for text, statements in by_text.items()]
    return tuple(sorted(quoted, key=lambda text: -text.letters))


def _quoted_text(text: str, statements: tuple[Statement, ...]) -> Quoted:
    literals = _PLACEHOLDER.split(text)
    needle = max(literals, key=len).strip()
    pattern = r"[^\n]{1,80}?".join(re.escape(part) for part in literals)
    if text.startswith("{"):
        # C++ inserts a name at the beginning.
        pattern = r"\w{1,80}" + pattern.removeprefix(r"[^\n]{1,80}?")
    if text.endswith("}"):
        # The name at the end is a word; the shortest text is its first letter.
        pattern = pattern.removesuffix(r"[^\n]{1,80}?") + r"[^\s,;]{1,80}"
    if not any(word in text for word in _TELLING):
        pattern = r"\w{0,40}(?:Error|Warning): {1,2}" + pattern
    return Quoted(needle, re.compile(pattern), statements, sum(map(len, literals)))


def matching(text: str, lists: OpLists) -> Quoted | None:
    """The longest quoted text in the line.

    Raises:
        OpListError: the lists are damaged.
    """
    if not any(word in text for word in (*_TELLING, *_TYPED, "failed assertion")):
        return None
    return next(
        (each for each in quoted_texts(lists) if each.needle in text and each.regex.search(text)),
        None,
    )


def operator_of(statements: Sequence[Statement]) -> str:
    """The operator of the statements; empty if they name several or a wildcard."""
    ops = [op for statement in statements for op in statement.ops]
    bases = {_base(op) for op in ops}
    if "*" in ops or len(bases) != 1:
        return ""
    return next((op for op in ops if op.endswith("." + _base(op))), ops[0])


def _base(op: str) -> str:
    """``topk`` of ``aten::topk.values``, of ``aten::topk`` and of ``aten::topk_``."""
    return op.partition("::")[2].partition(".")[0].removesuffix("_").removesuffix("_out")
