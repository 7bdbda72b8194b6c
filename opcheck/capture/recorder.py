"""Takes the calls as they happen, with the module and the line of the user's code that made them."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.capture.backward import ENGINE, Trail
from opcheck.capture.guessed import Guessed, asker, only_checks
from opcheck.capture.source_locations import innermost, is_user_code, locate
from opcheck.capture.tensor_log import KeptCall, Ledger
from opcheck.model.records import Problem, SourceLocation
from opcheck.simulator.tensor import is_on_mps
from opcheck.tracing.torch_private.modules import Dropout, buffers_of, lines_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

    from opcheck.capture.dtype_origins import Births
    from opcheck.simulator.dispatcher import Call

#: a guess is repeated at one line this often before the program is taken to loop on it.
MAX_GUESSES = 5_000

#: calls that are kept: a loop that does not end makes more, and turning them into a trace takes time, too.
MAX_CALLS = 200_000

_IDLE = (Dropout, torch.nn.Identity)


class Recorded(NamedTuple):
    """One call as it is kept while the program runs: cheap to make, turned into records later."""

    call: KeptCall
    site: tuple[CodeType, int] | None
    module: str
    phase: str


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
        self._caller = caller
        self.calls: list[Recorded] = []
        self.ledger = Ledger(self.calls, births)
        self.phase = "forward"
        self.guesses: dict[tuple[Any, ...], Guessed] = {}
        self.called: set[int] = set()
        #: the innermost module that an exception left
        self.raised_in = ""
        self._stack: list[Any] = []
        self._names: dict[int, str] = {}
        self._user: dict[CodeType, bool] = {ENGINE: True}
        self._trail: Trail[tuple[tuple[CodeType, int] | None, str]] = Trail((None, ""))
        self._graphs: dict[CodeType, torch.fx.GraphModule] = {}

    def record(self, call: Call) -> None:
        """Keep one leaf call.

        Raises:
            TooManyCallsError: MAX_CALLS are kept already.
        """
        if len(self.calls) >= MAX_CALLS:
            message = f"the run made more than {MAX_CALLS:,} operator calls and was ended"
            raise TooManyCallsError(message)
        kept = self.ledger.keep(call)
        self.calls.append(Recorded(kept, *self._where()))

    def asked(self, operator: str) -> int:
        """How often this line, in this module, has asked for unknown values by ``operator``."""
        guess = self.guesses.get((operator, *self._where()[:2]))
        return guess.count if guess else 0

    def guess(self, operator: str, answer: Any) -> None:
        """Count an answer that was made up.

        Raises:
            LoopsOnGuessError: one line asked more often than MAX_GUESSES.
        """
        key = (operator, *self._where()[:2])
        guess = self.guesses.get(key)
        if guess is None:
            guess = self.guesses[key] = Guessed(
                operator, locate(key[1]), key[2], checks=only_checks(asker(), operator)
            )
        guess.count += 1
        guess.answers.setdefault(str(answer))
        if guess.count > MAX_GUESSES:
            message = (
                f"{operator} asked for unknown values {guess.count:,} times at one line, "
                f"and no answer ended that: {guess.said}"
            )
            raise LoopsOnGuessError(message)

    def place(self, entry: Recorded) -> tuple[SourceLocation | None, str]:
        """The line and the module of a call; in a graph that is run again, those of its node."""
        graph = self._graphs.get(entry.site[0]) if entry.site else None
        if graph is None or entry.site is None:
            return locate(entry.site), entry.module
        # torch/fx/graph.py: the lines of the generated code, counted from its def, by the nodes that they run.
        start = graph.code.partition("def ")[0].count("\n") + 1
        index = (lines_of(graph) or {}).get(entry.site[1] - start)
        if index is None:
            return None, entry.module
        node = list(graph.graph.nodes)[index]
        stack = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())
        path, kind = stack[-1]
        # torch/_export/utils.py: "@1" marks the second call of a module.
        name = path.partition("@")[0] or str(getattr(kind, "__name__", kind)).rpartition(".")[2]
        return innermost(node.stack_trace), name or entry.module

    def problems(self) -> tuple[Problem, ...]:
        """The guesses, as problems of the trace."""
        by_line: dict[tuple[str, str, SourceLocation | None], Guessed] = {}
        for guess in self.guesses.values():
            found = by_line.setdefault(
                (guess.operator, guess.said, guess.location),
                Guessed(guess.operator, guess.location, guess.module, checks=guess.checks),
            )
            found.count += guess.count
            found.answers.update(guess.answers)
        return tuple(found.problem() for found in by_line.values())

    @contextlib.contextmanager
    def follow_modules(self, root: torch.nn.Module) -> Iterator[None]:
        """Know, for the length of the block, which module of ``root`` is running."""
        # remove_duplicate=True: a shared module goes by the first of its names.
        self._names = {id(module): name for name, module in root.named_modules()}
        self._graphs = {
            type(module).forward.__code__: module
            for module in root.modules()
            if isinstance(module, torch.fx.GraphModule) and lines_of(module) is not None
        }
        stack, called = self._stack, self.called
        original = torch.nn.Module.__call__

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            stack.append(module)
            called.add(id(module))
            try:
                return original(module, *args, **kwargs)
            except BaseException:
                self.raised_in = self.raised_in or self._module()
                raise
            finally:
                stack.pop()

        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module.__call__ = original  # type: ignore[method-assign]

    def uncalled(self, root: torch.nn.Module) -> tuple[str, ...]:
        """The modules that neither ran nor had a tensor of theirs used by another's code.

        Modules that do nothing outside of training (dropout, identity) are not worth a word.
        """
        used = {ref.number for entry in self.calls for ref in entry.call.inputs}
        return tuple(
            name
            for name, module in root.named_modules()
            if name
            and id(module) not in self.called
            # TorchScript's interpreter calls the modules inside of one.
            and not isinstance(module, torch.jit.ScriptModule)
            and type(module).forward is not torch.nn.Module.forward
            and not isinstance(module, _IDLE)
            and not any(
                is_on_mps(tensor) and tensor._mps.number in used
                for tensor in (*parameters_of(module).values(), *buffers_of(module).values())
            )
        )

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Calls that no module of the model makes are of what has this name, for the length of the block."""
        self._stack.append(name)
        try:
            yield
        finally:
            self._stack.pop()

    def _where(self) -> tuple[tuple[CodeType, int] | None, str, str]:
        """Line, module and phase of the call that is being made."""
        site = self._site()
        in_engine = site is not None and site[0] is ENGINE
        place = self._trail.of_running_node() if in_engine else (site, self._module())
        # In the engine, too: the backward of a backward belongs to the same forward call.
        self._trail.note(place)
        return (*place, "backward" if in_engine else self.phase)

    def _module(self) -> str:
        if not self._stack:
            return ""
        module = self._stack[-1]
        if type(module) is str:
            return module
        # Of TorchScript the name of the class that it was made from.
        kind = getattr(module, "original_name", type(module).__name__)
        return self._names.get(id(module)) or str(kind)

    def _site(self) -> tuple[CodeType, int] | None:
        frame: FrameType | None = sys._getframe(2)
        user = self._user
        while frame is not None:
            code = frame.f_code
            if code is self._caller:
                return None
            known = user.get(code)
            if known is None:
                known = user[code] = code in self._graphs or is_user_code(code.co_filename)
            if known:
                return (code, frame.f_lineno)
            frame = frame.f_back
        return None
