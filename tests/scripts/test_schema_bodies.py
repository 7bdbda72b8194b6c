"""Arguments that are made from schemas, and the bodies that they reach."""

from __future__ import annotations

import pytest

from opcheck.simulator.dispatch.tensor import is_on_mps
from scripts.opinfo.record import Watch, mac
from scripts.schema_bodies import TABLES, Scene, arguments, overload_of, record


def test_results_are_written_to_tensors_of_the_device() -> None:
    with mac("2.13", Watch()):
        args, kwargs = arguments(overload_of("aten::add.out")._schema, TABLES.scenes[0])
        assert [is_on_mps(value) for value in (*args, kwargs["out"])] == [True] * 3


def test_a_type_for_which_nothing_is_made_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="Stream"):
        arguments(overload_of("aten::record_stream")._schema, Scene((4,)))


@pytest.mark.parametrize(
    ("name", "always"),
    [("aten::special_expit", ["aten::sigmoid"]), ("aten::absolute_", ["aten::abs.out"]), ("aten::is_complex", [])],
)
def test_a_body_is_recorded(name: str, always: list[str]) -> None:
    assert record([name], "2.13") == {name: (always, [])}


def test_a_call_that_raises_leaves_no_body() -> None:
    assert record(["aten::float_power_.Scalar"], "2.13") == {}
