"""Records operator calls as they happen, with the module and the line of the user's code that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opcheck.capture.guessed import Guessed, asker, only_checks
from opcheck.capture.tensor_log import TensorLog, TraceEntry
from opcheck.model.records import Problem, SourceLocation
from opcheck.simulator.tensor import is_on_mps
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.source_locations import locate
from opcheck.tracing.torch_private.modules import Dropout, buffers_of, parameters_of

if TYPE_CHECKING:
    from types import CodeType

    from opcheck.capture.dtype_origins import Births
    from opcheck.simulator.calls import Call

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

    def record(self, call: Call) -> None:
        """Keep one leaf call.

        Raises:
            TooManyCallsError: MAX_CALLS are kept already.
        """
        if len(self.calls) >= MAX_CALLS:
            message = f"the run made more than {MAX_CALLS:,} operator calls and was ended"
            raise TooManyCallsError(message)
        self.calls.append(TraceEntry(self.tensors.keep(call), *self.sites.here()))

    def asked(self, operator: str) -> int:
        """How often this line, in this module, has asked for unknown values by ``operator``."""
        guess = self.guesses.get((operator, *self.sites.here()[:2]))
        return guess.count if guess else 0

    def guess(self, operator: str, answer: Any) -> None:
        """Count an answer that was made up.

        Raises:
            LoopsOnGuessError: one line asked more often than MAX_GUESSES.
        """
        key = (operator, *self.sites.here()[:2])
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

    def place(self, entry: TraceEntry) -> tuple[SourceLocation | None, str]:
        """The line and the module of a call; in a graph that is run again, those of its node."""
        return self.sites.locate(entry.site, entry.module)

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

    def uncalled(self, root: torch.nn.Module) -> tuple[str, ...]:
        """The modules that neither ran nor had a tensor of theirs used by another's code.

        Modules that do nothing outside of training (dropout, identity) are not worth a word.
        """
        used = {ref.number for entry in self.calls for ref in entry.call.inputs}
        return tuple(
            name
            for name, module in root.named_modules()
            if name
            and id(module) not in self.sites.modules.called
            # TorchScript's interpreter calls the modules inside of one.
            and not isinstance(module, torch.jit.ScriptModule)
            and type(module).forward is not torch.nn.Module.forward
            and not isinstance(module, _IDLE)
            and not any(
                is_on_mps(tensor) and tensor._mps.number in used
                for tensor in (*parameters_of(module).values(), *buffers_of(module).values())
            )
        )
