"""A model that cannot be run for real is refused before it is built."""

from __future__ import annotations

import pytest

from opcheck.common.errors import UsageError
from opcheck.model.records import Trace
from opcheck.numerics.value_runs import compare
from tests.numerics.precision.test_run import asked


def test_a_model_that_is_too_large_is_refused() -> None:
    trace = Trace(model="large", parameters=70_000_000_000)
    with pytest.raises(UsageError) as caught:
        compare(asked("plain"), trace)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "70,000,000,000 parameters" in lines[0]
    assert "1.0 TiB" in lines[0]
    assert "--config" in lines[2]


def test_the_child_answers() -> None:
    (run,) = compare(asked("sine"), Trace(model="small"))
    assert run.divergence is not None
