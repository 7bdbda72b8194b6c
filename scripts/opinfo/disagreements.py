"""Why our verdict and PyTorch's CI lists differ: curated explanations, and their lint.

op_lists/opinfo/disagreements.yaml holds one entry a class and reason.  Every disagreement needs one, and every
entry, each OpInfo that it names included, must explain at least one.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from opcheck.common.versions import Span, Version
from opcheck.data.tables import ListFile
from scripts.opinfo.compare import Pair
from scripts.opinfo.store import DTYPES, PASSES

FILE = "opinfo/disagreements.yaml"


class Explanation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reason, and the pairs that it is the reason of."""

    #: what kind of thing it is, in a word or two; the table counts these.
    class_: str = msgspec.field(name="class")
    reason: str
    #: ``name`` or ``name/variant``; ``*`` stands for any text.
    opinfos: tuple[str, ...]
    #: of the CI: a pass that we call a failure, or a failure that we do not foresee.
    expected: str
    passes: tuple[str, ...] = PASSES
    dtypes: tuple[str, ...] = DTYPES
    torch: Span = Span()

    def named_by(self, pair: Pair) -> str | None:
        """The one of its patterns that names the pair's OpInfo, if it explains the pair."""
        if (
            pair.expected != self.expected
            or pair.kind not in self.passes
            or pair.dtype not in self.dtypes
            or Version.parse(pair.line) not in self.torch
        ):
            return None
        return next((opinfo for opinfo in self.opinfos if fnmatchcase(pair.opinfo, opinfo)), None)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    disagreements: tuple[Explanation, ...]


_LIST = ListFile(FILE, _File)


def load(directory: Path | None = None) -> tuple[Explanation, ...]:
    """The explanations.

    Raises:
        OpListError: the file is missing, damaged, or has a field of no known form.
    """
    return _LIST.load(directory).disagreements


def explain(pair: Pair, explanations: Sequence[Explanation]) -> str | None:
    """The class of the first explanation that names the pair."""
    return next((explanation.class_ for explanation in explanations if explanation.named_by(pair)), None)


def check(apart: Sequence[Pair], explanations: Sequence[Explanation]) -> list[str]:
    """Disagreements that nothing explains, and explanations that explain nothing."""
    used: set[tuple[int, str]] = set()
    problems = []
    for pair in apart:
        named = ((at, item.named_by(pair)) for at, item in enumerate(explanations))
        first = next(((at, pattern) for at, pattern in named if pattern is not None), None)
        if first is not None:
            used.add(first)
            continue
        problems.append(
            f"unexplained: torch {pair.line} {pair.kind} {pair.opinfo} {pair.dtype}: CI says "
            f"{pair.expected}; {pair.because or 'nothing here says that it fails'}"
        )
    unused = (
        f"unused: {FILE}: {item.class_}: {pattern}"
        for at, item in enumerate(explanations)
        for pattern in item.opinfos
        if (at, pattern) not in used
    )
    return [*problems, *unused]
