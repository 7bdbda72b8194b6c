"""Follow each dtype that MPS refuses along the captured calls, from where it begins to the first call that fails.

The failing line is rarely the cause: a float64 tensor is made by NumPy, a default dtype or a buffer, passes
calls, and is refused where it meets MPS.  An origin is what is to be changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from opcheck.data.statement_model import Statement
from opcheck.judge.texts import BEGINS, VIEWS
from opcheck.model.records import (
    TRAITS,
    WATCHED,
    Birth,
    OpCall,
    Record,
    SourceLocation,
    TensorSpec,
    Trace,
    Trait,
    Verdict,
)

#: The most origins that are followed for one tensor; it may be computed from very many.
_MOST_ORIGINS = 16

#: How a call on MPS begins a dtype, by the prefix of its name; the first prefix that fits counts.
_BIRTHS: dict[str, str] = {prefix: how for how, prefixes in BEGINS.items() for prefix in prefixes}
#: Registered for MPS, and yet no kernel runs: they make another view of the memory (native/TensorShape.cpp,
#: native/ComplexHelper.h).  A statement that may apply to a kernel for the dtype does not apply to them.
_VIEWS = frozenset(VIEWS)


class Origin(Record, frozen=True, kw_only=True):
    """One place where a followed dtype begins, and what becomes of it on the target."""

    #: name of a TRAITS entry
    trait: str
    dtype: str
    #: a key of BIRTHS (judge/rules/dtype_origins.py has the words for each)
    how: str
    #: what made it, as it is written: ``torch.from_numpy``, ``aten::polar`` ...
    api: str = ""
    location: SourceLocation | None = None
    #: names of the parameters, buffers or inputs that begin here
    names: tuple[str, ...] = ()
    #: calls that it passes, and their lines in order of first use
    calls: int = 0
    path: tuple[SourceLocation, ...] = ()
    #: indices in the trace of the calls that fail or narrow for its dtype, in order
    failing: tuple[int, ...] = ()
    #: whether the first of them certainly fails or narrows; else it may, by a statement
    certain: bool = True
    #: ``raises`` or ``narrows``
    effect: str = ""


class _Path:
    """Collects the calls that an origin passes while the walk follows it."""

    def __init__(self, trait: str, birth: Birth) -> None:
        self.trait, self.birth = trait, birth
        self.names: dict[str, None] = dict.fromkeys([birth.name] if birth.name else [])
        self.calls: dict[int, None] = {}
        self.lines: dict[SourceLocation, None] = {}
        self.failing: dict[int, str] = {}
        self.perhaps: dict[int, str] = {}


def origins(trace: Trace, verdicts: Sequence[Verdict], statements: Mapping[str, Statement]) -> tuple[Origin, ...]:
    """Return every origin, in the order of the first call that it meets.

    Args:
        trace: the calls, and the births that the capture saw on the CPU.
        verdicts: of the calls, in their order.
        statements: the curated statements by id; some are about a dtype.
    """
    walk = _Walk({birth.tensor: birth for birth in trace.births}, statements)
    for index, (call, verdict) in enumerate(zip(trace.calls, verdicts, strict=True)):
        walk.step(index, call, verdict)
    return tuple(map(_finish, walk.paths.values()))


class _Walk:
    def __init__(self, births: Mapping[int, Birth], statements: Mapping[str, Statement]) -> None:
        self.births = births
        self.statements = statements
        self.paths: dict[object, _Path] = {}
        #: for each trait, the paths that lead to a tensor
        self.of_tensor: dict[tuple[str, int], tuple[_Path, ...]] = {}

    def step(self, index: int, call: OpCall, verdict: Verdict) -> None:
        """Follow the tracked dtypes through one call."""
        specs = (*call.inputs, *call.outputs)
        dtypes = WATCHED.intersection(spec.dtype for spec in specs)
        for trait in TRAITS if dtypes else ():
            if dtypes.isdisjoint(trait.dtypes):
                continue
            inputs = [spec for spec in call.inputs if spec.dtype in trait.dtypes]
            outputs = [spec for spec in call.outputs if spec.dtype in trait.dtypes]
            through = self._through(trait, call, inputs, outputs)
            for spec in outputs:
                self.of_tensor[trait.name, spec.tensor] = through
            if any(spec.device == "mps" for spec in specs):
                self._note(index, call, verdict, trait, through)

    def _through(
        self, trait: Trait, call: OpCall, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> tuple[_Path, ...]:
        paths: dict[int, _Path] = {}
        for spec in inputs:
            known = self.of_tensor.get((trait.name, spec.tensor))
            unseen = known is None and spec.tensor not in self.births and call.phase != "move"
            if unseen and self._stopped_before(call):
                # Its origin was not seen, and the program has failed before it is used: it is no further cause.
                continue
            if known is None:
                birth = self.births.get(spec.tensor) or _unseen(spec, call)
                known = self.of_tensor[trait.name, spec.tensor] = (self._path(trait, birth),)
            paths.update((id(path), path) for path in known)
        if not inputs and not self._stopped_before(call):
            made = self._path(trait, _born_in(call, outputs[0], trait))
            paths[id(made)] = made
        return tuple(paths.values())[:_MOST_ORIGINS]

    def _stopped_before(self, call: OpCall) -> bool:
        """Return whether the program would never reach this call because an input has failed already."""
        keys = ((trait.name, spec.tensor) for trait in TRAITS for spec in call.inputs)
        return any(path.failing for key in keys for path in self.of_tensor.get(key, ()))

    def _path(self, trait: Trait, birth: Birth) -> _Path:
        """Return the path of this origin; tensors that one line makes in the same way share a path."""
        # Without a line, all that begins in the same way is one origin: a module that is cast has many parameters.
        key = (trait.name, birth.how, birth.api, birth.dtype, str(birth.location or ""))
        path = self.paths.setdefault(key, _Path(trait.name, birth))
        if birth.name:
            path.names.setdefault(birth.name)
        return path

    def _note(self, index: int, call: OpCall, verdict: Verdict, trait: Trait, through: Iterable[_Path]) -> None:
        certain = effect(verdict, trait, self.statements, certain=True)
        perhaps = effect(verdict, trait, self.statements, certain=False)
        for path in through:
            path.calls.setdefault(index)
            if call.location is not None:
                path.lines.setdefault(call.location)
            if certain:
                path.failing[index] = certain
            elif perhaps and call.op not in _VIEWS and call.inner != ():
                path.perhaps[index] = perhaps


def effect(verdict: Verdict, trait: Trait, statements: Mapping[str, Statement], *, certain: bool) -> str:
    """Return what a call does to a tensor because of its dtype: ``raises``, ``narrows``, or an empty text.

    Args:
        verdict: of the call.
        trait: whose dtypes count.
        statements: the curated statements by id.
        certain: by the statements that certainly apply alone; else also by those that may apply.
    """
    # Those that certainly apply are among the evidence.
    evident = tuple(entry.detail for entry in verdict.evidence if entry.kind == "limitation")
    ids = evident if certain else verdict.limitations
    effects = {statement.effect for statement in speaking(ids, trait, statements)}
    if effects & {"raises", "aborts"}:
        return "raises"
    return "narrows" if effects & {"narrows"} else ""


def speaking(ids: Iterable[str], trait: Trait, statements: Mapping[str, Statement]) -> tuple[Statement, ...]:
    """Return the statements among these ids that are about a dtype of the trait."""
    about = (statements[name] for name in ids if name in statements)

    def is_about(statement: Statement) -> bool:
        of_any = trait.name == "complex" and not statement.dtypes and "is_complex" in statement.condition
        return of_any or not trait.dtypes.isdisjoint(statement.dtypes)

    return tuple(filter(is_about, about))


def _unseen(spec: TensorSpec, call: OpCall) -> Birth:
    """Return the birth of a tensor that existed before the first call; the call that moves it gives its name."""
    if call.phase != "move":
        return Birth(tensor=spec.tensor, dtype=spec.dtype, how="before", location=call.location)
    # These are the names of the arguments that the model is called with (capture/child/move.py).
    how = "input" if call.module.startswith(("args[", "kwargs[")) else "moved"
    return Birth(tensor=spec.tensor, dtype=spec.dtype, how=how, name=call.module)


def _born_in(call: OpCall, output: TensorSpec, trait: Trait) -> Birth:
    how = next((how for start, how in _BIRTHS.items() if call.op.startswith(start)), "")
    if not how and call.arguments.get("dtype") is not None:
        how = "dtype_given"
    elif not how and any(spec.device == "mps" and spec.shape for spec in call.inputs):
        how = "python_complex" if trait.name == "complex" else "promotion"
    how = how or "default_dtype"
    return Birth(tensor=output.tensor, dtype=output.dtype, how=how, api=call.op, location=call.location)


def _finish(path: _Path) -> Origin:
    failing = path.failing or path.perhaps
    return Origin(
        **{name: getattr(path.birth, name) for name in ("dtype", "how", "api", "location")},
        trait=path.trait,
        names=tuple(path.names),
        calls=len(path.calls),
        path=tuple(path.lines),
        failing=tuple(sorted(failing)),
        certain=bool(path.failing),
        effect=failing[min(failing)] if failing else "",
    )


def reportable(origins: Iterable[Origin]) -> Iterator[Origin]:
    """Yield the origins that reach a call which fails or narrows, each tensor by its gravest trait only."""
    reported: set[object] = set()
    for origin in origins:
        key = (origin.how, origin.api, str(origin.location), origin.names)
        if origin.failing and key not in reported:
            reported.add(key)
            yield origin
