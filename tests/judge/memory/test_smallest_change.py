"""The search for the smallest change that makes a run fit."""

from __future__ import annotations

import msgspec

from opcheck.capture.request import CaptureRequest
from opcheck.data.registrations import load
from opcheck.judge.memory.smallest_change import MOST_CAPTURES, PlanSearch, changes_for
from opcheck.model.records import Lifetime, TensorSpec, Trace
from tests.made import call, make_target, make_trace

GIB = 1 << 30
REQUEST = CaptureRequest(model="m", target=make_target())


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


def test_quantized_weights_are_replayed_with_the_weight_that_each_call_makes() -> None:
    weight = TensorSpec(tensor=3, storage=3, dtype="float16", shape=(GIB, 3), stride=(3, 1), argument="weight")
    encoder = call("aten::mm", 1, inputs=(_read(1),))
    denoiser = [call("aten::linear", 2 + n, inputs=(_named(weight, n),)) for n in range(2)]
    lives = (_weight(1, "text_encoder.1", GIB), *(_weight(3 + n, f"transformer.{n}", 6 * GIB) for n in range(2)))
    trace = make_trace(encoder, *denoiser, lifetimes=lives, inputs_note="as its pipeline is called")
    # 13 GiB; as Q8_0 1 + 2 * 3 * 34 / 32 GiB, and twice 6 GiB for the weight of a call, which is more.
    assert _plans(trace, 16) == []
    layers = [call("aten::linear", 9 + n, inputs=(_small(n),)) for n in range(48)]
    many = (_weight(1, "text_encoder.1", GIB), *(_weight(100 + n, f"transformer.{n}", GIB // 4) for n in range(48)))
    trace = make_trace(encoder, *layers, lifetimes=many, inputs_note="as its pipeline is called")
    # 1 + 12 * 17 / 32 + 0.5 GiB are below 10.67.
    assert _plans(trace, 16) == [(("the denoiser's weights as GGUF Q8_0",), "fits", "replayed")]


def _named(weight: TensorSpec, number: int) -> TensorSpec:
    return msgspec.structs.replace(weight, tensor=3 + number, storage=3 + number)


def _small(number: int) -> TensorSpec:
    at = 100 + number
    return TensorSpec(tensor=at, storage=at, dtype="float16", shape=(1 << 27, 1), argument="weight")


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
        call("aten::mm", inputs=(_read(1),)), lifetimes=(_weight(1, "w", 5 * GIB), _weight(2, "v", 5 * GIB))
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
