from __future__ import annotations

import pytest

from opcheck.capture.child import endings
from opcheck.model.records import Problem, SourceLocation
from tests.judge.rules.checking import findings_by
from tests.made import call, problem


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("invalid type: 'torch.mps.FloatTensor'", "x.to(other)"),
        ("FlexAttention does not support backward on MPS.", "sdpa"),
        ("RNG state must be a torch.ByteTensor", "to the CPU first"),
        ("Expected a 'cpu' device type for generator but found 'mps'", "torch.Generator"),
    ],
)
def test_the_finding_has_the_text_its_line_and_the_way_out(text: str, way: str) -> None:
    error = ValueError(text)
    kind = endings.kind_of(error)
    ended = endings.problem_of(error, kind, SourceLocation(file="m.py", line=3))
    (finding,) = findings_by("OC126", call("aten::mm"), complete=False, problems=(ended,))
    assert finding.severity == "error"
    assert finding.prints == text
    assert [str(place.location) for place in finding.locations] == ["m.py:3"]
    assert way in finding.hint


def test_silent_on_the_models_own_error() -> None:
    assert not findings_by("OC126", call("aten::mm"), complete=False, problems=(problem("model_raised"),))


def test_what_only_the_emulation_says_of_mps_is_its_limit() -> None:
    error = RuntimeError("PyTorch is not linked with support for mps devices")
    assert endings.kind_of(error) == "opcheck_limit"


def test_code_for_mps_alone_is_shown_with_its_condition() -> None:
    ended = Problem(kind="mps_branch", message="it raises", answered="device.type == 'mps'")
    (finding,) = findings_by("OC126", call("aten::mm"), complete=False, problems=(ended,))
    assert finding.severity == "error"
    assert "device.type == 'mps'" in finding.message
