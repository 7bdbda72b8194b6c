"""Counts the calls that a piece of work makes: its time would depend on the machine."""

import sys
from collections.abc import Callable
from types import FrameType


def count_calls(work: Callable[[], object]) -> int:
    """Return how many calls, of Python's functions and of C's, the work makes."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
