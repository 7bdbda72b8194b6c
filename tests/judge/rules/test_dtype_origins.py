"""The origin's line, rewritten."""

from __future__ import annotations

import pytest

from opcheck.judge.dtype_flow import Origin
from opcheck.judge.rules.dtype_origins import describe, rewritten
from opcheck.judge.texts import ORIGINS
from opcheck.model.records import SourceLocation

LINES = [
    ("numpy", "torch.from_numpy", "w = torch.from_numpy(a) * 2", "w = torch.from_numpy(a).to(torch.float32) * 2"),
    (
        "dtype_given",
        "torch.linspace",
        "t = torch.linspace(0, 1, 8, dtype=torch.float64)",
        "t = torch.linspace(0, 1, 8, dtype=torch.float32)",
    ),
    ("dtype_given", "aten::zeros", "t = torch.zeros(8, dtype=torch.double)", "t = torch.zeros(8, dtype=torch.float32)"),
    ("cast", "torch.Tensor.double", "y = self.table.double().sum()", "y = self.table.float().sum()"),
    ("cast", "aten::_to_copy", "return x.to(torch.float64).exp()", "return x.to(torch.float32).exp()"),
    ("numpy", "torch.tensor", "if use(torch.tensor(a)):", "if use(torch.tensor(a).to(torch.float32)):"),
]


def _origin(how: str, api: str, text: str) -> Origin:
    place = SourceLocation(file="model.py", line=3, function="f", text=text)
    return Origin(trait="float64", dtype="float64", how=how, api=api, location=place)


@pytest.mark.parametrize(("how", "api", "text", "expected"), LINES)
def test_the_line_as_it_could_be_written(how: str, api: str, text: str, expected: str) -> None:
    assert rewritten(_origin(how, api, text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "torch.tensor(a), torch.tensor(b)",  # which of the two?
        "dtype=torch.float64,",  # the middle of a call
        "y = helper(a)",
    ],
)
def test_nothing_where_the_line_does_not_show_it(text: str) -> None:
    assert rewritten(_origin("numpy", "torch.tensor", text)) == ""


@pytest.mark.parametrize("how", ORIGINS)
def test_every_way_is_said_in_words(how: str) -> None:
    words = describe(_origin(how, "torch.some", "torch.some(x)"))
    assert "{" not in words
    assert words
