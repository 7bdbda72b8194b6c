"""What a Mac printed: a record for each text, and the kinds of texts that there are."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from opcheck.common.versions import Span
from opcheck.common.vocabulary import Confidence
from opcheck.common.yaml_text import load_shipped
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
    #: the name by which the rules know a refusal (judge/rules/oc101_unsupported_call.py)
    refusal: str = ""


#: The kinds of texts (kinds.yaml).
KINDS = {
    name: TextKind(**row)
    for name, row in load_shipped(Path(__file__).with_name("kinds.yaml")).items()
}

#: The kinds that end a call, or the process.
ENDS = frozenset(name for name, kind in KINDS.items() if kind.ends)


class LogEvent(Record, frozen=True, kw_only=True):
    """A text that a Mac printed, and what it says."""

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
    #: the printed line, without what logs put before it
    text: str = ""
    log: str = ""
    line: int = 0
    #: the recorder's number of the call during which it was printed; 0 where that is unknown
    call: int = 0

    @property
    def where(self) -> str:
        """``log:line``."""
        return f"{self.log}:{self.line}"
