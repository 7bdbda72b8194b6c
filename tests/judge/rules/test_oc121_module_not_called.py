from __future__ import annotations

from tests.judge.rules.checking import findings_by
from tests.made import call


def test_one_note_lists_them_all() -> None:
    (finding,) = findings_by("OC121", call("aten::mm"), uncalled=("head", "pooler"))
    assert finding.severity == "note"
    assert finding.message == "2 modules never called, so not judged: head, pooler"
    assert finding.count == 2


def test_a_long_list_is_cut_and_counted() -> None:
    (finding,) = findings_by("OC121", call("aten::mm"), uncalled=tuple("abcdefgh"))
    assert finding.message.endswith("a, b, c, d, e and 3 more kinds")


def test_silent_when_all_were_called_or_the_run_broke_off() -> None:
    assert not findings_by("OC121", call("aten::mm"))
    assert not findings_by("OC121", call("aten::mm"), uncalled=("head",), complete=False)


def test_the_layers_of_a_model_are_one_name() -> None:
    (finding,) = findings_by("OC121", call("aten::mm"), uncalled=("layer.0.gate", "layer.1.gate", "head"))
    assert finding.message.endswith("layer.*.gate (2), head")
    assert finding.count == 3
