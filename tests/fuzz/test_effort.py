"""A property that fails is reported by its own error."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from tests.fuzz.effort import fuzzed

_LONG = "x" * 40_000


def test_a_property_that_fails_for_a_long_document_raises_its_own_error() -> None:
    def holds(_trial: None, _content: str) -> None:
        raise AssertionError("the property does not hold")

    property_ = fuzzed(st.just(_LONG), quick=1, long=1)(holds)
    with pytest.raises(AssertionError, match="the property does not hold"):
        property_("quick", None)
