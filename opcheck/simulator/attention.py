"""Scaled dot product attention on MPS: aten/src/ATen/native/transformers/attention.cpp, in six forms by release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.tracing.torch_private.dispatch import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.simulator.target_queries import TargetQueries

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_5, _V2_6, _V2_7, _V2_12, _V2_14 = (Version(2, minor) for minor in (5, 6, 7, 12, 14))


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether autograd records what is computed from these: GradMode and requires_grad, tensor by tensor."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _on_metal(target: Target, contiguous: bool, drops: bool) -> bool:
    """Of inputs of which autograd records nothing."""
    if not _V2_5 <= target.torch < _V2_12:
        return target.torch >= _V2_12
    return not drops and (contiguous or (target.torch >= _V2_6 and target.macos >= Version(15, 0)))


def _knows_groups(target: Target) -> bool:
    return target.torch >= _V2_5


def _repeats_groups(target: Target) -> bool:
    return _V2_7 <= target.torch < _V2_12


def _passes_gqa(target: Target) -> bool:
    return target.torch >= _V2_12


def _adds_a_batch(target: Target) -> bool:
    return target.torch >= _V2_14


def scaled_dot_product_attention(ask: TargetQueries) -> Callable[..., Tensor]:
    """The choice between the kernel of MPS and the composite, by release."""
    takes_gqa = "enable_gqa" in {
        argument.name
        for argument in schema_of(aten._scaled_dot_product_attention_math_for_mps.default).arguments
    }

    def on_metal(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> bool:
        if needs_grad(q, k, v):
            return False
        contiguous = q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
        return ask(_on_metal, contiguous, dropout_p != 0.0)

    def twin(
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
        if query.dim() == key.dim() == value.dim() == 3 and ask(_adds_a_batch):
            # sdp::normalize_unbatched_input: the function calls itself on 4-D tensors.
            out = twin(
                query.unsqueeze(0),
                key.unsqueeze(0),
                value.unsqueeze(0),
                attn_mask,
                dropout_p,
                is_causal,
                scale=scale,
                enable_gqa=enable_gqa,
            )
            return out.squeeze(0)
        if enable_gqa and not ask(_knows_groups):
            # The argument came with 2.5: under an earlier torch libraries that ask its version repeat the heads.
            key, value = (_repeated(t, query.size(-3) // t.size(-3)) for t in (key, value))
            enable_gqa = False
        mask = _additive(attn_mask, query.dtype)
        if not on_metal(query, key, value, dropout_p):
            gqa = {"enable_gqa": enable_gqa} if enable_gqa else {}
            return aten._scaled_dot_product_attention_math.default(
                query, key, value, mask, dropout_p, is_causal, None, scale=scale, **gqa
            )[0]
        options: dict[str, Any] = {"scale": scale}
        if enable_gqa and ask(_repeats_groups):
            groups = query.size(-3) // key.size(-3)
            key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
        elif enable_gqa and takes_gqa and ask(_passes_gqa):
            options["enable_gqa"] = True
        return aten._scaled_dot_product_attention_math_for_mps.default(
            query, key, value, mask, dropout_p, is_causal, None, **options
        )[0]

    return twin


def _repeated(heads: Tensor, times: int) -> Tensor:
    *batch, count, length, width = heads.shape
    apart = heads.unsqueeze(-3).expand(*batch, count, times, length, width)
    return apart.reshape(*batch, count * times, length, width)


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # attention.cpp, convert_boolean_attn_mask: a boolean mask becomes an additive one in front of the branch.
    if mask is None or mask.dtype is not torch.bool:
        return mask
    options = {"dtype": dtype, "device": mask.device}
    low = aten.scalar_tensor.default(float("-inf"), **options)
    zero = aten.scalar_tensor.default(0.0, **options)
    return aten.where.self(mask, zero, low)


def math_before_2_5(
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
    """``_scaled_dot_product_attention_math`` of 2.0 to 2.4: in the inputs' own dtype, with a plain softmax.

    Since 2.5 it computes float16 and bfloat16 in float32, and calls ``_safe_softmax``.
    """
    factor = (query.size(-1) ** -0.5 if scale is None else abs(scale)) ** 0.5
    query = aten.mul.Scalar(query, -factor if scale is not None and scale < 0 else factor)
    if is_causal:
        shape = [query.size(-2), key.size(-2)]
        ones = torch.ones(shape, dtype=torch.bool, device=query.device)
        attn_mask = _additive(ones.tril(), query.dtype)
    weights = torch.matmul(query, aten.mul.Scalar(key.transpose(-2, -1), factor))
    if attn_mask is not None:
        weights = weights.add_(attn_mask)
    weights = torch.softmax(weights, -1)
    if dropout_p > 0.0:
        weights = torch.dropout(weights, dropout_p, train=True)
    return torch.matmul(weights, value), weights
