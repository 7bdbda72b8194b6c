"""Tensors in Python data, which C++ reads one by one as numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.simulator.mac import names

VALUES = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: torch.Tensor([x[0], 1.0, x[1]]),
        lambda x: torch.Tensor([[x[0]], [x[1]]]),
        lambda x: torch.FloatTensor([x[0], x[1]]),
        lambda x: torch.HalfTensor([x[0], x[1]]),
        lambda x: torch.tensor([x[0], x[1]]),
        lambda x: torch.tensor(((x[0], 2), (x[1], 3)), dtype=torch.complex64),
        lambda x: torch.as_tensor([x[0], x[1]], device="mps"),
        lambda x: x.new([x[0], x[1]]),
        lambda x: x.new_tensor([x[0], x[1]]),
    ],
)
def test_each_tensor_among_the_data_is_one_item(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    called = names(make, VALUES)
    assert called.count("_local_scalar_dense") == 2
    # Nothing but the result is copied from device to device.
    assert called.count("_to_copy") <= 1


def test_integers_are_read_as_integers() -> None:
    called = names(lambda x: torch.LongTensor([x[0], x[1]]), torch.tensor([1, 2]))
    assert called.count("_local_scalar_dense") == 2


def test_a_tensor_of_several_numbers_among_the_data_is_refused_as_on_a_mac() -> None:
    with pytest.raises(ValueError, match="only one element tensors can be converted"):
        names(lambda x: torch.Tensor([x, x]), VALUES)
