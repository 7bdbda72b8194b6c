from __future__ import annotations

from opcheck.model.records import Problem, SourceLocation
from tests.judge.rules.checking import findings_by
from tests.made import call

LOST = Problem(
    kind="gradient_lost",
    message="aten::mm: an autograd kernel was not registered",
    op="aten::mm",
    location=SourceLocation(file="m.py", line=3),
)


def test_a_lost_gradient_is_a_warning_with_its_line_and_what_torch_prints() -> None:
    (finding,) = findings_by("OC113", call("aten::mm"), problems=(LOST,))
    assert finding.severity == "warning"
    assert finding.message.startswith("aten::mm: no gradient passes back through it")
    assert finding.prints == LOST.message
    assert [str(place.location) for place in finding.locations] == ["m.py:3"]
    assert "f(x.cpu())" in finding.hint


def test_an_operator_of_an_extension_needs_a_derivative() -> None:
    problem = Problem(kind="gradient_lost", message="", op="mylib::f")
    (finding,) = findings_by("OC113", call("aten::mm"), problems=(problem,))
    assert "register_autograd" in finding.hint


def test_it_is_told_once_and_only_where_it_is_lost() -> None:
    assert not findings_by("OC120", call("aten::mm"), problems=(LOST,))
    assert not findings_by("OC113", call("aten::mm"), problems=(Problem(kind="guess", message=""),))
