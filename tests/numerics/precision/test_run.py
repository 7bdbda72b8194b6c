"""Runs beside float64 find where digits are lost, and nothing where none are."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.model.records import Precision
from opcheck.numerics.precision.child.precision_run import compare
from tests.made import make_target

PLANTED = Path(__file__).with_name("planted.py")
REAL = Path(__file__).with_name("real_models.py")


def asked(name: str, *dtypes: str, file: Path = PLANTED, **others: Any) -> CaptureRequest:
    return CaptureRequest(model=f"{file}:{name}", target=make_target(), precision=dtypes or ("float32",), **others)


def ran(name: str, *dtypes: str, **others: Any) -> tuple[Precision, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that are imported
        return compare(asked(name, *dtypes, **others), _silent)


def _silent(text: str, *, seconds: float = 0.0) -> None:
    """Tell nobody."""


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(PLANTED.read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize("mode", ["inference", "train"])
@pytest.mark.parametrize(
    ("name", "op", "text"),
    [
        ("variance", "aten::sub.Tensor", "var = (x * x)"),
        ("cumsum", "aten::cumsum", "return torch.cumsum"),
        ("sine", "aten::sin", "return torch.sin(angle)"),
    ],
)
def test_a_planted_operation_is_the_first_divergence(name: str, op: str, text: str, mode: str) -> None:
    (run,) = ran(name, mode=mode)
    result = run.divergence
    assert run.complete
    assert result is not None
    assert result.op == op
    assert result.place.module == "inside"
    assert result.place.phase == "forward"
    assert result.place.location is not None
    assert result.place.location.line == line_of(text)
    assert float(result.local) > run.limit > 10 * float(result.inherited)
    assert result == run.crossing
    by_name = {module.name: module for module in run.modules}
    assert by_name["inside"].at_fault
    assert not by_name["first"].at_fault
    assert not by_name["last"].at_fault
    assert float(by_name["inside"].total) > run.limit > float(by_name["first"].total)
    assert (by_name["inside"].bytes_in, by_name["last"].bytes_out) == (8 * 64 * 4, 8 * 5 * 4)
    assert float(run.outputs["[0]"]) > run.limit


def test_without_one_nothing_is_found() -> None:
    (run,) = ran("plain", mode="train")
    assert run.divergence is None
    assert run.crossing is None
    assert not run.events
    assert run.loss == "the mean square of the floating outputs"
    assert set(run.gradients) == {"first.weight", "first.bias", "last.weight", "last.bias"}
    assert all(0 < float(error) < 1e-5 for error in run.gradients.values())
    assert {line.place.phase for line in run.lines} == {"forward", "backward"}


def test_an_overflow_is_named_by_its_line() -> None:
    single, half = ran("large", "float32", "float16")
    assert not single.events
    (event,) = [event for event in half.events if event.kind == "overflow"]
    assert event.op == "aten::exp"
    assert event.place.location is not None
    assert event.place.location.line == line_of("return torch.exp")
    assert half.divergence is not None
    assert half.divergence.op == "aten::exp"


def test_answers_that_flip_are_named() -> None:
    (run,) = ran("sine", "float16")
    (flip,) = [event for event in run.events if event.op == "aten::argmax"]
    assert flip.kind == "flips"
    assert 0 < flip.elements <= flip.of == 8


def test_the_run_goes_without_the_models_own_float64() -> None:
    (run,) = ran("explicit_double", inputs=("8x64:float32",))
    assert not run.divergence
    assert 1e-9 < float(run.outputs["output"]) < 1e-5


def test_views_writes_and_whole_numbers_are_followed() -> None:
    (run,) = ran("tricky", inputs=("8x64:float32",))
    assert 0 < float(run.outputs["output"]) < 1e-6
    assert run.complete
    assert not any("not followed" in note for note in run.notes)


def test_the_same_request_gives_the_same_numbers() -> None:
    assert ran("variance", mode="train") == ran("variance", mode="train")


def test_a_program_that_raises_leaves_what_was_seen() -> None:
    (run,) = ran("fails", inputs=("8x64:float32",))
    assert run.calls == 1
    assert not run.complete
    assert run.notes[0].startswith("broke off at ")
    assert "ValueError" in run.notes[0]


@pytest.mark.parametrize(
    ("name", "op", "module"),
    [
        ("fnet", "aten::sub.Tensor", "encoder.layer.1.output.LayerNorm"),
        ("llama", "aten::cos", "model.rotary_emb.inner"),
        ("unet", "aten::cumsum", "Step"),
    ],
)
def test_one_in_a_model_of_the_libraries_is_the_first_divergence(name: str, op: str, module: str) -> None:
    (run,) = ran(name, mode="train", file=REAL)
    assert run.complete
    assert run.gradients
    assert run.divergence is not None
    assert (run.divergence.op, run.divergence.place.module) == (op, module)
