"""Decide whether a curated statement applies to a call on a target: yes, no, or undecided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from opcheck.common.versions import Target
from opcheck.data.conditions import RECOMPUTED, RESULT
from opcheck.data.statement_model import EVERY_OPERATOR, Arguments, ErrorText, Statement
from opcheck.model.records import COMPLEX, ENDLESS, OpCall


class Matches(NamedTuple):
    """The statements on a call's operator, in the order of the ids, with whether each applies to the call.

    None marks a statement that the recorded call does not decide.
    """

    answers: tuple[tuple[Statement, bool | None], ...]

    @property
    def certain(self) -> tuple[Statement, ...]:
        """The statements that certainly apply."""
        return tuple(statement for statement, applies in self.answers if applies)

    @property
    def possible(self) -> tuple[Statement, ...]:
        """The statements that apply or may apply; those that certainly apply come first."""
        open_ = (statement for statement, applies in self.answers if applies is None)
        return (*self.certain, *open_)

    @property
    def decisive(self) -> Statement | None:
        """The statement that decides the verdict: the worst effect, then the first id."""
        deciding = [statement for statement in self.certain if statement.decides]
        return min(deciding, key=lambda statement: statement.rank, default=None)

    @property
    def stops(self) -> bool:
        """Whether the program ends at the call, by an exception or a crash."""
        return self.decisive is not None and self.decisive.effect != "falls_back"

    @property
    def decided_errors(self) -> frozenset[ErrorText]:
        """The refusals whose statements certainly apply, or certainly do not."""
        return frozenset(
            statement.error for statement, applies in self.answers if statement.error and applies is not None
        )

    def on_every_operator(self) -> Matches:
        """Return the statements on every operator, which are about making a tensor."""
        return Matches(tuple(each for each in self.answers if EVERY_OPERATOR in each[0].ops))

    def without_kernel(self) -> Matches:
        """Return the statements that concern an operator without a kernel of its own."""
        return Matches(tuple(each for each in self.answers if not each[0].on_every_kernel))


def match(statements: Iterable[Statement], call: OpCall, target: Target, arguments: Arguments | None = None) -> Matches:
    """Return whether each statement applies to the call; None where the recorded call does not decide it.

    The caller has checked that the statements name the call's operator.

    Args:
        statements: the statements.
        call: the call; a call without tensors represents any call of its operator.
        target: the torch release and the macOS version.
        arguments: the arguments of the operator's schema, for their defaults.
    """
    # The call is kept alongside its id, which another object gets after the call's end.
    entry = _RECENT.get(id(call))
    if entry is None or entry[0] is not call:
        if len(_RECENT) >= _MOST_CALLS:
            _RECENT.clear()
        entry = _RECENT[id(call)] = (call, {})
    answered = entry[1]
    answers: list[tuple[Statement, bool | None]] = []
    for statement in statements:
        if target.macos not in statement.macos or target.torch not in statement.torch:
            answers.append((statement, False))
            continue
        answer = answered.get(id(statement))
        if answer is None or answer[0] is not statement:
            answer = answered[id(statement)] = (statement, matches_call(statement, call, arguments))
        answers.append(answer)
    return Matches(tuple(answers))


#: the id() of a statement -> the statement, and whether it applies to the call
Answers = dict[int, tuple[Statement, bool | None]]
#: How many calls' answers are kept.
_MOST_CALLS = 256
#: The answers of recent calls by the id() of the call: a few calls are judged on many targets in a row.
_RECENT: dict[int, tuple[OpCall, Answers]] = {}


def holds_but_for_words(statement: Statement, call: OpCall, arguments: Arguments | None = None) -> bool:
    """Return whether dtypes and condition of the statement apply to the call, without regard to ``when``."""
    return bool(_matches_dtype(statement, call) and _matches_condition(statement, call, arguments or {}))


def matches_call(statement: Statement, call: OpCall, arguments: Arguments | None) -> bool | None:
    """Return whether the statement applies to the call on any target; None: undecided."""
    parts = [_matches_dtype(statement, call), _matches_condition(statement, call, arguments or {})]
    if False in parts:
        return False
    # Code cannot evaluate the words of ``when``, which are a second condition.
    return None if None in parts or statement.when else True


def _matches_dtype(statement: Statement, call: OpCall) -> bool | None:
    if not statement.dtypes:
        return True
    tensors = (*call.inputs, *call.outputs)
    if not tensors:
        return None
    if statement.dtypes_of:
        named = {spec.argument for spec in call.inputs}
        if RESULT not in statement.dtypes_of and named <= {""}:
            return None
        tensors = tuple(spec for spec in call.inputs if spec.argument in statement.dtypes_of)
        if RESULT in statement.dtypes_of:
            tensors += call.outputs[:1]
    return any(spec.dtype in statement.dtypes for spec in tensors if spec.device == "mps")


def _matches_condition(statement: Statement, call: OpCall, arguments: Arguments) -> bool | None:
    condition = statement.parsed
    if condition is None:
        return True
    return condition.evaluate(values(call, condition.names, arguments))


def values(call: OpCall, names: Collection[str], arguments: Arguments) -> Mapping[str, Any]:
    """Return the values of a condition's names, as far as the recorded call has them.

    An argument that the call omits has its default; ``result`` is the first tensor that the call
    returns on MPS.
    """
    given: dict[str, Any] = {}
    for name in names:
        if name == RESULT:
            results = [spec for spec in call.outputs if spec.device == "mps"] or call.outputs
            if results:
                given[RESULT] = results[0]
            continue
        if name == RECOMPUTED:
            given[RECOMPUTED] = call.recomputed
            continue
        tensors = tuple(spec for spec in call.inputs if spec.argument == name)
        declared = arguments.get(name)
        if tensors:
            is_list = (declared is not None and declared.tensors) or len(tensors) > 1
            given[name] = tensors if is_list else tensors[0]
        elif name in call.arguments:
            value = call.arguments[name]
            given[name] = _number(value) if isinstance(value, str) else value
        elif declared is not None and declared.optional and (call.inputs or call.outputs):
            default = declared.default
            given[name] = tuple(default) if isinstance(default, list) else default
    return given


def _number(word: str) -> str | float | complex:
    """Return the number that a word replaces, because JSON cannot write it; other words as they are."""
    try:
        return complex(word) if COMPLEX.fullmatch(word) else ENDLESS.get(word, word)
    except ValueError:
        return word
