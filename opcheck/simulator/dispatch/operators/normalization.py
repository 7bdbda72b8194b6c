"""Normalizations, and the kernels of them that a Mac registers from Python."""

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import (
    fact,
    needs_grad,
)
from opcheck.tracing.torch_private import dispatch

aten = torch.ops.aten
Tensor = torch.Tensor


def _fused_rms_norm(target: Target, plain: bool) -> str:
    """With a weight and without grad: the operator, or else the kernel without an operator, or neither.

    Args:
        target: the release.
        plain: the weight has the input's dtype, and the input is not channels-last alone.
    """
    if target.torch >= Version(2, 9) and not plain:
        return "composite"
    # 2.7 calls the Metal kernel without an operator: only the allocation is an operator.
    return "operator" if target.torch >= Version(2, 8) else "allocation"


@fact("branch", "aten::rms_norm")
def _rms_norm(
    context: DispatchContext,
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    way = "composite"
    if (
        weight is not None
        and x.is_floating_point()
        and weight.is_floating_point()
        and not needs_grad(x, weight)
    ):
        channels_last = x.dim() in (4, 5) and x.is_contiguous(
            memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        )
        plain = weight.dtype == x.dtype and not (channels_last and not x.is_contiguous())
        way = context.ask(_fused_rms_norm, plain)
    if way == "operator":
        return aten._fused_rms_norm.default(x.contiguous(), normalized_shape, weight, eps)[0]
    if way == "allocation":
        return torch.empty_like(x)
    return _rms_norm_composite(x, normalized_shape, weight, eps)


def _rms_norm_composite(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None, eps: float | None
) -> Tensor:
    # layer_norm.cpp, rms_norm_composite: the mean of squares in float32 for float16 and bfloat16.
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    compute = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    if eps is None:
        eps = torch.finfo(compute).eps
    upcast = x.to(compute)
    rrms = aten.rsqrt.default(
        aten.add_.Scalar(aten.mean.dim(aten.pow.Tensor_Scalar(upcast, 2), dims, True), eps)
    )
    result = aten.mul.Tensor(upcast, rrms).type_as(x)
    return result if weight is None else aten.mul.Tensor(result, weight)


fact("python_kernel", "aten::native_group_norm")(dispatch.group_norm_in_python)
fact("python_kernel", "aten::native_group_norm_backward")(dispatch.group_norm_backward_in_python)
fact("python_kernel", "aten::var_mean.correction")(dispatch.var_mean_in_python)
