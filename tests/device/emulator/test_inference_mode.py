"""What inference mode makes on mps is an inference tensor, as on the CPU (c10/core/InferenceMode.h)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

pytestmark = pytest.mark.usefixtures("mac")


@torch.inference_mode()
def made() -> torch.Tensor:
    return torch.ones(3, device="mps") * 2


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda x: x.add_(1), "Inplace update to inference tensor outside InferenceMode is not allowed"),
        (lambda x: x.view(3, 1).zero_(), "Inplace update to inference tensor"),
        (lambda x: x._version, "Inference tensors do not track version counter"),
        (
            lambda x: torch.ones(3, device="mps", requires_grad=True) * x,
            "Inference tensors cannot be saved for backward",
        ),
        (lambda x: x.requires_grad_(), "Setting requires_grad=True on inference tensor outside InferenceMode"),
    ],
    ids=["in place", "a view in place", "version", "backward", "requires_grad"],
)
def test_outside_of_the_mode_it_is_refused(use: Callable[[torch.Tensor], object], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        use(made())


def test_a_copy_is_a_normal_tensor_and_a_view_is_not() -> None:
    x = made()
    alike = [x, x.view(3, 1), x.detach(), x.data, x.clone(), x + 1]
    assert [each.is_inference() for each in alike] == [True, True, True, True, False, False]
    assert x.clone().add_(1).tolist() == [3, 3, 3]


def test_in_the_mode_views_of_normal_tensors_stay_normal() -> None:
    weight = torch.nn.Parameter(torch.ones(2, device="mps"))
    with torch.inference_mode():
        weight.mul_(2)
        view = weight.view(2, 1)
        assert [view.is_inference(), weight.is_inference(), (weight * 1).is_inference()] == [False, False, True]
    (weight * 2).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2, 2]
