"""Parses what a Mac printed in a log: lines, tracebacks, warnings, and the events among them."""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.common.grouping import group_values
from opcheck.common.versions import Span, Version
from opcheck.common.vocabulary import EFFECTS, Confidence, FallbackKind, Status
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
    #: the effects of the statements that quote such a text
    effects: tuple[str, ...] = ()
    #: the rules' name of a refusal (judge/rules/call_verdicts.py)
    refusal: str = ""
    #: the verdict on a call that prints it
    status: Status = "unsupported"
    fallback: FallbackKind | None = None


#: The kinds of texts (kinds.yaml).
KINDS = {name: TextKind(**row) for name, row in load_shipped(Path(__file__).with_name("kinds.yaml")).items()}

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
    #: expressions for words that each text of the table contains
    signals: tuple[re.Pattern[str], ...]
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
    tables: Any = ([_pattern(row, fragments) for row in document[name]] for name in PatternTable._fields)
    return PatternTable(*map(tuple, tables))


def _pattern(row: Any, fragments: dict[str, str]) -> Pattern | re.Pattern[str]:
    if isinstance(row, str):
        return re.compile(row, re.MULTILINE)
    regex = "".join(row["regex"])
    # A fragment may contain earlier ones.
    for name in reversed(fragments):
        regex = regex.replace(f"<{name}>", fragments[name])
    ends = {end: Version.parse(row[end]) for end in ("since", "until") if end in row}
    return Pattern(
        row["kind"], row["needle"], re.compile(regex), Span(**ends), row.get("source", ""), row.get("op", "")
    )


def first_match(patterns: Sequence[Pattern], text: str) -> Match:
    """The first of the patterns in the text, and its meaning."""
    for pattern in patterns:
        if pattern.needle in text and (match := pattern.regex.search(text)) is not None:
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
    op = words.pop("op", pattern.op).rstrip(".")
    numbers = {name: _NUMBERS[name](words.pop(name)) for name in [*words] if name in _NUMBERS}
    # The dispatcher's own text about MPS is that of a release from before the fallback had one.
    kind = "no_kernel" if words.get("backend") == "MPS" else pattern.kind
    printed: Any = {"source": pattern.source, "text": match[0].strip()}
    return LogEvent(kind=kind, op=op, torch=pattern.torch, numbers=numbers, words=words, **printed)


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
_KINDS: dict[str, str] = {effect: name for name, kind in KINDS.items() for effect in kind.effects}

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
        """The kind of an event with this text, by the worst effect of the statements.

        Where one text both raises and aborts, it raises: an exception that ends the process is printed by libc++abi,
        which has a wording of its own (patterns.yaml).
        """
        effects = {each.effect for each in self.statements}
        return _KINDS[min(effects - {"aborts"} if "raises" in effects else effects, key=EFFECTS.index)]

    @property
    def span(self) -> Span:
        """From the first release of any of the statements to the last."""
        starts = [statement.torch.since for statement in self.statements]
        ends = [statement.torch.until for statement in self.statements]
        return Span(since=_outer_version(min, starts), until=_outer_version(max, ends))


def _outer_version(choose: Callable[..., Version], versions: Sequence[Version | None]) -> Version | None:
    """The least or the greatest version; None where a span is open at that end."""
    return None if None in versions else choose(versions)


@functools.lru_cache(maxsize=4)
def quoted_texts(lists: OpLists) -> tuple[Quoted, ...]:
    """All texts of the lists, the longest first."""
    by_text = group_values((each.error.text.strip(), each) for each in lists.statements.all if each.error is not None)
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


# -- parses what a Mac printed in a log: lines, tracebacks, warnings, and the events among them --

# -- lines -----------------------------------------------------------------------------------------

#: No line of a Mac's that matters is longer; the rest is cut off.
LONGEST = 4000

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[=>()][A-Z0-9]?)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def clean_lines(text: str) -> list[str]:
    """Split a log into lines, each without colours, time stamps and marks of a service.

    Of a progress bar that overwrote itself by carriage returns, the last state is kept.
    """
    return [_line(raw) for raw in text.split("\n")]


def _line(raw: str) -> str:
    line = _ANSI.sub("", raw[: 2 * LONGEST])
    line = _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])
    for prefix in table().prefixes:
        match = prefix.match(line)
        if match is not None and match.end():
            line = line[match.end() :]
    return line[:LONGEST].rstrip()


# -- tracebacks and warnings -----------------------------------------------------------------------

_ARROW = re.compile(r"^-{2,8}> (?:\[?(?P<line>\d{1,7})\]?)(?:\(.{0,300}?\))? (?P<text>\S.{0,300})$")
#: ``file.py:103: UserWarning: ...``, as Python's warnings begin.
_WARNING = re.compile(
    r"(?P<file>[^\s:][^:]{0,300}?(?:\.py|<\w{1,40}>|\.\w{1,5})):(?P<line>\d{1,7}): "
    r"\w{1,60}Warning: "
)

#: Files of Python itself; site-packages below them are not Python's.
_STDLIB = re.compile(r"/(?:lib|Versions)/(?:python)?\d?\.?\d{0,2}.{0,60}?/python3\.\d{1,2}/|/lib/python3\.\d{1,2}/")
_TORCH = re.compile(r"(?:^|/)torch/(?!hub/)")
_LIBRARY = re.compile(r"(?:site|dist)-packages/")

#: How many frames of the newest traceback are kept.
DEEPEST = 400


class Frame(NamedTuple):
    """A frame of a traceback, as a log shows it."""

    file: str
    line: int
    function: str
    text: str = ""

    @property
    def library(self) -> bool:
        """Return whether the file belongs to an installed package."""
        return _LIBRARY.search(self.file) is not None

    @property
    def user(self) -> bool:
        """Return whether the file is neither torch's nor Python's own, as an audit decides it."""
        if self.file.startswith("<"):
            return False
        if _LIBRARY.search(self.file):
            return _TORCH.match(_LIBRARY.split(self.file)[-1]) is None
        return _STDLIB.search(self.file) is None and "/torch/nn/" not in self.file

    @property
    def location(self) -> SourceLocation:
        """The record; a file of a package is relative to site-packages."""
        file = _LIBRARY.split(self.file)[-1]
        return SourceLocation(file=file, line=self.line, function=self.function, text=self.text)


class Traceback:
    """The frames of the traceback that the log is in, fed line by line."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    def take_line(self, line: str) -> bool:
        """Take a line; return whether it belongs to a traceback."""
        if line.lstrip().startswith("Traceback (most recent call last)"):
            self._frames = []
            return True
        match = next(filter(None, (frame.match(line) for frame in table().frames)), None)
        if match is not None:
            if len(self._frames) < DEEPEST:
                function = (match.groupdict().get("function") or "").strip()
                self._frames.append(Frame(match["file"], int(match["line"] or 0), function))
            return True
        if not self._frames:
            return False
        last = self._frames[-1]
        if (arrow := _ARROW.match(line)) is not None:
            # Jupyter's header gives the line of a file; of a cell, the arrow does.
            self._frames[-1] = last._replace(line=int(arrow["line"]), text=arrow["text"].strip())
            return True
        if not last.text and line.startswith((" ", "\t")) and line.strip("^~ \t"):
            self._frames[-1] = last._replace(text=line.strip()[:200])
            return True
        return False

    def end(self) -> tuple[SourceLocation | None, str]:
        """Close the traceback; return its innermost user line, and the innermost in no package.

        A user line is neither torch's nor Python's. The second is ``file:line``, empty if there is
        none.
        """
        frames, self._frames = self._frames, []
        users = [frame for frame in frames if frame.user]
        own = [frame for frame in users if not frame.library]
        return (users[-1].location if users else None), f"{own[-1].file}:{own[-1].line}" if own else ""


#: How many lines a sentence may span that a narrow terminal broke.
_JOINED = 4
#: The mark that a recorder leaves in the log around each call; see mac_recorder.py.
MARK = re.compile(r"\x1e(\d{1,12})([<>])\x1e")


def parse(text: str, lists: OpLists, *, log: str = "log") -> tuple[LogEvent, ...]:
    """Return the events of everything that a Mac printed, in the order of the log, without unknown texts.

    Args:
        text: the log, with all that terminals and CI services add.
        lists: the op lists, whose statements quote texts.
        log: the name of the log in the records.

    Raises:
        OpListError: the lists are damaged.
    """
    return tuple(_events(text, lists, log))


def _events(text: str, lists: OpLists, log: str) -> Iterator[LogEvent]:
    calls = _calls(text) if "\x1e" in text else None
    lines = clean_lines(MARK.sub("", text) if calls else text)
    traceback = Traceback()
    read = 0
    for index, line in enumerate(lines):
        if index < read or not line or traceback.take_line(line):
            continue
        event, read = _parse_line(lines, index, lists)
        if event is None:
            continue
        call = calls[index] if calls else 0
        event = msgspec.structs.replace(event, log=log, line=index + 1, call=call)
        yield _with_place(event, lines, index, traceback) if KINDS[event.kind].placed else event


def _calls(text: str) -> list[int]:
    """The recorder's number of the call during which each line was printed; 0: during none."""
    numbers: list[int] = []
    current = 0
    for line in text.split("\n"):
        number = current
        for mark in MARK.finditer(line):
            current = int(mark[1]) if mark[2] == "<" else 0
            # A line that begins before the mark was written after it: C++ ends its lines, a
            # progress bar does not.
            number = current or number
        numbers.append(number)
    return numbers


def _parse_line(lines: Sequence[str], index: int, lists: OpLists) -> tuple[LogEvent | None, int]:
    """The event that begins in a line, and the number of the first line after it."""
    line, after = lines[index], index + 1
    if not any(signal.search(line) for signal in table().signals):
        return None, after
    if (event := profile_event(line)) is not None:
        return event, after
    rest = [part.strip() for part in lines[after : index + _JOINED]]
    for text in (line, " ".join((line, *rest))[:LONGEST]):
        for match, event in _tries(text, lists):
            # What begins in a later line is that line's own.
            if match is not None and match.start() <= len(line):
                return event, after + _lines_reached(match.end(), line, rest)
    return None, after


def _tries(text: str, lists: OpLists) -> Iterator[Match]:
    yield first_match(table().texts, text)
    yield _match_quoted(text, lists)
    yield first_match(table().cut_short, text)


def _lines_reached(end: int, line: str, rest: Sequence[str]) -> int:
    """How many of the joined lines a match that ends there reaches into."""
    lengths = itertools.accumulate((1 + len(part) for part in rest[:-1]), initial=len(line))
    return sum(end > length + 1 for length in lengths)


def _match_quoted(text: str, lists: OpLists) -> Match:
    """The longest quoted text in the line."""
    may_be = any(word in text for word in (*_TELLING, *_TYPED, "failed assertion"))
    for quoted in quoted_texts(lists) if may_be else ():
        if quoted.needle in text and (match := quoted.regex.search(text)):
            ids = tuple(sorted(statement.id for statement in quoted.statements))
            op, printed = operator_of(quoted.statements), match[0].strip()
            return match, LogEvent(kind=quoted.kind, op=op, torch=quoted.span, statements=ids, text=printed)
    return None, None


def _with_place(event: LogEvent, lines: Sequence[str], index: int, traceback: Traceback) -> LogEvent:
    """The event with the line of the program that a warning names, or the last traceback."""
    if (place := _WARNING.search(lines[index])) is None:
        location, own = traceback.end()
        words = {**event.words, "own": own} if own else event.words
        return msgspec.structs.replace(event, location=location, words=words)
    after = lines[index + 1] if index + 1 < len(lines) else ""
    text = after.strip()[:200] if after.startswith(" ") else ""
    frame = Frame(place["file"].strip(), int(place["line"]), "", text)
    return msgspec.structs.replace(event, location=frame.location)
