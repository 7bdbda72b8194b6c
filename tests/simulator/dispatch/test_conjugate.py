"""Tensors that are to be read as conjugated or negated: views of a bit, resolved where a kernel does not know it."""

from __future__ import annotations

import pytest
import torch

from tests.simulator.mac import names

Z = torch.ones(3, 3, dtype=torch.complex64)
LARGE = torch.ones(300, 300, dtype=torch.complex64)


@pytest.mark.parametrize("z", [Z, LARGE], ids=["known values", "shapes alone"])
def test_a_kernel_gets_a_copy_and_a_matrix_product_the_view(z: torch.Tensor) -> None:
    # ATen/ConjugateFallback.cpp: mm and its like take the bit, everything else a resolved tensor.
    assert names(lambda a, b: a.conj() + b, z, z) == ["_conj", "clone", "add.Tensor"]
    assert names(lambda a, b: a.mH @ b, z, z) == ["transpose.int", "_conj", "mm"]


@pytest.mark.parametrize("z", [Z, LARGE], ids=["known values", "shapes alone"])
def test_the_bit_goes_along_with_views_and_comes_off_again(z: torch.Tensor) -> None:
    seen: list[bool] = []

    def run(a: torch.Tensor) -> None:
        b = a.conj()
        seen.extend([b.is_conj(), b.t().is_conj(), b.conj().is_conj(), torch.imag(b).is_neg()])
        seen.append(b.resolve_conj().is_conj())

    names(run, z)
    assert seen == [True, True, False, True, False]


def test_view_as_real_of_a_conjugate_raises_as_it_does_everywhere() -> None:
    with pytest.raises(RuntimeError, match="resolve_conj"):
        names(lambda a: torch.view_as_real(a.conj()), LARGE)
