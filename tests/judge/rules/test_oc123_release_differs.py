from __future__ import annotations

from opcheck.model.records import SourceLocation
from tests.judge.rules.checking import findings_by
from tests.made import call


def test_one_note_for_all_differences() -> None:
    (finding,) = findings_by("OC123", call("aten::mm"), differences=("aten::a is new", "b"))
    assert finding.message == "aten::a is new; b"
    assert finding.hint == "install torch 2.13 here and audit again (captured with 2.13.0+cpu)"


def test_silent_without_differences() -> None:
    assert not findings_by("OC123", call("aten::mm"))


def test_calls_of_a_library_that_saw_another_release_make_it_a_warning() -> None:
    differs = {"differences": ("some_library saw 2.6",), "differing_libraries": ("some_library",)}
    for file, severity in (("some_library/layers.py", "warning"), ("model.py", "note")):
        there = call("aten::mm", location=SourceLocation(file=file, line=3))
        (finding,) = findings_by("OC123", there, **differs)
        assert finding.severity == severity, file
        assert ("some_library may make other calls" in finding.message) is (severity == "warning")
