"""Keep the state of the running API call, for the operators that C++ calls inside it."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from opcheck.common.versions import Target, Version
from opcheck.simulator.target_reads import TargetQueries

#: takes an operator, its arguments, an id and a text
Refuse = Callable[[Any, tuple[Any, ...], str, str], None]


#: Marks the error of a refused call that is recorded.  To hold the error itself would hold the tensors of its frames.
RECORDED = "opcheck_recorded"
#: ... and the error of a call that this machine's CPU refuses; its value means that a Mac may compute the call.
OF_THIS_MACHINE = "opcheck_of_this_machine"


class DispatchContext(threading.local):
    """Records where C++'s temporaries belong, and their precision; each thread has its own values.

    C++ makes its temporaries with ``x.options()``, which states ``cpu`` for a simulated tensor: inside an API call
    with an argument on MPS and no ``device=`` of the user's, a factory for the CPU makes an MPS tensor.  While
    autograd's engine runs and calls nothing of the program's, the node decides
    (simulator/dispatch/gradient_devices.py).
    """

    def __init__(self, queries: TargetQueries, refuse: Refuse) -> None:
        #: answers the run's queries about its target
        self.ask = queries
        #: records a refusal that no registration shows
        self.refuse = refuse
        self.on_mps = False
        #: autograd's engine is running, and no API call of the program's inside of it
        self.in_engine = False
        #: reports one more assumption about unknown values; None as long as nothing was assumed
        self.report_guess: Callable[[str, str], None] | None = None
        #: returns the statement that a Mac raises this error, and its text, or None.  The run then goes on as if the
        #: call's tensors had been cast to float32.  Unset: the error ends the run, as on a Mac.
        self.find_refusal: Callable[[BaseException], tuple[str, str] | None] | None = None
        #: the program itself detaches: elsewhere C++ does, to make a variable or to save one for
        #: backward, which goes through the dispatcher for tensors with a Python key only
        #: (TensorImpl::shallow_copy_and_detach).
        self.detaches = False
        #: the program gave a generator of the CPU to a call that draws on MPS.
        self.draws_on_cpu = False
        #: operators that C++ calls for the CPU alone
        self.hidden: frozenset[str] = frozenset()
        #: C++ takes float32 where it takes float64 on other devices.
        self.narrows = False

    @contextlib.contextmanager
    def set(
        self, *, on_mps: bool, engine: bool = False, narrows: bool | None = None, hidden: frozenset[str] | None = None
    ) -> Iterator[None]:
        """Set these values for the length of one call."""
        before = (self.on_mps, self.narrows, self.hidden, self.in_engine)
        self.on_mps, self.in_engine = on_mps, engine
        self.hidden = self.hidden if hidden is None else hidden
        self.narrows = self.narrows if narrows is None else narrows
        try:
            yield
        finally:
            self.on_mps, self.narrows, self.hidden, self.in_engine = before


def _raise(_func: Any, _args: tuple[Any, ...], _identity: str, text: str) -> None:
    raise RuntimeError(text)


#: The contexts of the simulations that are entered, the innermost last.  One at a time answers,
#: because the registrations are the process's, too.  The first is for storages that outlive their
#: simulation.
_entered = [DispatchContext(TargetQueries(Target(torch=Version(0, 0), macos=Version(0, 0))), _raise)]


@contextlib.contextmanager
def make_current(context: DispatchContext) -> Iterator[None]:
    """Make ``current`` return this context for the length of the block."""
    _entered.append(context)
    try:
        yield
    finally:
        _entered.remove(context)


def current() -> DispatchContext:
    """Return the innermost context, for replacements on torch's own classes and modules; all else receives it."""
    return _entered[-1]
