"""Weights that are tensors around tensors, as those of quantizers, are followed part by part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map

import opcheck
from opcheck.capture.child.move import Mover
from opcheck.simulator.dispatch.tensor import is_on_mps


class Scaled(torch.Tensor):
    """An int8 tensor with a scale, written as torchao writes its tensors."""

    values: Any
    scale: torch.Tensor

    @staticmethod
    def __new__(cls: Any, values: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=scale.dtype, device=values.device)

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self.values, self.scale = values, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, _context: Any, _size: Any, _stride: Any) -> Scaled:
        return cls(inner["values"], inner["scale"])

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, bias = args
            return torch.mm(x, weight.values.t().to(x.dtype)) * weight.scale + bias
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any, kwargs: Any = None
    ) -> Any:
        if func not in {torch.ops.aten.detach.default, torch.ops.aten._to_copy.default}:
            raise NotImplementedError(str(func))
        apart = tree_map(lambda each: each.values if isinstance(each, Scaled) else each, args)
        scale = func(args[0].scale, **(kwargs or {}))
        made = cls(func(*apart, **{k: v for k, v in (kwargs or {}).items() if k != "dtype"}), scale)
        return return_and_correct_aliasing(func, args, kwargs or {}, made)


def quantized() -> nn.Linear:
    model = nn.Linear(4, 3)
    weight = Scaled(torch.ones(3, 4, dtype=torch.int8), torch.ones(3))
    model.weight = nn.Parameter(weight, requires_grad=False)
    return model.eval()


def test_the_parts_of_a_wrapper_are_moved() -> None:
    model = quantized()
    model.other = nn.Linear(4, 3)
    model.other.weight = model.weight
    mover = Mover(100)
    mover.module(model)
    assert isinstance(model.weight, nn.Parameter)
    assert isinstance(model.weight, Scaled)
    assert is_on_mps(model.weight.values)
    assert is_on_mps(model.weight.scale)
    assert model.other.weight is model.weight
    assert {"weight.values", "weight.scale"} <= {*mover.names.values()}


def test_a_quantized_layer_is_audited_call_by_call() -> None:
    report = opcheck.audit(quantized(), (torch.ones(2, 4),), torch="2.13")
    assert report.headline == "runs natively"
    calls = {group.op: group for group in report.groups}
    assert {"aten::mm", "aten::_to_copy", "aten::mul.Tensor", "aten::t"} <= {*calls}
    assert "int8" in " ".join(calls["aten::t"].dtypes)


def test_a_model_of_torchao_is_audited_call_by_call() -> None:
    quantization = pytest.importorskip("torchao.quantization")
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).eval()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    report = opcheck.audit(model, (torch.ones(2, 64),), torch="2.13")
    assert report.headline == "runs natively"
    assert sum(group.count for group in report.groups if group.op == "aten::mm") == 2


def test_a_model_of_hqq_is_audited_call_by_call() -> None:
    hqq = pytest.importorskip("hqq.core.quantize")
    config = hqq.BaseQuantizeConfig(nbits=4, group_size=64)
    layer = hqq.HQQLinear(nn.Linear(64, 128), config, compute_dtype=torch.float16, device="cpu")
    report = opcheck.audit(layer, (torch.ones(2, 64, dtype=torch.float16),), torch="2.5")
    assert "aten::__rshift__.Scalar" in {group.op for group in report.groups}
