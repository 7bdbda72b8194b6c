"""Select the statements that can hold for a question, and turn them into the notes of an answer."""

import re
from collections import defaultdict
from collections.abc import Iterable

from opcheck.common.picking import pick
from opcheck.common.versions import Span, Target
from opcheck.common.vocabulary import Effect, StatementSort
from opcheck.data.messages import fill_text
from opcheck.data.statement_model import Statement
from opcheck.lookup.answer_records import Note
from opcheck.model.records import TensorSpec, Verdict


def notes(
    statements: Iterable[Statement],
    sort: StatementSort,
    verdict: Verdict | None = None,
    aim: Target | None = None,
    dtype: str | None = None,
    *,
    every_macos: bool = True,
) -> tuple[Note, ...]:
    """Return the statements of one sort that apply to the question: the deciding ones first, then the worst.

    Args:
        statements: of the overload and of those that decide for it.
        sort: ``limitation`` or ``advisory``.
        verdict: of the plain call; None if none was requested, so that no statement decides.
        aim: the target; None: no macOS is in question.
        dtype: keep to what can apply to this dtype.
        every_macos: keep what can hold on another macOS than the target's.
    """
    of_sort = (each for each in statements if each.sort == sort)
    on_macos = (each for each in of_sort if aim is None or every_macos or aim.macos in each.macos)
    kept = [each for each in on_macos if dtype is None or not each.dtypes or dtype in each.dtypes]
    raises = verdict is not None and verdict.status != "native"
    named = {*verdict.limitations, *verdict.advisories} if verdict else set()
    decided = {each.id for each in kept if raises and each.decides and each.id in named}
    kept.sort(key=lambda statement: (statement.id not in decided, statement.rank))
    return tuple(_note(each, each.id in decided, aim is None or aim.macos in each.macos) for each in kept)


class _AnySize:
    """A size that no comparison decides, so that a condition on it may hold."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError


#: Operators over a number of dimensions, and convolutions, which take the number from their caller.
_SPATIAL_OPERATORS = re.compile(r"conv|[123]d")


def can_hold(statement: Statement, spatial: int, dtype: str) -> bool:
    """Return whether the condition of a statement may hold for an operator over ``spatial`` dimensions; 0: unknown."""
    if not (spatial and statement.parsed and _SPATIAL_OPERATORS.search(" ".join(statement.ops))):
        return True

    def tensor(rank: int) -> TensorSpec:
        return TensorSpec(tensor=0, storage=0, dtype=dtype, shape=(_AnySize(),) * rank)  # type: ignore[arg-type]

    weight = tensor(spatial + 2)
    # The batch dimension is optional.
    batches = (dict.fromkeys(_IMAGES, tensor(rank)) for rank in (spatial + 1, spatial + 2))
    return any(statement.parsed.evaluate({**images, "weight": weight}) is not False for images in batches)


#: The arguments of operators over dimensions that are images or their gradients.
_IMAGES = ("self", "input", "result", "grad_output")


#: What each effect does, before the few words on when.
_DOES: dict[Effect, str] = {"aborts": "aborts", "raises": "raises", "falls_back": "on the CPU", "wrong_result": "wrong"}
#: A condition of at most this many characters can stand in a headline.
_SHORT = 32
#: What a headline says of a condition that is too long for it.
IN_A_CASE_BELOW = "in a case below"
#: A lone flag, such as half_to_float, does not help a reader.
_COMPARES = re.compile(r"[<>=]| is ")
#: Sizes and ranks that programs hardly reach: 2**31 elements, 16 dimensions.
_REMOTE = re.compile(r"\*\*3[12]|42949672\d\d|2147483\d\d\d|\b1[56]$")


def limit_of(statements: Iterable[Statement], aim: Target, dtype: str) -> str:
    """Return the limit of a native operator that matters most, such as ``on the CPU above 32 KiB``; empty if none does.

    Args:
        statements: on the operators that a plain call reaches.
        aim: the target.
        dtype: of the plain call.
    """
    briefs: defaultdict[Effect, dict[str, None]] = defaultdict(dict)
    unnamed: set[Effect] = set()
    for statement in sorted(statements, key=lambda statement: statement.rank):
        applies = aim.macos in statement.macos and dtype in (statement.dtypes or (dtype,))
        if statement.rare or not applies:
            continue
        if brief := _brief(statement):
            briefs[statement.effect].setdefault(brief)
        elif not statement.when and _is_common(statement.condition):
            unnamed.add(statement.effect)
    for effect, does in _DOES.items():
        if effect in briefs:
            return f"{does} {' or '.join([*briefs[effect]][:_MOST_BRIEFS])}"
    return next((f"{does} {IN_A_CASE_BELOW}" for effect, does in _DOES.items() if effect in unnamed), "")


#: How many limits a headline names.
_MOST_BRIEFS = 2


def _brief(statement: Statement) -> str:
    if statement.brief or statement.when:
        return statement.brief
    condition = statement.condition
    if not condition:
        return f"for {', '.join(statement.dtypes)}" if statement.dtypes else ""
    return f"where {condition}" if _is_common(condition) and len(condition) <= _SHORT else ""


def _is_common(condition: str) -> bool:
    """Return whether a program may well meet the condition."""
    return bool(_COMPARES.search(condition) and not _REMOTE.search(condition))


def _note(statement: Statement, decides: bool, holds: bool) -> Note:  # noqa: FBT001  (fields of the record)
    return Note(
        **pick(statement, "id", "effect", "summary", "dtypes", "dtypes_of", "condition"),
        **pick(statement, "when", "way_out", "fixed", "links"),
        torch=span_in_words(statement.torch),
        macos=span_in_words(statement.macos),
        prints=fill_text(statement.error.text) if statement.error else "",
        case=statement.brief or statement.when or statement.condition,
        frequency="rarely" if _REMOTE.search(statement.condition) else statement.frequency,
        holds=holds,
        decides=decides,
        evidence=tuple(entry.reported_as for entry in statement.evidence),
    )


def span_in_words(span: Span) -> str:
    """Return a span such as ``from 2.3``, ``before 15.1`` or ``from 13.0, before 14.0``; empty if it has no bound."""
    ends = (("from", span.since), ("before", span.until))
    return ", ".join(f"{word} {version}" for word, version in ends if version)
