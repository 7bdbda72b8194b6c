"""Answer what the releases do with an operator, on which macOS, for which dtype."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import get_args

import msgspec
from msgspec.structs import replace

from opcheck.common.errors import UnknownTargetError, located_at
from opcheck.common.names import parse_dtype
from opcheck.common.picking import pick
from opcheck.common.tool import TOOL
from opcheck.common.versions import Target, Version, macos_note
from opcheck.common.vocabulary import Frequency, StatementSort
from opcheck.data.files import Release
from opcheck.data.kernel_routes import routes
from opcheck.data.registrations import OpLists, load
from opcheck.data.statement_model import Statement
from opcheck.data.targets import macos_of, macos_points, release_note, release_of
from opcheck.judge.judge import OUTCOMES
from opcheck.lookup.answer_records import Answer, Cell, Note, OverloadAnswer, RouteStep, State, find_since, first_native
from opcheck.lookup.notes import can_hold, limit_of, notes
from opcheck.lookup.operator_facts import COPIES, is_python
from opcheck.lookup.plain_call import BOOKKEEPING, COMMON_DTYPES, OperatorLookup, is_removed, spatial_of, target
from opcheck.lookup.query import Query, modes_of, resolve

_ISSUES = "https://github.com/pytorch/pytorch/issues/"
#: The issues in which PyTorch's users request operators; error texts name them (``messages.py``).  The
#: last lists the operators that most users request.
TRACKING = (f"{_ISSUES}77764", f"{_ISSUES}141287", f"{_ISSUES}154052")


def answer(
    query: str,
    torch: str | None = None,
    macos: str | None = None,
    dtype: str | None = None,
    *,
    lists: OpLists | None = None,
) -> Answer:
    """Return what each release does with a plain call of an operator.

    Args:
        query: ``aten::nonzero``, ``aten::isin.Tensor_Tensor_out``, ``torch.fft.rfft``, ``isin`` ...
        torch: the release; patch releases and nightlies are answered by the list of their line.
            Left out: all of them, the newest one being the target.
        macos: the macOS version.  Left out: all of them, the newest one being the target.
        dtype: the dtype of the call's tensors.  Left out: the first usual one that the operator takes.
        lists: the op lists; those that opcheck ships.

    Raises:
        UsageError: no such operator, dtype or version.
        UnknownTargetError: no list for the release, or it does not run on that macOS.
    """
    lookup = OperatorLookup(lists or load())
    meant = resolve(query, lookup.lists)
    asked = release_of(torch, lookup.lists) if torch else None
    note = release_note(torch, asked) if asked else ""
    system, releases = _scope(asked, macos, lookup.lists)
    with located_at("--dtype"):
        wanted = meant.dtype or (parse_dtype(dtype) if dtype else None)
    if meant.dtype:
        note = "; ".join(filter(None, (note, f"the name itself fixes the dtype {meant.dtype}")))
    dtypes = (wanted,) if wanted else COMMON_DTYPES
    only = system if macos is not None else None
    scope = _QuestionScope(lookup=lookup, releases=releases, system=system, only=only, dtype=wanted, dtypes=dtypes)
    overloads = _in_order(meant, scope)
    main, newest = overloads[0], releases[-1]
    every_line = (release.line for release in lookup.lists.releases)
    everywhere = past(main.name, every_line, system, lookup, wanted)
    return Answer(
        tool=TOOL,
        op=meant.asked,
        target={"torch": newest.line, "release": newest.torch, "asked": torch, "macos": system, "dtype": wanted},
        **pick(main, "dtypes", "status", "kind", "because", "route"),
        overload=main.name,
        limit=_limit(main, scope),
        wrong=_wrong(main),
        modes=_modes(meant.main, scope),
        overloads=overloads,
        first_native=first_native(everywhere, tuple(everywhere)),
        notes=tuple(filter(None, (note, macos_note(Version.parse(system))))),
        links=_links(overloads),
        op_lists={**lookup.about, "built": lookup.lists.releases[-1].built.isoformat()},
    )


class _QuestionScope(msgspec.Struct, frozen=True, kw_only=True):
    """The releases, the macOS version and the dtypes that a question covers."""

    lookup: OperatorLookup
    releases: tuple[Release, ...]
    system: str
    #: the macOS that was named
    only: str | None
    dtype: str | None
    dtypes: tuple[str, ...]

    @property
    def line(self) -> str:
        return self.releases[-1].line

    @property
    def aim(self) -> Target:
        return target(self.line, self.system)


def _scope(asked: Release | None, macos: str | None, lists: OpLists) -> tuple[str, tuple[Release, ...]]:
    """Return the macOS of the target and the releases that the question covers, the target's last.

    A macOS without a release selects the releases that start on it.
    """
    if asked is not None:
        return str(macos_of(macos, asked)), (asked,)
    if macos is None:
        return str(macos_of(None, lists.releases[-1])), lists.releases
    # The oldest release starts on the oldest macOS: what it refuses is none.
    system, starting = str(macos_of(macos, lists.releases[0])), [lists.releases[0]]
    for release in lists.releases[1:]:
        with contextlib.suppress(UnknownTargetError):
            system = str(macos_of(macos, release))
            starting.append(release)
    return system, tuple(starting)


def _in_order(meant: Query, scope: _QuestionScope) -> tuple[OverloadAnswer, ...]:
    """Return the main overload first, then the overloads that the target has, then the rest."""
    lookup = scope.lookup
    if is_python(meant.main):
        calls = lookup.operators.calls(meant.main, scope.line)
        answers = [_overload(op, scope) for op in (calls.both if calls else ())]
        # The worst call decides: it stands first.
        answers.sort(
            key=lambda answer: (-OUTCOMES[answer.status, answer.kind].severity, answer.name in BOOKKEEPING, answer.name)
        )
        return (_overload(meant.main, scope), *answers)
    existing = lookup.lists.operators(scope.line)
    ordered = sorted(meant.overloads, key=lambda op: (op != meant.main, op not in existing, op))
    return tuple(_overload(op, scope) for op in ordered)


def _overload(op: str, scope: _QuestionScope) -> OverloadAnswer:
    lookup, aim = scope.lookup, scope.aim
    dtype, verdict = lookup.plain(op, aim, scope.dtype)
    about = _possible(op, dtype, scope)
    states = past(op, lines_until(scope.line, lookup), scope.system, lookup, scope.dtype)
    steps = route_steps(op, states, lookup)
    limitations, advisories = (
        notes(about, sort, verdict, aim, scope.dtype, every_macos=not scope.only) for sort in get_args(StatementSort)
    )
    return OverloadAnswer(
        name=op,
        **pick(verdict, "status", "kind", "because", "confidence", "prints", "evidence"),
        dtype=dtype,
        dtypes=lookup.states(op, aim, scope.dtypes),
        since=find_since(states, tuple(states)) if states else scope.line,
        limitations=limitations,
        advisories=advisories,
        route=steps[-1].route if steps else "unknown",
        routes=steps,
        choice=routes(lookup.lists).choice_of(op, aim) if steps and steps[-1].ways else "",
        releases=cells(op, scope.releases, lookup, scope.dtype, only=scope.only),
    )


def route_steps(op: str, lines: Iterable[str], lookup: OperatorLookup) -> tuple[RouteStep, ...]:
    """Return what computes the overload: a step for each release that changes it."""
    steps: list[RouteStep] = []
    for line in lines:
        route = lookup.operators.route(op, line)
        step = RouteStep(torch=line, route=route.kind, ways=route.ways, kernels=route.kernels)
        if steps and steps[-1].is_like(step):
            # The kernels are those of the newest release.
            step = replace(step, torch=steps.pop().torch)
        steps.append(step)
    return tuple(steps)


def _limit(main: OverloadAnswer, scope: _QuestionScope) -> str:
    if main.status != "native":
        return ""
    usual = scope.lookup.operators.usual_statements(main.name, scope.line)
    possible = [each for each in _possible(main.name, main.dtype, scope) if each in usual]
    return limit_of(possible, scope.aim, main.dtype)


def _wrong(main: OverloadAnswer) -> tuple[Note, ...]:
    """Return what is wrong on the target where the call runs on MPS: the most frequent first, then the main dtype."""
    native = {name for name, state in main.dtypes.items() if state.status == "native"}
    frequencies = get_args(Frequency)

    def order(note: Note) -> tuple[int, bool, str]:
        return frequencies.index(note.frequency), main.dtype not in (note.dtypes or native), note.id

    faults = (each for each in (*main.limitations, *main.advisories) if each.effect == "wrong_result" and each.holds)
    return tuple(sorted((each for each in faults if native & {*(each.dtypes or native)}), key=order))


def _possible(op: str, dtype: str, scope: _QuestionScope) -> list[Statement]:
    """Return the statements that can hold for a call of the operator."""
    return [
        statement
        for statement in scope.lookup.operators.statements_on(op, scope.line)
        if can_hold(statement, spatial_of(op), dtype)
        # Python code passes no argument of its caller to the copies that it makes.
        and not (is_python(op) and statement.condition and COPIES.issuperset(statement.ops))
    ]


def _modes(function: str, scope: _QuestionScope) -> dict[str, State]:
    """Return the state of each mode of a function; of a mode with several operators, by their dimensions."""
    lookup, states = scope.lookup, {}
    for mode, operators in modes_of(function, lookup.lists).items():
        existing = [op for op in operators if lookup.operators.resolution(op, scope.line).value]
        for op in existing:
            dimensions = f" {spatial_of(op)}d" if len(existing) > 1 else ""
            states[mode + dimensions] = lookup.state(op, scope.aim, scope.dtype)
    return states


def cells(
    op: str, releases: Iterable[Release], lookup: OperatorLookup, dtype: str | None = None, *, only: str | None = None
) -> tuple[Cell, ...]:
    """Return what each release does, and from which macOS on; ``only`` restricts this to one macOS version."""
    kept: list[Cell] = []
    for release in releases:
        points = macos_points(release, lookup.operators.systems(op, release.line))
        for system in (only,) if only else points:
            cell = _cell(op, release.line, system, lookup, dtype)
            if not kept or replace(kept[-1], macos=system, dtype=cell.dtype) != cell:
                kept.append(cell)
    return tuple(kept)


def _cell(op: str, line: str, system: str, lookup: OperatorLookup, dtype: str | None) -> Cell:
    aim = target(line, system)
    used = dtype or lookup.default_dtype(op, aim)
    state, states = lookup.state(op, aim, used), lookup.states(op, aim, (dtype,) if dtype else COMMON_DTYPES)
    return Cell(torch=line, macos=system, status=state.status, kind=state.kind, dtype=used, dtypes=states)


def lines_until(last: str, lookup: OperatorLookup) -> tuple[str, ...]:
    """Return the release lines up to ``last``, the oldest first."""
    end = Version.parse(last)
    return tuple(str(line) for line in lookup.lists.versions if line <= end)


def past(
    op: str, lines: Iterable[str], system: str, lookup: OperatorLookup, dtype: str | None = None
) -> dict[str, State]:
    """Return the overload's state in each of these releases that has it, or that removed it."""
    has = (line for line in lines if lookup.operators.resolution(op, line).value is not None or is_removed(op, line))
    return {line: lookup.state(op, target(line, system), dtype) for line in has}


def _links(overloads: Sequence[OverloadAnswer]) -> tuple[str, ...]:
    notes = [note for each in overloads for note in (*each.limitations, *each.advisories)]
    tracking = TRACKING if any(each.status != "native" for each in overloads) else ()
    return tuple(dict.fromkeys((*(link for note in notes for link in note.links), *tracking)))
