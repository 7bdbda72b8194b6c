"""Threads that the program starts: torch's modes are each thread's own, so that they are entered there, too."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from opcheck.simulator.dispatch_context import FLIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Modes = Callable[[], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def followed_threads(modes: Modes) -> Iterator[None]:
    """Run each thread that is started inside of the block under what ``modes`` makes.

    What is known of the call in flight is each thread's own; the target is that of the thread that started it.
    """
    original = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        # Not Thread.run: subclasses have one of their own.
        run, refuse, ask = thread.run, FLIGHT.refuse, FLIGHT.ask

        def simulated() -> Any:
            FLIGHT.refuse, FLIGHT.ask = refuse, ask
            with modes():
                return run()

        thread.run = simulated  # type: ignore[method-assign]
        original(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]
