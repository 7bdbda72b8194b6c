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


def test_an_audit_refuses_it_although_the_meta_kernel_ends_the_model() -> None:
    class Ranked(torch.nn.Module):
        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return torch.topk(values > 0, 2).values

    report = opcheck.audit(Ranked(), (torch.ones(4),))
    assert report.headline == "fails"
    assert {group.op: group.verdict.because for group in report.groups}["aten::topk"] == nowhere("bool")
