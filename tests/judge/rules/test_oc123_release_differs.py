from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call


def test_one_note_for_all_differences() -> None:
    (finding,) = findings_by("OC123", call("aten::mm"), differences=("aten::a is new", "b"))
    assert finding.message == "aten::a is new; b"
    assert finding.hint == "install torch 2.13 here and audit again (captured with 2.13.0+cpu)"


def test_silent_without_differences() -> None:
    assert not findings_by("OC123", call("aten::mm"))
