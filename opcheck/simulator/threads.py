"""Enter torch's modes in the threads that the program starts, because each thread has its own modes."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from opcheck.common.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Modes = Callable[[], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def followed_threads(modes: Modes) -> Iterator[None]:
    """Run each thread that is started in the block under the modes that ``modes`` makes.

    The dispatch context of the simulation has values of its own in each thread.
    """
    original = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        # Not Thread.run: subclasses have one of their own.
        run = thread.run

        def simulated() -> Any:
            with modes():
                return run()

        thread.run = simulated  # type: ignore[method-assign]
        original(thread)

    with replaced([(threading.Thread, "start", start)]):
        yield
