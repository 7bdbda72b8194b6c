"""Functions of each element, and random numbers."""

import functools

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import (
    Calls,
    Given,
    composite,
    fact,
)
from opcheck.simulator.target_reads import TargetQueries, is_before

aten = torch.ops.aten
Tensor = torch.Tensor
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _ldexp(product: str, arguments: Given, _ask: TargetQueries) -> Calls:
    # BinaryOps.cpp, ``ldexp`` (2.13 to 2.15): integral exponents have a kernel of their own on the
    # CPU only.
    if arguments["self"].dtype not in (torch.float16, torch.bfloat16):
        return ("aten::pow.Scalar", product)
    return ("aten::empty.memory_format", "aten::fill_.Scalar", "aten::pow.Tensor_Tensor", product)


def _is_dense(x: Tensor) -> bool:
    # TensorImpl::is_non_overlapping_and_dense
    step = 1
    for stride, size in sorted((t, n) for t, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if stride != step:
            return False
        step *= size
    return True


@fact("branch", "aten::dropout")
def _dropout(context: DispatchContext, x: Tensor, p: float, train: bool) -> Tensor:
    # Dropout.cpp, is_fused_kernel_acceptable, whose MPS case is new in 2.15
    fits = train and 0 < p < 1 and x.numel() > 0 and x.dtype in _FLOATS and _is_dense(x)
    if fits and not context.ask(is_before, Version(2, 15)):
        return aten.native_dropout.default(x, p, train)[0]
    return composite(aten.dropout.default, x, p, train)


fact("body", "aten::ldexp.Tensor")(functools.partial(_ldexp, "aten::mul.Tensor"))
fact("body", "aten::ldexp.out", "aten::ldexp_")(functools.partial(_ldexp, "aten::mul.out"))
