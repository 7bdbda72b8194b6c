"""What computes a call on MPS in a release.

``routes.json`` has it for each kernel, read from the wheels by scripts/read_routes.py; ``routes.yaml`` says by which
condition a kernel with several ways chooses.
"""

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

from opcheck.common.memo import cached_method
from opcheck.common.versions import Span, Target, Version
from opcheck.common.vocabulary import RouteKind
from opcheck.data import composites
from opcheck.data.conditions import ConditionError, parse
from opcheck.data.history import History, by_version, expand
from opcheck.data.matching import values
from opcheck.data.registrations import OpLists
from opcheck.data.strict_yaml import Document
from opcheck.data.tables import SCHEMA, ListFile
from opcheck.model.records import OpCall, Record

_NO_ROUTES = History(schema=SCHEMA, namespace="aten", key="routes", operators={})
TABLE = ListFile("routes.json", History, made_by="python -m scripts.read_routes", missing=_NO_ROUTES)
#: What a kernel can reach: MPSGraph; a kernel of PyTorch's own Metal libraries; Metal Performance Shaders (MPSMatrix,
#: MPSNDArray); a copy by blit; the CPU.
KINDS: tuple[RouteKind, ...] = ("graph", "metal", "mps", "copy", "cpu")
#: The values of a kernel that does no work, that only calls other operators, and that could not be followed.
VIEW, CALLS, UNKNOWN = "view", "calls", "unknown"
#: Operators that make, view or copy memory for the kernel that calls them: they do not decide its route.
_BOOKKEEPING = re.compile(
    r"as_strided|clone|contiguous|copy_|detach|empty(?:_like|_strided)?|expand(?:_as)?|fill_|flatten|item|m[HT]|movedim|"
    r"narrow|permute|reshape|resize_(?:as_)?|resolve_conj|result_type|scalar_tensor|select|set_|slice|split|"
    r"(?:un)?squeeze_?|t|to|transpose_?|view(?:_as)?|zero_|zeros(?:_like)?|_to_copy|_local_scalar_dense|"
    r"(?:sparse|dense)_dim|can_cast"
)
#: What a copy between tensors on MPS comes to (aten/src/ATen/native/Copy.cpp, copy_impl).
_COPY = "aten::_copy_from"


#: the kinds of a kernel, and how the names of its Metal kernels begin
_Reached = tuple[frozenset[RouteKind], tuple[str, ...]]


class KernelRoute(NamedTuple):
    """What computes an overload, or a single call."""

    kind: RouteKind
    #: of ``either`` the ways that the kernel has
    ways: tuple[RouteKind, ...] = ()
    #: how the names of its Metal kernels begin
    kernels: tuple[str, ...] = ()


class RouteWay(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The calls that go one of the ways of a kernel."""

    macos: Span = Span()
    #: an expression over the arguments, as in the curated statements; by default each call that no way above takes
    condition: str = "True"
    #: ``either``: something chooses that no call records, such as the chip
    route: RouteKind
    #: the overload that the kernel calls on this way
    through: str = ""


class RouteChoice(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of ``routes.yaml``: how the kernel of some overloads chooses among its ways."""

    ops: tuple[str, ...]
    torch: Span = Span()
    #: the rule in words
    summary: str
    #: the file, the functions and the releases that it was read in
    source: str
    #: tried in their order
    ways: tuple[RouteWay, ...]


class RouteChoices(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``routes.yaml``."""

    schema: int
    choices: tuple[RouteChoice, ...] = ()


def _check(document: Document, content: RouteChoices) -> None:
    for index, choice in enumerate(content.choices):
        for number, way in enumerate(choice.ways):
            try:
                parse(way.condition)
            except ConditionError as error:
                document.report(("choices", index, "ways", number, "condition"), str(error))


_NO_CHOICE = RouteChoice(ops=(), summary="", source="", ways=())
CHOICES = ListFile("routes.yaml", RouteChoices, check=_check, missing=RouteChoices(schema=SCHEMA))


class KernelRoutes:
    """The table of one copy of the op lists."""

    def __init__(self, lists: OpLists, directory: Path | None = None) -> None:
        self._lists, self._directory = lists, directory
        self._lines = tuple(release.line for release in lists.releases)
        self._rows = TABLE.load(directory).operators

    @cached_method
    def of_operators(self, ops: tuple[str, ...], line: str) -> KernelRoute:
        """Return what computes several overloads in a row, such as those that a composite calls.

        A view or a copy beside the work does not count; a part without data leaves the whole unknown.

        Raises:
            OpListError: the lists have no such release, or are damaged.
        """
        read = [self._read(op, line, frozenset()) for op in ops]
        kinds = set[RouteKind]().union(*(kinds for kinds, _ in read))
        kernels = tuple(sorted({name for _, names in read for name in names}))
        counted = kinds - {"view"} or kinds
        counted = counted - {"copy"} or counted
        if not counted or "unknown" in counted:
            return KernelRoute("unknown")
        if len(counted) == 1:
            return KernelRoute(next(iter(counted)), kernels=kernels)
        return KernelRoute("either", tuple(kind for kind in KINDS if kind in counted), kernels)

    def of_call(self, call: OpCall, target: Target) -> RouteKind:
        """Return what computes a call whose kernel runs on MPS.

        Raises:
            OpListError: the lists have no such release, or are damaged.
        """
        line = str(target.torch)
        is_kernel = self._lists.resolve(call.op, line).status == "native"
        route = self.of_operators((call.op,) if is_kernel or not call.inner else call.inner, line)
        ways, statements = route.ways, self._lists.statements
        if any(each.effect == "falls_back" for each in statements.for_op(call.op, line)):
            # No such statement holds for this call, or the call would count as one of the CPU's.
            ways = tuple(kind for kind in ways if kind != "cpu")
        if len(ways) <= 1:
            return ways[0] if ways else route.kind
        arguments = statements.arguments.get(call.op, {})
        for way in self._choice(call.op, line).ways:
            condition = parse(way.condition)
            holds = target.macos in way.macos and condition.evaluate(values(call, condition.names, arguments))
            if holds is not False:
                return way.route if holds else "either"
        return "either"

    def choice_of(self, op: str, target: Target) -> str:
        """Return how the kernel of an overload chooses among its ways on a target, in words; empty: unknown."""
        return self._choice(op, str(target.torch)).summary

    @cached_method
    def _choice(self, op: str, line: str) -> RouteChoice:
        """Return the entry on an overload in a release."""
        release, choices = Version.parse(line), CHOICES.load(self._directory).choices
        here = (each for each in choices if op in each.ops and release in each.torch)
        return next(here, _NO_CHOICE)

    def _read(self, op: str, line: str, above: frozenset[str]) -> _Reached:
        """Return the kinds of a kernel, or of those that it calls, and its Metal kernels."""
        resolved = self._lists.resolve(op, line)
        if resolved.status == "fallback":
            return frozenset({"cpu"}), ()
        last = resolved.chain[-1]
        if resolved.status == "composite":
            if not is_bookkeeping(last):
                body = composites.body(last, line)
                usual = (body.always or body.sometimes) if body else ()
                return self._union(usual, line, above | {op})
            last = _COPY
        word, _, names = self._values(last).get(line, UNKNOWN).partition(":")
        ways = self._choice(last, line).ways
        if word != CALLS and above and ways and "+" in word:
            # What another kernel calls goes its usual way, which is the last one.
            return frozenset({ways[-1].route}), tuple(names.split())
        if word != CALLS:
            kinds, kernels = _kinds(word), tuple(names.split())
            chosen = {way.route for way in ways}
            if ways and ways[-1].condition == "True" and "either" not in chosen:
                # Code that this overload never comes to is no way of it.
                kinds &= chosen
        else:
            called = [name for name in names.split() if "::" in name]
            computing = [name for name in called if not is_bookkeeping(name)]
            # A kernel that only prepares memory and calls nothing that computes was not followed to its work.
            computing = computing or called * (len(called) == 1)
            kinds, kernels = self._union(computing, line, above | {op})
        through = [self._values(way.through).get(line, UNKNOWN) for way in ways if way.through]
        return kinds.union(*map(_kinds, through)), kernels

    @cached_method
    def _values(self, op: str) -> dict[str, str]:
        """Return what the table has for a kernel, by release."""
        row = self._rows.get(op, ())
        # The lists may have fewer releases than the table.
        return expand(row, by_version({*(at for at, _ in row), *self._lines}))

    def _union(self, ops: Iterable[str], line: str, above: frozenset[str]) -> _Reached:
        """Return what the overloads compute by, without their callers; unknown where none is left."""
        read = [self._read(name, line, above) for name in ops if name not in above]
        if not read:
            return frozenset({"unknown"}), ()
        return frozenset().union(*(kinds for kinds, _ in read)), tuple(name for _, kernels in read for name in kernels)


def _kinds(value: str) -> frozenset[RouteKind]:
    return frozenset(cast("list[RouteKind]", value.partition(":")[0].split("+")))


def is_bookkeeping(op: str) -> bool:
    """Return whether an operator only makes, views or copies memory for the kernel that calls it."""
    return bool(_BOOKKEEPING.fullmatch(op.partition("::")[2].partition(".")[0]))


@functools.cache
def routes(lists: OpLists) -> KernelRoutes:
    """Return the table that belongs to the op lists; it is read once.

    Raises:
        OpListError: the data file is damaged.
    """
    return KernelRoutes(lists)
