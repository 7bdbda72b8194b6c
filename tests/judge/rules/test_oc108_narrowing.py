from __future__ import annotations

import pytest

from tests.judge.rules.checking import findings_by
from tests.made import ErrorText, call, make_statement, spec

NARROWS = make_statement(
    "mm-narrow",
    ops=("aten::mm", "aten::relu"),
    effect="narrows",
    dtypes=("int64",),
    error=ErrorText(type="UserWarning", text="casting to int32"),
)
INTS = (spec(1, dtype="int64"),)


def test_one_finding_for_all_operators_that_narrow() -> None:
    calls = [call(op, line, inputs=INTS) for line, op in enumerate(("aten::relu", "aten::mm"), 2)]
    (finding,) = findings_by("OC108", *calls, statements=(NARROWS,))
    assert finding.message == "aten::mm, aten::relu: The kernel refuses mm-narrow (mm-narrow)"
    assert (finding.severity, finding.prints) == ("warning", "casting to int32")
    assert (finding.count, finding.op) == (2, "")


@pytest.mark.parametrize(("effect", "severity"), [("wrong_result", "warning"), ("warns", "note")])
def test_other_effects_that_let_the_call_run(effect: str, severity: str) -> None:
    made = make_statement("mm-other", effect=effect)
    (finding,) = findings_by("OC108", call("aten::mm"), statements=(made,))
    assert finding.severity == severity


def test_silent_where_the_call_raises_or_does_not_tell() -> None:
    assert not findings_by("OC108", call("aten::mm"), statements=(NARROWS,))
    raises = make_statement("mm-raises", dtypes=("int64",))
    assert not findings_by("OC108", call("aten::mm", inputs=INTS), statements=(NARROWS, raises))
    perhaps = make_statement("mm-perhaps", effect="narrows", when="values are large")
    assert not findings_by("OC108", call("aten::mm"), statements=(perhaps,))
