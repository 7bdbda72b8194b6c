"""torchvision's operators in training, where its compiled part cannot load."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from opcheck.capture.child.extensions import prepare_torchvision
from tests.simulator.mac import recorded

torchvision = pytest.importorskip("torchvision")
pytestmark = pytest.mark.skipif(
    not prepare_torchvision(), reason="torchvision's compiled part has derivatives of its own"
)

BOXES = torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0], [0.0, 1.0, 1.0, 5.0, 5.0]])


@pytest.mark.parametrize(
    ("run", "operator"),
    [
        (lambda x, b: torchvision.ops.roi_pool(x, b, 2), "roi_pool"),
        (lambda x, b: torchvision.ops.ps_roi_align(x, b, 2), "ps_roi_align"),
        (lambda x, b: torchvision.ops.ps_roi_pool(x, b, 2), "ps_roi_pool"),
        (lambda x, b: torch.ops.torchvision.roi_align(x, b, 1.0, 2, 2, -1, True), "roi_align"),
        (lambda x, _: torchvision.ops.deform_conv2d(x, x.new_zeros(1, 18, 6, 6), x[:, :, :3, :3]), "deform_conv2d"),
    ],
)
def test_backward_calls_the_operator_of_backward(
    run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], operator: str
) -> None:
    features = torch.zeros(1, 4, 8, 8, requires_grad=True)

    def step(x: torch.Tensor, boxes: torch.Tensor) -> None:
        run(x, boxes).sum().backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape

    calls = recorded(step, features, BOXES, grad=True).calls
    names = [entry.call.route.name for entry in calls]
    assert f"torchvision::{operator}" in names
    assert f"torchvision::_{operator}_backward" in names
