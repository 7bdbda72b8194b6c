"""Functions of each element, and random numbers."""

from __future__ import annotations

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import (
    Branch,
    Calls,
    Given,
    Operator,
    composite,
    make_like,
)
from opcheck.simulator.target_reads import is_before

aten = torch.ops.aten
Tensor = torch.Tensor
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _ldexp(arguments: Given, product: str) -> Calls:
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


def _dropout(context: DispatchContext, x: Tensor, p: float, train: bool) -> Tensor:
    # Dropout.cpp, is_fused_kernel_acceptable, whose MPS case is new in 2.15
    fits = train and 0 < p < 1 and x.numel() > 0 and x.dtype in _FLOATS and _is_dense(x)
    if fits and not context.ask(is_before, Version(2, 15)):
        return aten.native_dropout.default(x, p, train)[0]
    return composite(aten.dropout.default, x, p, train)


OPERATORS = (
    # Loops that end after so many steps, or when every sequence has ended, do not rest on a guess.
    Operator(("aten::bitwise_or.Tensor", "aten::logical_or"), absorbing=True),
    Operator(("aten::bitwise_and.Tensor", "aten::logical_and"), absorbing=False),
    Operator(
        ("aten::ldexp.Tensor",), body=lambda arguments, _ask: _ldexp(arguments, "aten::mul.Tensor")
    ),
    Operator(
        ("aten::ldexp.out", "aten::ldexp_"),
        body=lambda arguments, _ask: _ldexp(arguments, "aten::mul.out"),
    ),
    # Without values the gradients are taken to be finite, so that torch.amp.GradScaler takes the
    # step (torch/amp/grad_scaler.py).
    Operator(("aten::_amp_foreach_non_finite_check_and_unscale_",), keeps_values_of=frozenset({1})),
    Operator(
        ("aten::dropout",),
        branch=Branch(_dropout, "native/Dropout.cpp: native_dropout on MPS, since 2.15"),
    ),
    # mps/operations/Distributions.mm and native/Distributions.cpp; torch 2.9 has no meta kernel of
    # _standard_gamma.
    Operator(("aten::_dirichlet_grad",), metadata=make_like("x")),
    Operator(
        ("aten::_sample_dirichlet", "aten::_standard_gamma", "aten::_standard_gamma_grad"),
        metadata=make_like("self"),
    ),
    Operator(("aten::binomial",), metadata=make_like("count")),
)
