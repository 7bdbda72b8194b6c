"""Scaled dot product attention: aten/src/ATen/native/transformers/attention.cpp, in six forms by release."""

from typing import Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import (
    Given,
    Results,
    fact,
    needs_grad,
)
from opcheck.simulator.dispatch.tensor_meta import contiguous
from opcheck.simulator.target_reads import TargetQueries, is_before
from opcheck.tracing.torch_private.dispatch import schema_of

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_5, _V2_6, _V2_7, _V2_12, _V2_14 = (Version(2, minor) for minor in (5, 6, 7, 12, 14))
_TAKES_GQA = "enable_gqa" in {
    argument.name
    for argument in schema_of(aten._scaled_dot_product_attention_math_for_mps.default).arguments
}


def _on_metal(target: Target, contiguous: bool, drops: bool) -> bool:
    """Return whether the MPS kernel takes inputs that autograd does not record."""
    if not _V2_5 <= target.torch < _V2_12:
        return target.torch >= _V2_12
    return not drops and (contiguous or (target.torch >= _V2_6 and target.macos >= Version(15, 0)))


@fact("branch", "aten::scaled_dot_product_attention")
def _attention(
    context: DispatchContext,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Choose between the kernel of MPS and the composite."""
    ask = context.ask
    inputs = (query, key, value)
    if all(tensor.dim() == 3 for tensor in inputs) and not ask(is_before, _V2_14):
        # sdp::normalize_unbatched_input: the function calls itself on 4-D tensors.
        q, k, v = (tensor.unsqueeze(0) for tensor in inputs)
        options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
        out = _attention(context, q, k, v, attn_mask, dropout_p, is_causal, **options)
        return out.squeeze(0)
    if enable_gqa and ask(is_before, _V2_5):
        # The argument came with 2.5: under an earlier torch libraries that ask its version repeat
        # the heads.
        key, value = (_repeat_heads(t, query.size(-3) // t.size(-3)) for t in (key, value))
        enable_gqa = False
    rest = (_additive(attn_mask, query.dtype), dropout_p, is_causal, None)
    on_metal = not needs_grad(query, key, value) and ask(
        _on_metal, all(t.is_contiguous() for t in (query, key, value)), dropout_p != 0.0
    )
    options = {"scale": scale}
    if not on_metal:
        options |= {"enable_gqa": enable_gqa} if enable_gqa else {}
        math = aten._scaled_dot_product_attention_math.default
        return math(query, key, value, *rest, **options)[0]
    if enable_gqa and ask(is_before, _V2_12):
        # 2.5 and 2.6 hand the heads on as they are.
        if not ask(is_before, _V2_7):
            groups = query.size(-3) // key.size(-3)
            key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
    elif enable_gqa and _TAKES_GQA:
        options["enable_gqa"] = True
    kernel = aten._scaled_dot_product_attention_math_for_mps.default
    return kernel(query, key, value, *rest, **options)[0]


def _repeat_heads(heads: Tensor, times: int) -> Tensor:
    *batch, count, length, width = heads.shape
    apart = heads.unsqueeze(-3).expand(*batch, count, times, length, width)
    return apart.reshape(*batch, count * times, length, width)


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # attention.cpp, convert_boolean_attn_mask: a boolean mask becomes additive before
    # the branch.
    if mask is None or mask.dtype is not torch.bool:
        return mask
    options = {"dtype": dtype, "device": mask.device}
    low = aten.scalar_tensor.default(float("-inf"), **options)
    return aten.where.self(mask, aten.scalar_tensor.default(0.0, **options), low)


@fact("branch", "aten::_scaled_dot_product_attention_math")
def _math_before_2_5(
    _context: DispatchContext,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    _dropout_mask: Tensor | None = None,
    *,
    scale: float | None = None,
    **_later: Any,
) -> tuple[Tensor, Tensor]:
    """Compute as 2.0 to 2.4 do; since 2.5 float16 and bfloat16 become float32, and ``_safe_softmax`` is called."""
    factor = (query.size(-1) ** -0.5 if scale is None else abs(scale)) ** 0.5
    query = aten.mul.Scalar(query, -factor if scale is not None and scale < 0 else factor)
    if is_causal:
        ones = torch.ones([query.size(-2), key.size(-2)], dtype=torch.bool, device=query.device)
        attn_mask = _additive(ones.tril(), query.dtype)
    weights = torch.matmul(query, aten.mul.Scalar(key.transpose(-2, -1), factor))
    if attn_mask is not None:
        weights = weights.add_(attn_mask)
    weights = torch.softmax(weights, -1)
    if dropout_p > 0.0:
        weights = torch.dropout(weights, dropout_p, train=True)
    return torch.matmul(weights, value), weights


@fact("metadata", "aten::_scaled_dot_product_attention_math_for_mps")
def _metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # mps/operations/Attention.mm (2.13): the output has the query's leading dimensions, the weights
    # are not kept.
    query, key, value = arguments["query"], arguments["key"], arguments["value"]
    rows = query.shape[:-1]
    return tuple(
        contiguous((*rows, width), query.dtype) for width in (value.shape[-1], key.shape[-2])
    )


@fact("emulate", "aten::_scaled_dot_product_attention_math_for_mps")
def _emulate(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
    # The seventh argument, dropout_mask, is the composite's own.
    attend = torch.nn.functional.scaled_dot_product_attention
    out = attend(query, key, value, *rest[:3], **options)
    # No code reads the weights, which are the kernel's own.
    return out, query.new_empty((*query.shape[:-1], key.shape[-2]))
