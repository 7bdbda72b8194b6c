"""Our verdict on each OpInfo and dtype, beside what PyTorch's CI expects.  No torch."""

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists, load
from opcheck.data.statements import CuratedStatements
from opcheck.judge.judge import judge_all
from opcheck.model.records import OpCall, Verdict
from scripts.opinfo import reference
from scripts.opinfo.store import PASSES, Recording, Run

#: Statuses and kinds with which a call raises where the fallback variable is not set.
FAILS = frozenset({("unsupported", None), ("fallback", "env")})


class Pair(NamedTuple):
    """One OpInfo with one dtype in one release."""

    line: str
    kind: str
    opinfo: str
    dtype: str
    #: pass or xfail
    expected: str
    #: whether we say that it fails; None: no call could be recorded, only unknown ones decide, or the
    #: failure that the CI expects says nothing of MPS (reference.py).
    predicted: bool | None
    #: the call that decides and why; of an unjudged pair, what was in the way
    because: str
    #: the same as predicted, whatever the expectation says of MPS
    raises: bool | None = None

    @property
    def agrees(self) -> bool:
        """Whether both say the same."""
        return self.predicted == (self.expected == "xfail")


#: The only dtypes that the lists for gradients name in any release, 2.8 to 2.15, but for ``None``.  That no others
#: are run shows in index_fill: its entry of 2.8 to 2.10, for a missing kernel of aten::_unique, names these two, and
#: bfloat16 would meet the same missing kernel.
_GRADIENT_DTYPES = frozenset({"float32", "float16"})


def runs(kind: str, dtype: str) -> bool:
    """Whether the CI runs the pass with the dtype."""
    return kind != "gradient" or dtype in _GRADIENT_DTYPES


@functools.cache
def lists_without(prefix: str) -> OpLists:
    """The op lists, less the statements whose id begins with ``prefix`` (empty: with all)."""
    lists = load()
    if not prefix:
        return lists
    kept = [statement for statement in lists.statements.all if not statement.id.startswith(prefix)]
    statements = CuratedStatements(kept, lists.statements.arguments, lists.statements.fingerprint)
    histories = lists._histories  # noqa: SLF001 - the same lists with fewer statements
    return OpLists(lists.releases, histories, lists.sha256, statements)


def compare(recording: Recording, macos: str, *, without: str = "") -> Iterator[Pair]:
    """Every pair that the CI runs and does not skip."""
    lists = lists_without(without)
    target = Target(torch=Version.parse(recording.line), macos=Version.parse(macos))
    of_cpu = reference.TABLE.load()
    for name, info in sorted(recording.opinfos.items()):
        for kind in PASSES:
            for dtype, expected in info.ci[macos][kind].items():
                if expected == "skip" or not runs(kind, dtype):
                    continue
                raises, because = _predict(info.runs[kind].get(dtype), target, lists)
                why = of_cpu.why(kind, name, dtype) if expected == "xfail" else ""
                predicted = None if why else raises
                yield Pair(recording.line, kind, name, dtype, expected, predicted, why or because, raises)


def _predict(run: Run | None, target: Target, lists: OpLists) -> tuple[bool | None, str]:
    if run is None or not run.samples:
        return None, run.failures[0] if run is not None and run.failures else "no samples"
    verdicts = judge_all(run.calls, target, lists)
    failing = _first(zip(run.calls, verdicts, strict=True), FAILS)
    if failing is not None:
        return True, failing
    unknown = _first(zip(run.calls, verdicts, strict=True), frozenset({("unknown", None)}))
    if unknown is not None:
        return None, unknown
    if run.failures:
        return None, run.failures[0]
    return False, ""


def _first(judged: Iterable[tuple[OpCall, Verdict]], kinds: frozenset[tuple[str, str | None]]) -> str | None:
    for call, verdict in judged:
        if (verdict.status, verdict.kind) in kinds:
            return f"{call.op}: {verdict.because}"
    return None
