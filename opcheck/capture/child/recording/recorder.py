"""The tensors of a run: their names while it runs, never the tensors, and how long their memory is held."""

import ast
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import msgspec
import torch

from opcheck.capture.child.recording.dtype_origins import Births
from opcheck.capture.word_lists import read_words
from opcheck.common.python_source import parse_source, source_line
from opcheck.common.vocabulary import MemoryOrigin, Phase
from opcheck.model.records import Birth, Lifetime, Problem, SourceLocation
from opcheck.simulator.dispatch.calls import Body, Call
from opcheck.simulator.dispatch.routes import Route
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import TensorMeta, spec_of
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.source_locations import Site, locate
from opcheck.tracing.torch_private.modules import Dropout, buffers_of, parameters_of

# -- names -----------------------------------------------------------------------------------------
#
# A tensor that the log held would outlive the program's own use of it: memory would grow, and the log could not know
# when the program gives it back.


class Ref(NamedTuple):
    """A tensor as it was when its call was recorded; the numbers of those on the CPU are below zero."""

    number: int
    storage: int
    spec: TensorMeta


class RecordedCall(NamedTuple):
    """A ``Call`` of the simulator without its tensors."""

    route: Route
    key: tuple[Any, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    body: Body
    refusal: tuple[str, str] | None
    #: as in ``Call``
    recomputed: bool = False

    @property
    def inner(self) -> tuple[str, ...] | None:
        """The overloads that a composite kernel calls; None where its body could not be followed."""
        return self.body.names


class TraceEntry(NamedTuple):
    """A call with its place: cheap to make while the program runs, turned into records later."""

    call: RecordedCall
    site: Site
    module: str
    phase: Phase


class Numbers:
    """Identities within one trace, counted from 1, so that two runs of a program give the same records."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], int] = {}

    def number(self, kind: str, identity: int) -> int:
        """Return the number of this tensor or storage; assign a new one where it has none."""
        return self._known.setdefault((kind, identity), len(self._known) + 1)


class TensorLog:
    """Names tensors, and notes when the program gives the memory of each back."""

    def __init__(self, calls: Sequence[object], births: Births | None = None) -> None:
        #: number of a storage -> how many calls were recorded when it was freed
        self.freed: dict[int, int] = {}
        self._calls = calls
        self._on_cpu: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self._count = 0
        self._births = births or Births()
        #: number of a tensor on the CPU -> how it was made, where that is worth knowing
        self.made: dict[int, Birth] = {}

    def keep(self, call: Call) -> RecordedCall:
        """Return the call without its tensors."""
        inputs = tuple([self.ref(tensor) for tensor in call.inputs])
        outputs = tuple([self.ref(tensor) for tensor in call.outputs])
        return RecordedCall(call.route, call.key, inputs, outputs, call.body, call.refusal, call.recomputed)

    def ref(self, tensor: torch.Tensor) -> Ref:
        """Return the name of a tensor; its memory is watched from here on."""
        if is_on_mps(tensor):
            state = tensor._mps
            memory = state.memory
            memory.watcher = self._gave_back
            return Ref(state.number, memory.number, state.spec)
        number = self._number(tensor)
        return Ref(number, number, spec_of(tensor, "cpu"))

    def _number(self, tensor: torch.Tensor) -> int:
        # An id is given again once its tensor is gone; an attribute of ours would be pickled with the tensor.
        state = self._on_cpu.get(id(tensor))
        if state is not None and state[0]() is tensor:
            return state[1]
        self._count += 1
        self._on_cpu[id(tensor)] = (weakref.ref(tensor), -self._count)
        if (maker := self._births.origin(tensor)) is not None:
            self.made[-self._count] = maker
        return -self._count

    def _gave_back(self, storage: int) -> None:
        self.freed[storage] = len(self._calls)

    def births(self, numbers: Numbers) -> Iterator[Birth]:
        """Yield how tensors of the CPU that came to a call were made, where that is worth knowing."""
        for number, result in self.made.items():
            yield msgspec.structs.replace(result, tensor=numbers.number("tensor", number))


# -- lifetimes -------------------------------------------------------------------------------------


class Placed(NamedTuple):
    """A tensor that was on MPS before the first call."""

    #: parameter, buffer, input
    kind: MemoryOrigin
    name: str
    nbytes: int


def lifetimes(
    calls: Sequence[TraceEntry],
    freed: Mapping[int, int],
    placed: Mapping[int, Placed],
    numbers: Numbers,
    before: int = 0,
) -> tuple[Lifetime, ...]:
    """Return a record for each storage on MPS, in the order of their allocation.

    Args:
        calls: as a Recorder keeps them.
        freed: the tensor log's: how many calls were recorded when a storage was freed.
        placed: what a Mover put on MPS, by the number of its storage.
        numbers: the identities in the trace's records.
        before: calls of the trace that are in front of the recorded ones.
    """
    first: dict[int, int] = dict.fromkeys(placed, 0)
    sizes: dict[int, int] = {storage: entry.nbytes for storage, entry in placed.items()}
    state: dict[TensorMeta, int] = {}
    for index, entry in enumerate(calls):
        # The inputs too: what was made outside of a recorded call is first seen there.
        for ref in (*entry.call.inputs, *entry.call.outputs):
            if ref.storage <= 0 or ref.storage in placed:
                continue
            first.setdefault(ref.storage, before + index)
            size = state.get(ref.spec)
            if size is None:
                size = state[ref.spec] = _extent(ref.spec)
            # A view reaches less far than its base; resize_ makes a storage larger.
            sizes[ref.storage] = max(size, sizes.get(ref.storage, 0))
    # What is given back after the last call was held by the program, not by the run.
    end = len(calls)
    return tuple(
        Lifetime(
            storage=numbers.number("storage", storage),
            nbytes=sizes[storage],
            first=index,
            freed=before + freed[storage] if freed.get(storage, end) < end else None,
            kind=placed[storage].kind if storage in placed else "result",
            name=placed[storage].name if storage in placed else "",
        )
        for storage, index in first.items()
    )


def _extent(spec: TensorMeta) -> int:
    """Return the bytes from the beginning of the storage to the end of the tensor."""
    if not spec.stride and spec.shape:
        return 0  # a layout without strides; none is simulated so far
    if 0 in spec.shape:
        return 0
    last = sum((size - 1) * step for size, step in zip(spec.shape, spec.stride, strict=True))
    return (spec.offset + last + 1) * spec.dtype.itemsize


# -- Records operator calls as they happen, with the module and the line of the user's code that made them --


# -- unknown values --------------------------------------------------------------------------------


#: different answers of one line that its problem names.
_ANSWERS_SHOWN = 3

_TORCH = Path(torch.__file__).parent
_OURS = str(Path(__file__).parents[3]) + os.sep
#: between the line that needs a value and the operator: they pass it to their callers.
_PASSED_ON = frozenset(
    str(_TORCH / name) for name in ("_tensor.py", "_ops.py", "overrides.py", "utils/_python_dispatch.py")
)

#: the same, function by function: torch/distributions/distribution.py, from 2.15 on.
_PASSED_ON_BY_NAME = frozenset({"_all_true_or_runtime_assert"})

#: operators that C++ only validates its arguments by, and the function that does:
#: native/SpectralOps.cpp, istft, is_scalar_tensor_true of the window's lowest value.
_CHECKS_IN_CPP = {"aten::equal": "istft("}

#: what a line may end in instead of ``raise``.
_RAISING = frozenset({"_assert", "_check", "_check_value", "_check_index", "fail"})

#: functions and classes that make pictures of values (diffusers 0.42.1, image_processor.py) or end the loop of
#: ``generate`` by them (transformers 5.23.0, generation/utils.py), and go no other way.
_GO_NO_OTHER_WAY = read_words("go_no_other_way")
#: what those loops keep the end in.
_LOOP_ENDS = frozenset({"this_peer_finished"})

#: a file and a line of it
Asker = tuple[str, int]


@dataclass(kw_only=True)
class Guessed:
    """The answers that one line was given in place of unknown values."""

    operator: str
    location: SourceLocation | None
    module: str
    #: the program goes no other way by them: it would raise, writes them out or ends a loop.
    checks: bool
    count: int = 0
    #: in the order of their first use
    answers: dict[str, None] = field(default_factory=dict)

    @property
    def answered(self) -> str:
        """The answers in words."""
        first = list(self.answers)[:_ANSWERS_SHOWN]
        return ", then ".join(first) + (", ..." if len(self.answers) > _ANSWERS_SHOWN else "")

    def problem(self) -> Problem:
        """Return the problem that reports these guesses."""
        return Problem(
            kind="value_check" if self.checks else "guess",
            message=f"{self.operator} requested values that a run on shapes does not have: "
            f"answered {self.answered}"
            + (f" ({self.count:,} times)" if self.count > 1 else "")
            + ("" if self.checks else "; the way and the shapes from here rest on that guess"),
            location=self.location,
            module=self.module,
            op=self.operator,
            answered=self.answered,
            count=self.count,
        )


def asker() -> Asker:
    """Return the code that needs a value now: the innermost line that is not passed through on the way."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        passed_on = code.co_filename in _PASSED_ON or code.co_name in _PASSED_ON_BY_NAME
        if not passed_on and not code.co_filename.startswith(_OURS):
            return code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0


def only_checks(asked: Asker, operator: str) -> bool:
    """Return whether a line needs values only to raise if they are bad, to write them, or to end a loop."""
    file, line = asked
    in_cpp = _CHECKS_IN_CPP.get(operator)
    if in_cpp is not None and in_cpp in source_line(file, line):
        return True
    return line in _checking_lines(file)


@functools.cache
def _checking_lines(file: str) -> frozenset[int]:
    numbers: set[int] = set()
    for node in ast.walk(parse_source(file)):
        if isinstance(node, _USES) and _only_uses(node):
            numbers.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.If) and _raises(node.body[-1]) and not node.orelse:
            numbers.update(range(node.lineno, (node.test.end_lineno or node.lineno) + 1))
    return frozenset(numbers)


#: Statements that may use values and go no other way by them.
_USES = (ast.Assert, ast.Assign, ast.ClassDef, ast.Expr, ast.FunctionDef)


def _only_uses(node: ast.stmt) -> bool:
    """Return whether a whole statement goes no other way by the values that it needs."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name in _GO_NO_OTHER_WAY
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Name) and each.id in _LOOP_ENDS for each in node.targets)
    return isinstance(node, ast.Assert) or _raises(node)


def _raises(node: ast.stmt) -> bool:
    if isinstance(node, ast.Raise):
        return True
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called = node.value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _RAISING


# -- calls -----------------------------------------------------------------------------------------


#: A guess is repeated at a line this often before the program is taken to loop on it.
MAX_GUESSES = 5_000

#: The most calls that are kept: an endless loop makes more, and turning them into a trace takes time, too.
MAX_CALLS = 200_000

_IDLE = (Dropout, torch.nn.Identity)


class TooManyCallsError(BaseException):
    """The program makes more calls than are kept."""


class LoopsOnGuessError(RuntimeError):
    """A line keeps asking for values that are not known."""


class Recorder:
    """A sink for the simulator that keeps every call."""

    def __init__(self, births: Births | None = None, caller: CodeType | None = None) -> None:
        """Start with no calls.

        Args:
            births: where CPU tensors of rare dtypes were made.
            caller: calls the program; the frames above it are not the program's.
        """
        self.sites = CallSites(caller)
        self.calls: list[TraceEntry] = []
        self.tensors = TensorLog(self.calls, births)
        self.guesses: dict[tuple[Any, ...], Guessed] = {}
        #: raises what a Mac raises at a call, where the program handles it
        self.raise_handled: Callable[[RecordedCall], None] | None = None

    def record(self, call: Call) -> None:
        """Keep one leaf call.

        Raises:
            TooManyCallsError: MAX_CALLS are kept already.
            RuntimeError, TypeError ...: what a Mac raises, where the program handles it.
        """
        if len(self.calls) >= MAX_CALLS:
            message = f"the run made more than {MAX_CALLS:,} operator calls and was ended"
            raise TooManyCallsError(message)
        kept = self.tensors.keep(call)
        if self.raise_handled is not None:
            self.raise_handled(kept)
        self.calls.append(TraceEntry(kept, *self.sites.here()))

    def count_requests(self, operator: str) -> int:
        """Return how often this line, in this module, has needed unknown values by ``operator``."""
        guess = self.guesses.get((operator, *self.sites.here()[:2]))
        return guess.count if guess else 0

    def guess(self, operator: str, answer: Any) -> None:
        """Count an answer that was made up.

        Raises:
            LoopsOnGuessError: one line made more queries than MAX_GUESSES.
        """
        key = (operator, *self.sites.here()[:2])
        guess = self.guesses.get(key)
        if guess is None:
            guess = self.guesses[key] = Guessed(
                operator=operator, location=locate(key[1]), module=key[2], checks=only_checks(asker(), operator)
            )
        guess.count += 1
        guess.answers.setdefault(str(answer))
        if guess.count > MAX_GUESSES:
            message = (
                f"{operator} requested unknown values {guess.count:,} times at one line, "
                f"and no answer ended that: {guess.answered}"
            )
            raise LoopsOnGuessError(message)

    def place(self, entry: TraceEntry) -> tuple[SourceLocation | None, str]:
        """Return the line and the module of a call; in a graph that is run again, those of its node."""
        return self.sites.locate(entry.site, entry.module)

    def problems(self) -> tuple[Problem, ...]:
        """Return the guesses, as problems of the trace."""
        by_line: dict[tuple[str, str, SourceLocation | None], Guessed] = {}
        for guess in self.guesses.values():
            guessed = by_line.setdefault(
                (guess.operator, guess.answered, guess.location), replace(guess, count=0, answers={})
            )
            guessed.count += guess.count
            guessed.answers.update(guess.answers)
        return tuple(guessed.problem() for guessed in by_line.values())

    def list_uncalled(self, root: torch.nn.Module) -> tuple[str, ...]:
        """Return the modules that neither ran nor had a tensor of theirs used by another's code.

        Modules that do nothing outside of training (dropout, identity) are not worth a word.
        """
        used = {ref.number for entry in self.calls for ref in entry.call.inputs}
        return tuple(
            name
            for name, module in root.named_modules()
            if name
            and id(module) not in self.sites.modules.called
            # TorchScript's interpreter calls its inner modules.
            and not isinstance(module, torch.jit.ScriptModule)
            and type(module).forward is not torch.nn.Module.forward
            and not isinstance(module, _IDLE)
            and not any(
                is_on_mps(tensor) and tensor._mps.number in used
                for tensor in (*parameters_of(module).values(), *buffers_of(module).values())
            )
        )
