"""A composite that always makes a view, and otherwise calls one of several operators, is as good as the worst of these."""

from __future__ import annotations

import pytest

from opcheck.data.registrations import load
from opcheck.lookup.plain_call import OperatorLookup, target

_LOOKUP = OperatorLookup(load())


@pytest.mark.parametrize(
    ("op", "line", "status"),
    [
        ("aten::stft", "2.0", "fallback"),  # its transform has no kernel there
        ("aten::stft", "2.15", "native"),
        ("aten::narrow", "2.0", "native"),  # it computes nothing at all
        # Of an empty matrix no decomposition is needed, of a hermitian one another.
        ("aten::linalg_matrix_rank", "2.13", "fallback"),
        ("aten::linalg_pinv.atol_rtol_tensor", "2.13", "fallback"),
        ("aten::linalg_pinv.atol_rtol_tensor", "2.15", "native"),
    ],
)
def test_what_it_computes_decides(op: str, line: str, status: str) -> None:
    assert _LOOKUP.verdict(op, target(line, "26.0"), "float32").status == status


@pytest.mark.parametrize(("op", "kernels"), [("aten::fft_fft", ()), ("aten::constant_pad_nd", ("constant_pad_nd",))])
def test_a_transform_without_a_size_pads_nothing(op: str, kernels: tuple[str, ...]) -> None:
    assert _LOOKUP.operators.route(op, "2.15").kernels == kernels


def test_a_complex_transform_without_a_size_meets_no_refusal_of_the_pad() -> None:
    assert _LOOKUP.verdict("aten::fft_fft", target("2.2", "14.0"), "complex64").status == "fallback"


@pytest.mark.parametrize(("name", "advised"), [("optim.LBFGS", False), ("aten::_to_copy", True)])
def test_python_code_passes_no_argument_to_its_copies(name: str, advised: bool) -> None:
    statements = _LOOKUP.operators.usual_statements(name, "2.15")
    assert any("non_blocking" in statement.condition for statement in statements) == advised
