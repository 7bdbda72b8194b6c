"""The search for the smallest change that makes a run fit."""

from __future__ import annotations

from opcheck.capture.request import CaptureRequest
from opcheck.data.registrations import load
from opcheck.judge.memory.smallest_change import MOST_CAPTURES, PlanSearch, changes_for
from opcheck.model.records import Lifetime, TensorSpec, Trace
from tests.made import call, make_target, make_trace

GIB = 1 << 30
REQUEST = CaptureRequest(model="m", torch="2.13", macos="15.0")


def _weight(storage: int, name: str, size: int) -> Lifetime:
    return Lifetime(storage=storage, nbytes=size, first=0, freed=None, kind="parameter", name=name)


def _read(storage: int) -> TensorSpec:
    return TensorSpec(tensor=storage, storage=storage, dtype="float16", shape=(2, 2))


def _pipeline(**others: object) -> Trace:
    """A text encoder of 8 GiB that is used first, and a transformer of 12 GiB that is used afterwards."""
    calls = [call("aten::mm", 1, inputs=(_read(1),)), call("aten::mm", 2, inputs=(_read(3),))]
    lives = (
        *(_weight(n, f"text_encoder.{n}", 4 * GIB) for n in (1, 2)),
        *(_weight(n, f"transformer.{n}", 6 * GIB) for n in (3, 4)),
    )
    return make_trace(*calls, lifetimes=lives, inputs_note="as its pipeline is called", **others)


def _plans(trace: Trace, mac: int, **captured: Trace) -> list[tuple[tuple[str, ...], str, str]]:
    requests: list[CaptureRequest] = []

    def capture(request: CaptureRequest) -> Trace | None:
        requests.append(request)
        return captured.get(request.dtype or "_".join(request.changes))

    options = changes_for(REQUEST, trace, make_target("2.13", "15.0"))
    found = list(PlanSearch(REQUEST, trace, load(), mac, capture).search(options))
    assert len(requests) <= MOST_CAPTURES
    return [(each.changes, each.state, each.checked) for each in found]


def test_unloading_a_component_is_replayed() -> None:
    # 20 GiB raise above 18.13; 12 GiB are above the 10.67 that Metal recommends.
    assert _plans(_pipeline(), 16) == [(("text encoder unloaded",), "pressure", "replayed")]
    assert _plans(_pipeline(), 24) == [(("text encoder unloaded",), "fits", "replayed")]


def test_nothing_is_planned_where_it_fits() -> None:
    assert _plans(_pipeline(), 64) == []


def test_half_precision_is_captured() -> None:
    single = make_trace(
        call("aten::mm", inputs=(_read(1),)),
        lifetimes=(_weight(1, "w", 20 * GIB // 2), _weight(2, "v", 20 * GIB // 2)),
        parameters=5 * GIB,
        parameter_bytes=20 * GIB,
    )
    half = make_trace(
        call("aten::mm", inputs=(_read(1),)),
        lifetimes=(_weight(1, "w", 5 * GIB), _weight(2, "v", 5 * GIB)),
    )
    assert _plans(single, 16, float16=half) == [(("float16 weights",), "fits", "captured")]


def test_a_change_that_cannot_be_captured_is_left_out() -> None:
    single = make_trace(
        call("aten::mm", inputs=(_read(1),)),
        lifetimes=(_weight(1, "w", 25 * GIB),),
        parameters=6 * GIB,
        parameter_bytes=25 * GIB,
    )
    assert _plans(single, 16) == []
