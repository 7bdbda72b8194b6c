from __future__ import annotations

import pytest

from tests.judge.rules.checking import findings_by
from tests.made import call, make_statement, spec

LIMIT = make_statement("mm-rank", condition="self.dim == 3", way_out="Use bmm.")
FLAT = call("aten::mm", inputs=(spec(1, argument="self"),))
DEEP = call("aten::mm", 4, inputs=(spec(1, argument="self", shape=(2, 3, 4)),))


def test_fires_on_the_shape_that_the_kernel_refuses() -> None:
    (finding,) = findings_by("OC106", FLAT, DEEP, statements=(LIMIT,))
    assert finding.message == ("aten::mm: The kernel refuses mm-rank (torch 2.13.0, macOS 15.0)")
    assert (finding.severity, finding.prints) == ("error", "mm-rank is refused")
    assert finding.hint == "Use bmm"
    assert [str(place.location) for place in finding.locations] == ["model.py:4"]
    assert not findings_by("OC101", DEEP, statements=(LIMIT,))


def test_says_that_a_process_ends() -> None:
    ends = make_statement("mm-abort", effect="aborts", error=None)
    (finding,) = findings_by("OC106", FLAT, statements=(ends,))
    assert finding.hint == "the process ends, no exception is raised"
    assert finding.prints == ""


@pytest.mark.parametrize("cpu_fallback", [False, True])
def test_the_variable_does_not_help(cpu_fallback: bool) -> None:
    assert findings_by("OC106", DEEP, statements=(LIMIT,), cpu_fallback=cpu_fallback)


def test_silent_on_other_shapes_and_where_the_shape_is_not_told() -> None:
    assert not findings_by("OC106", FLAT, statements=(LIMIT,))
    assert not findings_by("OC106", call("aten::mm"), statements=(LIMIT,))
    assert not findings_by("OC106", call("aten::stub"), statements=(LIMIT,))
