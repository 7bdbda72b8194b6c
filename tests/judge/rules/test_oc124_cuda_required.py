from __future__ import annotations

import pytest
import torch

import opcheck
from opcheck.capture.child import endings
from opcheck.model.records import Problem, SourceLocation
from tests.judge.rules.checking import findings_by
from tests.made import call, problem

_TEXT = "Torch not compiled with CUDA enabled"


def needs_cuda(text: str = _TEXT) -> Problem:
    place = SourceLocation(file="m.py", line=3)
    message = f"the program requires a device that no Mac has: AssertionError: {text}"
    return Problem(kind="needs_cuda", message=message, location=place, answered=text)


def test_the_finding_has_the_macs_text_its_line_and_the_way_out() -> None:
    (finding,) = findings_by("OC124", call("aten::mm"), complete=False, problems=(needs_cuda(),))
    assert finding.severity == "error"
    assert finding.prints == _TEXT
    assert [str(place.location) for place in finding.locations] == ["m.py:3"]
    assert "opcheck scan" in finding.hint


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("Attempting to deserialize object on a CUDA device but", "map_location"),
        ("Distributed package doesn't have NCCL built in", "gloo"),
        ("Tried to instantiate dummy base class Event", "torch.cuda.is_available()"),
    ],
)
def test_the_way_out_is_that_of_the_text(text: str, way: str) -> None:
    (finding,) = findings_by("OC124", complete=False, problems=(needs_cuda(text),))
    assert way in finding.hint


def test_a_package_without_a_wheel_has_what_there_is_instead() -> None:
    lacking = Problem(kind="needs_package", message="flash-attn ...", answered="flash-attn")
    (finding,) = findings_by("OC124", complete=False, problems=(lacking,))
    assert "scaled_dot_product_attention" in finding.hint


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("module 'torch' has no attribute 'accelerator'"),
        ImportError("cannot import name 'accelerator' from 'torch' (torch/__init__.py)"),
    ],
)
def test_a_name_of_a_later_torch_is_what_the_release_lacks(error: Exception) -> None:
    kind = endings.kind_of(error)
    ended = endings.problem_of(error, kind, None)
    (finding,) = findings_by("OC124", complete=False, problems=(ended,))
    assert "torch.accelerator" in finding.message
    assert "hasattr" in finding.hint


def test_an_argument_of_a_later_torch_is_what_the_release_lacks() -> None:
    with opcheck.emulate(torch="2.0", macos="15"), pytest.raises(TypeError) as caught:
        torch.nn.LayerNorm(3, bias=False)
    kind = endings.kind_of(caught.value)
    ended = endings.problem_of(caught.value, kind, None)
    (finding,) = findings_by("OC124", complete=False, problems=(ended,))
    assert "the program needs torch.nn.modules.normalization.LayerNorm(bias=)" in finding.message
    assert finding.hint.endswith("or leave it out")


def test_a_name_that_no_torch_has_is_the_programs_own_mistake() -> None:
    assert not endings.kind_of(AttributeError("module 'torch' has no attribute 'accelarator'"))


def test_silent_on_the_models_own_error() -> None:
    assert not findings_by("OC124", call("aten::mm"), complete=False, problems=(problem("model_raised"),))
