"""How long a property is tried: some seconds with fixed examples in each run, minutes with new ones on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

_ALWAYS = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=False)


def fuzzed(
    strategy: st.SearchStrategy[Any], *, quick: int, long: int, kept: Sequence[Any] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of a property that takes a trial and an example.

    Args:
        strategy: the examples.
        quick: how many of them ``make test`` tries; always the same.
        long: how many new ones the marker ``fuzz`` tries.
        kept: examples that failed once; both begin with them.
    """
    efforts = {
        "quick": settings(_ALWAYS, max_examples=quick, derandomize=True),
        "long": settings(_ALWAYS, max_examples=long),
    }

    def decorate(holds: Callable[..., None]) -> Callable[..., None]:
        @pytest.mark.parametrize("effort", ["quick", pytest.param("long", marks=pytest.mark.fuzz)])
        def test(effort: str, trial: Any) -> None:
            def tried(content: Any) -> None:
                holds(trial, content)

            property_ = given(content=strategy)(tried)
            for each in kept:
                property_ = example(content=each)(property_)
            efforts[effort](property_)()

        test.__name__ = holds.__name__
        test.__doc__ = holds.__doc__
        test.__module__ = holds.__module__
        made: Callable[..., None] = test
        return made

    return decorate
