"""Layers and their losses: attention, convolution, normalization, dropout, and functions of each element."""

import functools
from typing import Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators import operator
from opcheck.simulator.dispatch.operators.operator import Calls, Given, Results, fact
from opcheck.simulator.dispatch.tensor_meta import TensorMeta, contiguous, spec_of
from opcheck.simulator.target_reads import TargetQueries, is_before
from opcheck.tracing.torch_private import dispatch
from opcheck.tracing.torch_private.dispatch import schema_of

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_5, _V2_6, _V2_7, _V2_12, _V2_14 = (Version(2, minor) for minor in (5, 6, 7, 12, 14))
_TAKES_GQA = "enable_gqa" in {
    argument.name for argument in schema_of(aten._scaled_dot_product_attention_math_for_mps.default).arguments
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
    on_metal = not operator.needs_grad(query, key, value) and ask(
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
    return tuple(contiguous((*query.shape[:-1], width), query.dtype) for width in (value.shape[-1], key.shape[-2]))


@fact("emulate", "aten::_scaled_dot_product_attention_math_for_mps")
def _emulate(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Any:
    # The seventh argument, dropout_mask, is the composite's own.
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, *rest[:3], **options)
    # No code reads the weights, which are the kernel's own.
    return out, query.new_empty((*query.shape[:-1], key.shape[-2]))


# -- convolutions: aten/src/ATen/native/Convolution.cpp and mps/operations/Convolution.mm (1.13 to 2.15) --

_SIZES = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


@fact(
    "metadata",
    "aten::convolution",
    "aten::_slow_conv2d_forward",
    "aten::_mps_convolution",
    "aten::_mps_convolution_transpose",
)
def _convolution_metadata(arguments: Given, ask: TargetQueries) -> Results:
    tensors = arguments["input"] if "input" in arguments else arguments["self"], arguments["weight"]
    metas = [t.meta() if t is not None else None for t in (*tensors, arguments.get("bias"))]
    sizes = {"dilation": [1, 1], "groups": 1, "output_padding": [0] * len(arguments["padding"])}
    # Of MPS's own kernels the transposed one alone has it.
    sizes["transposed"] = "output_padding" in arguments
    sizes |= {name: arguments[name] for name in _SIZES if name in arguments}
    out = aten.convolution.default(*metas, **sizes).contiguous()
    if out.dim() == 4 and any(map(_is_channels_last, tensors)) and ask(_keeps_channels_last):
        out = out.contiguous(memory_format=torch.channels_last)
    return (spec_of(out),)


def _is_channels_last(spec: TensorMeta) -> bool:
    # Convolution.cpp, determine_backend_memory_format: what the input or the weight suggests
    meta = spec.meta()
    return meta.is_contiguous(memory_format=torch.channels_last) and not meta.is_contiguous()


def _keeps_channels_last(target: Target) -> bool:
    # Convolution.mm: contiguous up to 2.7; 2.8 and 2.9 keep the format from macOS 15 on, later ones
    # always.
    since = Version(2, 8) if target.macos >= Version(15, 0) else Version(2, 10)
    return target.torch >= since


@fact("metadata", "aten::mps_convolution_backward")
def _convolution_backward_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    grad = arguments["grad_output"]
    bias = contiguous((grad.shape[1],), grad.dtype)
    return (operator.alike(arguments["self"]), operator.alike(arguments["weight"]), bias)


@fact("body", "aten::convolution", "aten::_convolution")
def _body(arguments: Given, _ask: TargetQueries) -> Calls:
    # Convolution.cpp, ``_convolution``: ConvBackend::Mps and MpsTranspose.  The transposed kernel
    # takes no bias, which is added.
    if not arguments.get("transposed", False):
        return ("aten::_mps_convolution",)
    added = ("aten::add_.Tensor",) if arguments.get("bias") is not None else ()
    return ("aten::_mps_convolution_transpose", *added)


@fact("body", "aten::convolution_backward")
def _backward_body(arguments: Given, _ask: TargetQueries) -> Calls:
    transposed = arguments.get("transposed", False)
    kernel = "mps_convolution_transpose_backward" if transposed else "mps_convolution_backward"
    bias = ("aten::sum.dim_IntList",) if arguments.get("output_mask", (True,) * 3)[2] else ()
    return (f"aten::{kernel}", *bias)


@fact("text", "aten::convolution")
def _type_text(tensors: Any) -> str:
    # Convolution.cpp, check_input_same_type_as_parameters
    kinds = [operator.type_name(tensor) for tensor in tensors]
    name, kind = ("weight", kinds[1]) if kinds[0] != kinds[1] else ("bias", kinds[2])
    return f"Input type ({kinds[0]}) and {name} type ({kind}) should be the same"


# -- emulation ----------------------------------------------------------------------------------------------


@fact("emulate", "aten::_mps_convolution")
def _emulate_convolution(x: Tensor, weight: Tensor, bias: Any, padding: Any, *settings: Any) -> Tensor:
    return aten.convolution.default(x, weight, bias, *_order_settings(padding, None, *settings))


@fact("emulate", "aten::_mps_convolution_transpose")
def _emulate_transposed(x: Tensor, weight: Tensor, *settings: Any) -> Tensor:
    return aten.convolution.default(x, weight, None, *_order_settings(*settings))


@fact("emulate", "aten::mps_convolution_backward")
def _emulate_backward(x: Tensor, grad: Tensor, weight: Tensor, padding: Any, *settings: Any) -> Any:
    *sizes, mask = settings
    ordered = _order_settings(padding, None, *sizes)
    return aten.convolution_backward.default(grad, x, weight, [weight.shape[0]], *ordered, mask)


@fact("emulate", "aten::mps_convolution_transpose_backward")
def _emulate_transposed_backward(x: Tensor, grad: Tensor, weight: Tensor, *settings: Any) -> Any:
    *sizes, mask = settings
    return aten.convolution_backward.default(grad, x, weight, None, *_order_settings(*sizes), [*mask, False])[:2]


def _order_settings(padding: Any, more: Any, stride: Any, dilation: Any, groups: int) -> tuple[Any, ...]:
    """Return settings in the order of aten::convolution; ``more`` is the output padding, None if not transposed."""
    return (stride, padding, dilation, more is not None, more or [0] * len(padding), groups)


# -- normalizations, and the kernels of them that a Mac registers from Python --


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
    context: DispatchContext, x: Tensor, shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    way = "composite"
    if weight is not None and all(map(torch.is_floating_point, (x, weight))) and not operator.needs_grad(x, weight):
        channels_last = x.dim() in (4, 5) and x.is_contiguous(
            memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        )
        plain = weight.dtype == x.dtype and not (channels_last and not x.is_contiguous())
        way = context.ask(_fused_rms_norm, plain)
    if way == "operator":
        return aten._fused_rms_norm.default(x.contiguous(), shape, weight, eps)[0]
    if way == "allocation":
        return torch.empty_like(x)
    # layer_norm.cpp, rms_norm_composite: the mean of squares in float32 for float16 and bfloat16.
    dims = list(range(x.dim() - len(shape), x.dim()))
    compute = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    if eps is None:
        eps = torch.finfo(compute).eps
    upcast = x.to(compute)
    rrms = aten.rsqrt.default(aten.add_.Scalar(aten.mean.dim(aten.pow.Tensor_Scalar(upcast, 2), dims, True), eps))
    result = aten.mul.Tensor(upcast, rrms).type_as(x)
    return result if weight is None else aten.mul.Tensor(result, weight)


fact("python_kernel", "aten::native_group_norm")(dispatch.group_norm_in_python)
fact("python_kernel", "aten::native_group_norm_backward")(dispatch.group_norm_backward_in_python)
fact("python_kernel", "aten::var_mean.correction")(dispatch.var_mean_in_python)


# -- losses and distances: aten/src/ATen/native/Loss.cpp, LossCTC.cpp, Distance.cpp --


@fact("branch", "aten::ctc_loss.IntList", "aten::ctc_loss.Tensor")
def _ctc_loss(
    _context: Any,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    # LossCTC.cpp: a subclass takes another way, with lengths that stay tensors, as no plain tensor
    # does.
    lengths = [
        value.cpu().reshape(-1).tolist() if isinstance(value, torch.Tensor) else list(value)
        for value in (input_lengths, target_lengths)
    ]
    batched = log_probs.dim() == 3
    if not batched:
        log_probs = log_probs.unsqueeze(1)
    targets = targets.to(device=log_probs.device, dtype=torch.int64)
    result = aten._ctc_loss.default(log_probs, targets, *lengths, blank, zero_infinity)[0]
    if zero_infinity:
        nothing = torch.zeros((), dtype=result.dtype, device=result.device)
        result = torch.where(result == float("inf"), nothing, result)
    if reduction == 1:
        sizes = torch.tensor(lengths[1], dtype=result.dtype).to(result.device)
        return (result / sizes.clamp_min_(1)).mean()
    if reduction == 2:
        return result.sum()
    return result if batched else result.squeeze(0)


@fact("branch", "aten::kl_div")
def _kl_div(_context: Any, x: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    # Loss.cpp of 1.13 and 2.0, which had no xlogy on MPS
    loss = torch.exp(target) * (target - x) if log_target else target * (torch.log(target) - x)
    if reduction == 0:
        return loss
    return loss.mean() if reduction == 1 else loss.sum()


@fact("branch", "aten::cosine_similarity")
def cosine_similarity(_context: Any, x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Compute as 1.13 and 2.0 do: the norms from squares, not by linalg_vector_norm (Distance.cpp)."""
    dtype = torch.result_type(x1, x2)
    shape = torch.broadcast_shapes(x1.shape, x2.shape)
    x1, x2 = x1.to(dtype).expand(shape), x2.to(dtype).expand(shape)
    squares = [x.pow(2).sum(dim, keepdim=True) for x in (x1, x2)]
    with torch.no_grad():
        for square in squares:
            square.clamp_min_(eps * eps)
    norms = [square.sqrt_() for square in squares]
    return ((x1 / norms[0]) * (x2 / norms[1])).sum(dim)


# -- functions of each element, and random numbers --

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
    return operator.composite(aten.dropout.default, x, p, train)


fact("body", "aten::ldexp.Tensor")(functools.partial(_ldexp, "aten::mul.Tensor"))
fact("body", "aten::ldexp.out", "aten::ldexp_")(functools.partial(_ldexp, "aten::mul.out"))
