"""torchvision where its compiled part does not load: its operators have values, and its models run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from opcheck.capture.child.extensions import prepare_torchvision
from opcheck.device.emulator.child import vision_kernels as kernels

STANDS_IN = prepare_torchvision()

SHAPE = (3, 2)


@pytest.fixture
def image() -> torch.Tensor:
    return torch.rand(2, 4, 9, 7, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def rois() -> torch.Tensor:
    return torch.tensor([[0, 0.3, 1.2, 5.5, 6.7], [1, -1, 2, 9, 12], [1, 3, 3, 3, 3]])


@pytest.mark.parametrize("ratio", [2, -1])
@pytest.mark.parametrize("aligned", [True, False])
def test_roi_align_is_torchvisions_own_formula(
    image: torch.Tensor, rois: torch.Tensor, ratio: int, *, aligned: bool
) -> None:
    from torchvision.ops import roi_align

    formula = sys.modules["torchvision.ops.roi_align"]._roi_align
    formula = getattr(formula, "__wrapped__", formula)
    theirs = formula(image, rois, 0.7, *SHAPE, ratio, aligned)
    ours = kernels._roi_align(image, rois, 0.7, *SHAPE, ratio, aligned)
    assert callable(roi_align)
    torch.testing.assert_close(ours, theirs)


def test_nms_keeps_the_best_of_those_that_overlap() -> None:
    boxes = torch.tensor([[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30.0]])
    scores = torch.tensor([0.5, 0.9, 0.1])
    assert kernels._nms(boxes, scores, 0.5).tolist() == [1, 2]
    assert kernels._nms(boxes, scores, 0.7).tolist() == [1, 0, 2]
    assert kernels._nms(boxes[:0], scores[:0], 0.5).tolist() == []
    assert kernels._nms(boxes.half(), scores.half(), 0.5).tolist() == [1, 2]


def test_roi_pool_of_a_whole_image_is_its_adaptive_maximum(image: torch.Tensor) -> None:
    whole = torch.tensor([[0.0, 0, 0, 6, 8]])
    pooled, places = kernels._roi_pool(image, whole, 1.0, *SHAPE)
    torch.testing.assert_close(pooled[0], torch.nn.functional.adaptive_max_pool2d(image[0], SHAPE))
    flat = image[0].reshape(4, -1).gather(1, places[0].reshape(4, -1).long())
    assert torch.equal(flat.reshape(pooled[0].shape), pooled[0])


def test_ps_roi_pool_of_a_whole_image_is_the_mean_of_each_bins_channel() -> None:
    image = torch.arange(4.0).reshape(1, 4, 1, 1).expand(1, 4, 8, 8).contiguous()
    whole = torch.tensor([[0.0, 0, 0, 8, 8]])
    expected = torch.tensor([[[0.0, 1], [2, 3]]])
    for result in (kernels._ps_roi_pool(image, whole, 1.0, 2, 2), kernels._ps_roi_align(image, whole, 1.0, 2, 2, 2)):
        assert torch.equal(result[0][0], expected)
        assert torch.equal(result[1][0], expected.int())


def test_deform_conv2d_without_offsets_is_a_convolution(image: torch.Tensor) -> None:
    weight, bias = torch.rand(6, 2, 3, 3), torch.rand(6)
    expected = torch.nn.functional.conv2d(image, weight, bias, stride=2, padding=1, groups=2)
    offset = torch.zeros(2, 18, *expected.shape[2:])
    mask = torch.ones(2, 9, *expected.shape[2:])
    window = (2, 2, 1, 1, 1, 1, 2, 1)
    result = kernels._deform_conv2d(image, weight, offset, mask, bias, *window, True)
    torch.testing.assert_close(result, expected)
    shifted = kernels._deform_conv2d(image, weight, offset + 1, mask, bias, *window, False)
    moved = torch.nn.functional.conv2d(
        torch.nn.functional.pad(image, (0, 1, 0, 1))[:, :, 1:, 1:], weight, bias, 2, 1, groups=2
    )
    torch.testing.assert_close(shifted[:, :, 1:, 1:], moved[:, :, 1:, 1:])


def test_the_backward_kernels_are_the_gradients(image: torch.Tensor, rois: torch.Tensor) -> None:
    leaf = image.double().requires_grad_()
    rois = rois.double()
    shape = tuple(leaf.shape)
    out = kernels._roi_align(leaf, rois, 1.0, *SHAPE, 2, True)
    grad = torch.rand_like(out)
    (expected,) = torch.autograd.grad(out, leaf, grad)
    result = kernels._KERNELS["_roi_align_backward"](grad, rois, 1.0, *SHAPE, *shape, 2, True)
    torch.testing.assert_close(result, expected)
    for name, samples in (("_ps_roi_align", (2,)), ("_ps_roi_pool", ())):
        out, channels = getattr(kernels, name)(leaf, rois, 1.0, 2, 2, *samples)
        own = torch.rand_like(out)
        (expected,) = torch.autograd.grad(out, leaf, own)
        backward = kernels._KERNELS[f"{name}_backward"]
        result = backward(own, rois, channels, 1.0, 2, 2, *samples, *shape)
        torch.testing.assert_close(result, expected)
    pooled, places = kernels._roi_pool(leaf, rois, 1.0, *SHAPE)
    (expected,) = torch.autograd.grad(pooled, leaf, grad)
    result = kernels._roi_pool_backward(grad, rois, places, 1.0, *SHAPE, *shape)
    torch.testing.assert_close(result, expected)


_PROGRAM = """
import torch
from torchvision.models.detection import ssdlite320_mobilenet_v3_large as make
from torchvision.ops import deform_conv2d, roi_align

torch.manual_seed(0)
model = make(weights=None, weights_backbone=None, num_classes=3).to("mps").eval()
with torch.no_grad():
    (found,) = model([torch.rand(3, 64, 64, device="mps")])
print(found["boxes"].device, found["boxes"].shape[1])
x = torch.rand(1, 4, 8, 8, device="mps", requires_grad=True)
roi_align(x, torch.tensor([[0.0, 1, 1, 6, 6]], device="mps"), 2).sum().backward()
print(round(x.grad.sum().item(), 3))
"""


@pytest.mark.skipif(not STANDS_IN, reason="torchvision's compiled part loads here")
def test_a_detection_model_runs_and_its_nms_is_judged_by_torchvisions_wheel(tmp_path: Path) -> None:
    (tmp_path / "detect.py").write_text(_PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "opcheck", "run", "--torch=2.13", "-o", "report.json", "detect.py"]  # fmt: skip
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["mps:0", "4", "16.0"]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    (nms,) = (group for group in report["calls"] if group["op"] == "torchvision::nms")
    assert nms["status"] == "native"
    assert "torchvision" in nms["because"]
    assert any("compiled part" in sentence for sentence in report["not_checked"])
