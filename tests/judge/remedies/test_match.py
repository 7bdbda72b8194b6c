"""A remedy with the user's own names."""

from __future__ import annotations

import pytest

from opcheck.judge.remedies import BY_ID, rewritten

LINES = [
    ("complex_mul", "q = query * rotation[:n]", "q = complex_mul(query, rotation[:n])"),
    ("complex_matmul", "return self.a(z) @ w.mT", "return complex_matmul(self.a(z), w.mT)"),
    ("complex_abs", "loss = (z.abs() - 1).mean()", "loss = (complex_abs(z) - 1).mean()"),
    ("rdft", "s = torch.fft.rfft(frames)", "real, imaginary = rdft(frames)"),
]


@pytest.mark.parametrize(("name", "line", "expected"), LINES)
def test_the_line_with_its_own_names(name: str, line: str, expected: str) -> None:
    assert rewritten(BY_ID[name], f"    {line}\n").partition("  #")[0].startswith(expected)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rdft", "s = torch.fft.rfft(x, n=512)"),  # another call: with an argument
        ("rdft", "f(torch.fft.rfft(x))"),  # two results where one is passed on
        ("complex_mul", "y = helper(x)"),
        ("complex_mul", "dtype=torch.complex64,"),
        ("complex_mul", ""),
    ],
)
def test_nothing_where_the_line_is_another(name: str, line: str) -> None:
    assert rewritten(BY_ID[name], line) == ""
