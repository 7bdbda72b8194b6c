"""What an audit finds of graphs that a new shape adds; runs are tried in tests/device/emulator/test_growth.py."""

from __future__ import annotations

from opcheck.data.registrations import load
from opcheck.judge.assembly import report
from opcheck.model.records import Finding, Lifetime, OpCall, TensorSpec
from tests.made import call, make_target, make_trace

#: a kernel by MPSGraph in each release
_OP = "aten::_lstm_mps"


def _calls(*lengths: int, op: str = _OP) -> list[OpCall]:
    return [
        call(
            op,
            7,
            inputs=(TensorSpec(tensor=n, storage=n, dtype="float32", shape=(1, length, 8)),),
            outputs=(TensorSpec(tensor=50 + n, storage=50 + n, dtype="float32", shape=(1, 8)),),
        )
        for n, length in enumerate(lengths, start=1)
    ]


def _found(calls: list[OpCall], inputs: tuple[str, ...], torch: str = "2.13") -> list[Finding]:
    lives = (Lifetime(storage=1, nbytes=64, first=0, freed=None, kind="input"),)
    trace = make_trace(*calls, lifetimes=lives, inputs=inputs)
    found = report(trace, make_target(torch, "15.0"), load()).findings
    return [finding for finding in found if finding.rule == "OC132"]


def test_varying_shapes_within_the_run_are_a_warning() -> None:
    (finding,) = _found(_calls(10, 11, 12, 13, 14, 15), ())
    assert finding.severity == "warning"
    assert "6 graphs for aten::_lstm_mps so far" in finding.message
    assert "buckets" in finding.hint
    assert [place.line for place in finding.locations] == ["model.py:7"]


def test_a_length_that_may_vary_is_a_note() -> None:
    (finding,) = _found(_calls(10), ("input_ids=1x10:int64",))
    assert finding.severity == "note"
    assert "each new shape adds 1 to a cache without limit" in finding.message


def test_silent_where_no_dimension_varies_and_where_no_graph_is_compiled() -> None:
    assert not _found(_calls(10, 10, 10, 10, 10, 10), ("x=1x3x8x8:float32",))
    assert not _found(_calls(10, 11, 12, 13, 14, 15, op="aten::relu"), ())


def test_the_way_out_depends_on_the_release() -> None:
    varied = _calls(10, 11, 12, 13, 14, 15)
    assert "frees the graphs, which" in _found(varied, ())[0].hint
    assert "from torch 2.13 on it frees the graphs" in _found(varied, (), "2.12")[0].hint
