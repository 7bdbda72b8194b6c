from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call, make_statement, spec

NO_COMPLEX = make_statement("mm-complex", dtypes=("complex64",))
MAY = make_statement("mm-complex-when", dtypes=("complex64",), when="it depends")
C1, C2 = (spec(2, dtype="complex64"),), (spec(3, dtype="complex64"),)
POLAR = call("aten::relu", 2, outputs=C1)


def test_names_the_birth_and_not_the_failing_call_alone() -> None:
    passes = call("aten::view", 3, inputs=C1, outputs=C2)
    fails = call("aten::mm", 4, inputs=C2, outputs=C2)
    (finding,) = findings_by("OC141", POLAR, passes, fails, statements=(NO_COMPLEX,))
    assert finding.severity == "error"
    assert [str(place.location) for place in finding.locations] == ["model.py:2", "model.py:4"]
    assert finding.message == (
        "complex64 begins here: relu gets a Python complex number; "
        "the first call that fails is aten::mm at model.py:4; 2 calls that it passes can take it"
    )


def test_a_statement_that_may_hold_makes_a_warning() -> None:
    (finding,) = findings_by("OC141", POLAR, call("aten::mm", 4, inputs=C1, outputs=C2), statements=(MAY,))
    assert finding.severity == "warning"
    assert "may fail is aten::mm" in finding.message


def test_silent_where_every_call_takes_it() -> None:
    assert not findings_by("OC141", POLAR, call("aten::mm", 4, inputs=C1), statements=())
