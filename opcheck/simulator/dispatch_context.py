"""What is known of the API call that is being executed, for the operators that C++ calls inside of it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from opcheck.common.versions import Target, Version
from opcheck.simulator.target_queries import Questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _nobody(_func: Any, _args: tuple[Any, ...], _identity: str, text: str) -> None:
    raise RuntimeError(text)


class Flight(threading.local):
    """Where temporaries belong, and in which precision.

    C++ makes its temporaries with ``x.options()``, which says ``cpu`` for a simulated tensor: inside an API call
    with an argument on MPS and no ``device=`` of the user's, a factory for the CPU is one for MPS.  While autograd's
    engine runs and calls nothing of the program's, the node tells (simulator/nodes.py).
    """

    def __init__(self) -> None:
        #: asks the target
        self.ask = Questions(Target(torch=Version(0, 0), macos=Version(0, 0)))
        self.on_mps = False
        #: autograd's engine is running, and no API call of the program's inside of it
        self.engine = False
        #: takes an operator, its arguments, an id and a text: a refusal that only a twin can see
        self.refuse: Callable[[Any, tuple[Any, ...], str, str], None] = _nobody
        #: takes note of one more guess; None as long as nothing was guessed
        self.guess: Callable[[str, str], None] | None = None
        #: the program itself detaches: elsewhere C++ does, to make a variable or to save one for backward, which
        #: goes through the dispatcher for tensors with a Python key only (TensorImpl::shallow_copy_and_detach).
        self.detaches = False
        #: the program gave a generator of the CPU to a call that draws on MPS.
        self.draws_on_cpu = False
        #: operators that C++ calls for the CPU alone
        self.hides: frozenset[str] = frozenset()
        #: C++ takes float32 where it takes float64 on other devices.
        self.narrows = False

    @contextlib.contextmanager
    def set(
        self, *, on_mps: bool, narrows: bool | None = None, hides: frozenset[str] | None = None
    ) -> Iterator[None]:
        """For the time of one call."""
        before = (self.on_mps, self.narrows, self.hides, self.engine)
        self.on_mps, self.engine = on_mps, False
        self.hides = self.hides if hides is None else hides
        self.narrows = self.narrows if narrows is None else narrows
        try:
            yield
        finally:
            self.on_mps, self.narrows, self.hides, self.engine = before

    @contextlib.contextmanager
    def of_engine(self) -> Iterator[None]:
        """While autograd's engine runs."""
        before = (self.on_mps, self.engine)
        self.on_mps, self.engine = False, True
        try:
            yield
        finally:
            self.on_mps, self.engine = before


#: One simulation at a time: the registrations that it needs are the process's too.
FLIGHT = Flight()
