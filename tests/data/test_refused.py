"""Dtypes that no backend computes an operator in."""

from __future__ import annotations

import pytest
import torch

import opcheck
from opcheck.data.registrations import load
from opcheck.data.tables import nowhere, refused_by
from opcheck.lookup.plain_call import OperatorLookup, target

_LOOKUP = OperatorLookup(load())


@pytest.mark.parametrize(
    ("op", "dtype", "refused"),
    [
        ("aten::bitwise_and.Tensor", "float32", True),
        ("aten::bitwise_and.Tensor", "int32", False),
        ("aten::linalg_inv", "int64", True),
        ("aten::lgamma", "complex64", True),
        ("aten::_linalg_svd", "float16", True),  # norm has half precision, and casts before it calls this
        ("aten::logaddexp", "int64", False),  # a Metal kernel takes it
        ("aten::div_.Tensor", "int64", True),  # a quotient does not fit into integers
        ("aten::div.Tensor", "int64", False),
        ("aten::clip", "complex64", True),  # the row of its alias clamp speaks of it
        ("aten::clip.out", "float32", False),  # a result of integers alone is refused
        ("aten::no_such_operator", "float32", False),
    ],
)
def test_a_refused_dtype_is_unsupported_in_every_release(op: str, dtype: str, *, refused: bool) -> None:
    assert bool(refused_by(op, dtype)) == refused
    for line in ("2.9", "2.15"):
        verdict = _LOOKUP.verdict(op, target(line, "26.0"), dtype)
        assert ("no backend computes it" in verdict.because) == refused
        assert verdict.status == "unsupported" or not refused


def test_the_cpu_of_this_machine_refuses_it() -> None:
    with pytest.raises((NotImplementedError, RuntimeError), match="not implemented for 'Float'"):
        torch.bitwise_and(torch.ones(2), torch.ones(2))


def test_a_composite_is_not_judged_by_what_it_calls_in_another_dtype() -> None:
    # isin of floats combines truth values bit by bit.
    assert _LOOKUP.verdict("aten::isin.Tensor_Tensor", target("2.15", "26.0"), "float32").status == "native"


@pytest.mark.parametrize(
    ("op", "status"),
    [
        ("aten::cumprod_backward", "native"),  # it inverts the mask of its zeros
        ("aten::repeat_interleave.self_Tensor", "native"),  # the counts are integers, whatever is repeated
        ("aten::bitwise_not", "unsupported"),
        ("aten::repeat_interleave.Tensor", "unsupported"),
    ],
)
def test_a_statement_on_dtypes_stays_with_the_tensor_that_it_is_about(op: str, status: str) -> None:
    aim = target("2.13", "26.0")
    assert _LOOKUP.verdict(op, aim, "float32").status == status
    about = _LOOKUP.operators.statements_on(op, "2.13")
    assert any("float32" in each.dtypes and each.effect == "raises" for each in about) == (status == "unsupported")


def test_an_audit_refuses_it_although_the_meta_kernel_ends_the_model() -> None:
    class Ranked(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return torch.topk(values > 0, 2).values

    report = opcheck.audit(Ranked(), (torch.ones(4),))
    assert report.headline == "fails"
    assert {group.op: group.verdict.because for group in report.groups}["aten::topk"] == nowhere("bool")
