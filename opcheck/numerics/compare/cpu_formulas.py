"""Operators that only a GPU has, or that take what a GPU made, written with those of the CPU: the operator's formula.

Each returns the results that can be held against the device's, which come first; what comes after them (the state of a
generator, sums that a backward reads) is the kernel's own.  Arguments go by the names of the schema, which are the same in
torch 2.8 to 2.15 (native_functions.yaml).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from opcheck.numerics.float64 import Call

aten = torch.ops.aten

Given = Mapping[str, Any]


def kernel_for(func: Any) -> Callable[..., Any]:
    """What makes the operator's results on the CPU: the operator itself, or a formula of this module."""
    formula = FORMULAS.get(func.name())
    if formula is None:
        own: Callable[..., Any] = func
        return own
    return lambda *args, **kwargs: formula(Call(func, args, kwargs).arguments())


def _weights(given: Given) -> torch.Tensor:
    """How much each query takes of each value (torch/nn/functional.py, scaled_dot_product_attention)."""
    if given["dropout_p"]:
        raise NotImplementedError("its dropout draws other numbers than the CPU's")
    query, key = given["query"], _shared(given, "key")
    scores = query @ key.mT * _scale(given)
    if given["is_causal"]:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    bias = given.get("attn_bias", given.get("attn_mask"))
    if bias is not None:
        boolean = bias.dtype == torch.bool
        scores = scores.masked_fill(~bias, -math.inf) if boolean else scores + bias
    return scores.softmax(-1)


def _scale(given: Given) -> float:
    scale: float | None = given["scale"]
    return 1 / math.sqrt(given["query"].shape[-1]) if scale is None else scale


def _shared(given: Given, name: str) -> torch.Tensor:
    """Heads that several heads of the query share, once for each."""
    tensor: torch.Tensor = given[name]
    return tensor.repeat_interleave(given["query"].shape[-3] // tensor.shape[-3], -3)


def _attention(given: Given) -> tuple[torch.Tensor]:
    return (_weights(given) @ _shared(given, "value"),)


def _attention_backward(given: Given) -> tuple[torch.Tensor, ...]:
    """The derivative of the formula above; below a dispatch mode there is no autograd to take it."""
    query, key, value = given["query"], given["key"], given["value"]
    if key.shape[-3] != query.shape[-3]:
        raise NotImplementedError("several heads share one")
    grad = given["grad_out"] if "grad_out" in given else given["grad_out_"]
    weights, factor = _weights(given), _scale(given)
    wanted = grad @ value.mT
    scores = weights * (wanted - (wanted * weights).sum(-1, keepdim=True))
    return scores @ key * factor, scores.mT @ query * factor, weights.mT @ grad


def _convolution(given: Given) -> Any:
    return aten.convolution(
        *(given[name] for name in ("self", "weight", "bias", "stride", "padding", "dilation")),
        transposed=False,
        output_padding=[0] * len(given["padding"]),
        groups=given["groups"],
    )


def _convolution_backward(given: Given) -> Any:
    return aten.convolution_backward(
        *(given[name] for name in ("grad_output", "self", "weight")),
        bias_sizes=[given["grad_output"].shape[1]],
        **{name: given[name] for name in ("stride", "padding", "dilation", "groups")},
        transposed=False,
        output_padding=[0] * len(given["padding"]),
        output_mask=given["output_mask"],
    )


def _linear_backward(given: Given) -> tuple[torch.Tensor, ...]:
    inputs, grad, weight = given["self"], given["grad_output"], given["weight"]
    rows, columns = inputs.flatten(0, -2), grad.flatten(0, -2)
    gradients = grad @ weight, columns.mT @ rows, columns.sum(0)
    return tuple(itertools.compress(gradients, given["output_mask"]))


def _log_sigmoid_backward(given: Given) -> tuple[torch.Tensor]:
    """Without the buffer, which the forward of the CPU alone fills (native/Activation.cpp)."""
    return (given["grad_output"] * torch.sigmoid(-given["self"]),)


FORMULAS: dict[str, Callable[[Given], Any]] = {
    "aten::_scaled_dot_product_flash_attention": _attention,
    "aten::_scaled_dot_product_efficient_attention": _attention,
    "aten::_scaled_dot_product_cudnn_attention": _attention,
    "aten::_scaled_dot_product_attention_math_for_mps": _attention,
    "aten::_scaled_dot_product_flash_attention_backward": _attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "aten::_mps_convolution": _convolution,
    "aten::mps_convolution_backward": _convolution_backward,
    "aten::linear_backward": _linear_backward,
    "aten::log_sigmoid_backward": _log_sigmoid_backward,
}
