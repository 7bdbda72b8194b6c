"""Work that is shared between copies of this process."""

import os
import pickle
from collections.abc import Callable
from typing import TypeVar

from opcheck.worker.platform import CAN_FORK, Fork

Result = TypeVar("Result")
#: Seconds that a copy which has sent its result may take to end.
_PATIENCE = 5.0
#: More copies than this cost more memory than they save time.
_MOST = 8


def count_shares() -> int:
    """Return how many processes may compute at the same time on this machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(_MOST, usable or 1) if CAN_FORK else 1


def compute(work: Callable[[int], Result], count: int) -> list[Result]:
    """Return the results of ``work(0)`` to ``work(count - 1)``, each but the first in a copy of this process.

    What a copy could not do, this process does itself.
    """
    copies: list[tuple[Fork, int]] = []
    try:
        # One by one, so that those which were started are ended where another fails to start.
        for number in range(1, count):
            copies.append(_start(work, number))  # noqa: PERF401
        results = [work(0)]
        for number, (_, end) in enumerate(copies, 1):
            with os.fdopen(end, "rb", closefd=False) as pipe:
                sent = pipe.read()
            try:
                # The copy is this program itself, which executes nothing that it reads.
                results.append(pickle.loads(sent))  # noqa: S301
            except (pickle.UnpicklingError, EOFError):
                results.append(work(number))
    except BaseException:
        _end(copies, 0.0)
        raise
    _end(copies, _PATIENCE)
    return results


def _end(copies: list[tuple[Fork, int]], seconds: float) -> None:
    for copy, end in copies:
        os.close(end)
        copy.end(seconds)


def _start(work: Callable[[int], object], number: int) -> tuple[Fork, int]:
    reading, writing = os.pipe()

    def send() -> int:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(work(number), pipe, pickle.HIGHEST_PROTOCOL)
        return 0

    copy = Fork(send)
    os.close(writing)
    return copy, reading
