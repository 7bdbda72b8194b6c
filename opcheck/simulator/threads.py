"""Enter torch's modes in the threads that the program starts, because each thread has its own modes."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from opcheck.common.replacing import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Modes = Callable[[], contextlib.AbstractContextManager[object]]


@contextlib.contextmanager
def followed_threads(modes: Modes) -> Iterator[None]:
    """Run each thread that is started in the block under the modes that ``modes`` makes.

    So runs what is submitted to a ThreadPoolExecutor, whose threads may be older.  The dispatch context of the
    simulation has values of its own in each thread.
    """
    original, submit_to = threading.Thread.start, ThreadPoolExecutor.submit
    here = threading.local()
    here.followed = True

    @contextlib.contextmanager
    def followed() -> Iterator[None]:
        if getattr(here, "followed", False):
            yield
            return
        here.followed = True
        try:
            with modes():
                yield
        finally:
            here.followed = False

    def start(thread: threading.Thread) -> None:
        # Not Thread.run: subclasses have one of their own.
        run = thread.run

        def simulated() -> Any:
            with followed():
                return run()

        thread.run = simulated  # type: ignore[method-assign]
        original(thread)

    def submit(pool: Any, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        def simulated(*given: Any, **named: Any) -> Any:
            with followed():
                return work(*given, **named)

        return submit_to(pool, simulated, *args, **kwargs)

    with replaced([(threading.Thread, "start", start), (ThreadPoolExecutor, "submit", submit)]):
        yield
