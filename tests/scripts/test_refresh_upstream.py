"""The changes that are worth sending to PyTorch: each mends its kernel when the runner computes it."""

from __future__ import annotations

import warnings

import pytest

pytest.importorskip("llvmlite")

from opcheck.data.registrations import data_directory
from opcheck.data.statement_files import read_statements
from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import air, library
from opcheck.kernels.kernel_machine import KernelMachine
from scripts import refresh_upstream

CHANGES = refresh_upstream.changes()
#: Of each changed kernel the share of its wrong results that may remain: other defects than the one that is mended.
REMAINING = {"sinc": 0.5, "expm1": 0.3}


def test_each_change_names_statements_of_the_op_lists() -> None:
    known = {statement.id for statement in read_statements(data_directory())}
    assert len(CHANGES) >= 6
    for change in CHANGES:
        assert set(change.statements) <= known, change.title


def test_a_change_that_does_not_fit_its_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="sinc_dense_scalar_float2_float2 has no"):
        refresh_upstream.apply(next(c for c in CHANGES if c.operation == "sinc"), "define void @k()")


@pytest.mark.wheel
@pytest.mark.parametrize("change", CHANGES, ids=[change.operation for change in CHANGES])
def test_a_change_mends_its_kernel(change: refresh_upstream.Change) -> None:
    warnings.filterwarnings("ignore", message="ComplexHalf")
    machine = KernelMachine(default_cache().parent / "kernels")
    text = str(air.parse(library.read("2.15.0").functions[change.kernel].bitcode))
    before = refresh_upstream.judge(machine, change, text)
    after = refresh_upstream.judge(machine, change, refresh_upstream.apply(change, text))
    assert before.wrong > 0
    assert after.wrong <= before.wrong * REMAINING.get(change.operation, 0)
