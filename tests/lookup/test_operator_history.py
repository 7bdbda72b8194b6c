from __future__ import annotations

from opcheck.data.registrations import OpLists
from opcheck.lookup.operator_history import history
from tests.made import make_lists

CHANGES = {
    "aten::grows": {"2.12": "cpu_only", "2.13": "kernel", "2.14": "kernel"},
    "aten::shrinks": {"2.12": "kernel", "2.13": "cpu_only"},
    "aten::stays": {"2.13": "kernel", "2.14": "kernel"},
}


def test_each_change_of_a_registration_is_a_step() -> None:
    steps = history("aten::grows", lists=make_lists(CHANGES)).overloads[0].steps
    assert [(s.torch, s.change, s.status, s.kind) for s in steps] == [
        ("2.12", "first", "fallback", "env"),
        ("2.13", "better", "native", None),
    ]
    assert steps[1].changed == ("aten::grows: cpu_only -> kernel",)


def test_a_kernel_lost_is_worse_and_an_operator_gone_is_told() -> None:
    steps = history("aten::shrinks", lists=make_lists(CHANGES)).overloads[0].steps
    assert [(s.torch, s.change) for s in steps] == [("2.12", "first"), ("2.13", "worse"), ("2.14", "removed")]


def test_an_operator_begins_where_it_does() -> None:
    steps = history("aten::stays", lists=make_lists(CHANGES)).overloads[0].steps
    assert [s.torch for s in steps] == ["2.13"]


def test_the_transform_of_reals(lists: OpLists) -> None:
    result = history("aten::_fft_r2c", "14.0", lists=lists).overloads[0].steps
    changes = {s.torch: (s.change, s.status, s.kind) for s in result if s.change != "same"}
    assert changes == {
        "1.13": ("first", "fallback", "always"),
        "2.0": ("worse", "fallback", "env"),
        "2.3": ("better", "native", None),
    }
    assert "aten::_fft_r2c: cpu_only -> kernel" in next(s for s in result if s.torch == "2.3").changed
    assert all(s.changed for s in result)
    below = history("aten::_fft_r2c", "13.0", "float32", lists=lists).overloads[0].steps
    assert next(s for s in below if s.torch == "2.3").status == "unsupported"
