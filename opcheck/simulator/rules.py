"""The metadata of results where torch has no meta kernel for an operator that MPS has, or another device's.

A rule takes the call's arguments and gives a Spec, or a list of them, for each result.  The files named are those of
aten/src/ATen/native/mps/operations/, read in 2.13 unless said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch_context import current
from opcheck.simulator.tensor_meta import Spec, contiguous, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from opcheck.simulator.tensor import MPSTensor

Specs = tuple[Any, ...]


def _like(spec: Spec) -> Spec:
    return contiguous(spec.shape, spec.dtype)


def _like_argument(*indices: int) -> Callable[..., Specs]:
    """Each result has shape and dtype of one argument."""

    def rule(*args: Any, **_kwargs: Any) -> Specs:
        return tuple(_like(args[index]._mps.spec) for index in indices)

    return rule


# -- matrix products, attention, recurrent --------------------------------------------------------------------


def _linear(x: MPSTensor, weight: MPSTensor, bias: MPSTensor | None = None) -> Specs:
    # aten/src/ATen/native/mps/operations/Linear.mm (2.13): the last dimension becomes out_features.
    if x._mps.spec.shape[-1:] != weight._mps.spec.shape[-1:]:
        # As the CPU says it, by way of the composite.
        bias_meta = None if bias is None else bias._mps.spec.meta()
        out = torch.nn.functional.linear(x._mps.spec.meta(), weight._mps.spec.meta(), bias_meta)
        return (spec_of(out),)
    return (contiguous((*x._mps.spec.shape[:-1], *weight._mps.spec.shape[:-1]), x._mps.spec.dtype),)


def _sdpa_for_mps(
    query: MPSTensor, key: MPSTensor, value: MPSTensor, *_args: Any, **_kwargs: Any
) -> Specs:
    # Attention.mm (2.13): the output has the query's leading dimensions, the attention matrix is not kept.
    lead, length = query._mps.spec.shape[:-2], query._mps.spec.shape[-2]
    out = contiguous((*lead, length, value._mps.spec.shape[-1]), query._mps.spec.dtype)
    weights = contiguous((*lead, length, key._mps.spec.shape[-2]), query._mps.spec.dtype)
    return (out, weights)


def _lstm_mps(x: MPSTensor, hx: list[MPSTensor], *rest: Any) -> Specs:
    # aten/src/ATen/native/mps/operations/RnnOps.mm (2.13), ``_lstm_mps``: output, h, c, z state, cell states,
    # outputs of the layers; the last three are the backward's.
    _params, _has_biases, layers, _dropout, _train, bidirectional, batch_first = rest
    batch, steps = x._mps.spec.shape[:2] if batch_first else x._mps.spec.shape[1::-1]
    ways = 2 if bidirectional else 1
    hidden, cell = hx[0]._mps.spec.shape[-1], hx[1]._mps.spec.shape[-1]
    lead = (batch, steps) if batch_first else (steps, batch)
    shapes = (
        (*lead, hidden * ways),
        (layers * ways, batch, hidden),
        (layers * ways, batch, cell),
        (layers * ways, steps, batch, 4 * cell),
        (layers * ways, steps, batch, cell),
        (layers, steps, batch, hidden * ways),
    )
    return tuple(contiguous(shape, x._mps.spec.dtype) for shape in shapes)


def _grouped_mm(
    first: MPSTensor, second: MPSTensor, offs: Any = None, *rest: Any, **options: Any
) -> Specs:
    # GroupedMMUtils.h (2.9 to 2.15).  The meta kernel takes bfloat16 alone, as CUDA's kernel did; the composite
    # and MPS's kernel take float32 and float16 too.
    a, b = first._mps.spec.shape, second._mps.spec.shape
    dtype = (
        options.get("out_dtype") or (rest[1] if len(rest) > 1 else None) or first._mps.spec.dtype
    )
    if len(a) == len(b) == 2:
        return (contiguous((offs._mps.spec.shape[0], a[0], b[1]), dtype),)
    lead = a[:2] if len(a) == len(b) else (a[-2],)
    return (contiguous((*lead, b[-1]), dtype),)


def _lstm_mps_backward(*args: Any, **_kwargs: Any) -> Specs:
    # RnnOps.mm: gradients of the input, of the states, and of the parameters, which have the shapes of these.
    x, hx, params = args[5], args[7], args[8]
    return (
        _like(x._mps.spec),
        [_like(t._mps.spec) for t in hx],
        [_like(t._mps.spec) for t in params],
    )


def _compute_linear_combination(x: MPSTensor, coefficients: MPSTensor) -> Specs:
    # LinearAlgebra.cpp, _compute_linear_combination
    return (
        contiguous((coefficients._mps.spec.shape[0], *x._mps.spec.shape[1:]), x._mps.spec.dtype),
    )


def _geqrf(x: MPSTensor) -> Specs:
    # BatchLinearAlgebra.cpp, geqrf: the factors, column-major, and tau
    *batch, rows, columns = x._mps.spec.shape
    flipped = contiguous((*batch, columns, rows), x._mps.spec.dtype).meta()
    tau = contiguous((*batch, min(rows, columns)), x._mps.spec.dtype)
    return (spec_of(flipped.transpose(-2, -1)), tau)


# -- convolution ----------------------------------------------------------------------------------------------


def _convolved(
    x: MPSTensor, weight: MPSTensor, bias: MPSTensor | None, sizes: dict[str, Any]
) -> Specs:
    metas = [None if tensor is None else tensor._mps.spec.meta() for tensor in (x, weight, bias)]
    out = torch.ops.aten.convolution.default(*metas, **sizes).contiguous()
    if (
        out.dim() == 4
        and any(_is_channels_last(t) for t in (x, weight))
        and current().ask(_keeps_channels_last)
    ):
        out = out.contiguous(memory_format=torch.channels_last)
    return (spec_of(out),)


def _is_channels_last(tensor: MPSTensor) -> bool:
    # Convolution.cpp, determine_backend_memory_format: what the input or the weight suggests
    meta = tensor._mps.spec.meta()
    return meta.is_contiguous(memory_format=torch.channels_last) and not meta.is_contiguous()


def _keeps_channels_last(target: Target) -> bool:
    # Convolution.mm: contiguous up to 2.7; 2.8 and 2.9 keep the format from macOS 15 on, later ones always.
    since = Version(2, 8) if target.macos >= Version(15, 0) else Version(2, 10)
    return target.torch >= since


_SIZES = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


def _convolution(
    x: MPSTensor, weight: MPSTensor, bias: MPSTensor | None, *rest: Any, **named: Any
) -> Specs:
    return _convolved(x, weight, bias, {**dict(zip(_SIZES, rest, strict=False)), **named})


def _mps_convolution(x: MPSTensor, weight: MPSTensor, bias: MPSTensor | None, *rest: Any) -> Specs:
    sizes = dict(zip(("padding", "stride", "dilation", "groups"), rest, strict=True))
    nothing = [0] * len(sizes["padding"])
    return _convolved(x, weight, bias, {**sizes, "transposed": False, "output_padding": nothing})


def _mps_convolution_transpose(x: MPSTensor, weight: MPSTensor, *rest: Any) -> Specs:
    names = ("padding", "output_padding", "stride", "dilation", "groups")
    return _convolved(x, weight, None, {**dict(zip(names, rest, strict=True)), "transposed": True})


def _slow_conv2d_forward(x: MPSTensor, weight: MPSTensor, *rest: Any) -> Specs:
    _kernel, bias, stride, padding = rest
    names = {"dilation": [1, 1], "transposed": False, "output_padding": [0, 0], "groups": 1}
    return _convolved(x, weight, bias, {"stride": stride, "padding": padding, **names})


def _mps_convolution_backward(x: MPSTensor, grad: MPSTensor, weight: MPSTensor, *_: Any) -> Specs:
    return (
        _like(x._mps.spec),
        _like(weight._mps.spec),
        contiguous((grad._mps.spec.shape[1],), grad._mps.spec.dtype),
    )


def _mps_convolution_transpose_backward(
    x: MPSTensor, _grad: MPSTensor, weight: MPSTensor, *_: Any
) -> Specs:
    return (_like(x._mps.spec), _like(weight._mps.spec))


# -- histograms -----------------------------------------------------------------------------------------------


def _histogram(x: MPSTensor, bins: Any = 100, **_kwargs: Any) -> Specs:
    # native/Histogram.cpp: a number of boxes, or their edges
    edges = bins + 1 if isinstance(bins, int) else bins._mps.spec.shape[0]
    return (contiguous((edges - 1,), x._mps.spec.dtype), contiguous((edges,), x._mps.spec.dtype))


def _bin_edges(x: MPSTensor, bins: list[int], **_kwargs: Any) -> Specs:
    return ([contiguous((count + 1,), x._mps.spec.dtype) for count in bins],)


def _histogram_of_counts(x: MPSTensor, bins: list[int], **_kwargs: Any) -> Specs:
    return (contiguous(tuple(bins), x._mps.spec.dtype),)


def _histogram_of_edges(x: MPSTensor, bins: list[MPSTensor], **_kwargs: Any) -> Specs:
    return (contiguous(tuple(t._mps.spec.shape[0] - 1 for t in bins), x._mps.spec.dtype),)


#: the table
def _masked_fill(x: MPSTensor, mask: MPSTensor, _value: Any) -> Specs:
    # torch/_refs/__init__.py lets a value on the CPU be without dimensions, but not beside a tensor on meta.
    return (spec_of(torch.masked_fill(x._mps.spec.meta(), mask._mps.spec.meta(), 0)),)


RULES: dict[str, Callable[..., Specs]] = {
    "aten::masked_fill.Tensor": _masked_fill,
    "aten::masked_fill_.Tensor": lambda x, *_: (x._mps.spec,),
    "aten::linear": _linear,
    "aten::_scaled_dot_product_attention_math_for_mps": _sdpa_for_mps,
    "aten::_lstm_mps": _lstm_mps,
    "aten::lstm_mps_backward": _lstm_mps_backward,
    "aten::_grouped_mm": _grouped_mm,
    "aten::_compute_linear_combination": _compute_linear_combination,
    "aten::geqrf": _geqrf,
    "aten::convolution": _convolution,
    "aten::_slow_conv2d_forward": _slow_conv2d_forward,
    "aten::_mps_convolution": _mps_convolution,
    "aten::_mps_convolution_transpose": _mps_convolution_transpose,
    "aten::mps_convolution_backward": _mps_convolution_backward,
    "aten::mps_convolution_transpose_backward": _mps_convolution_transpose_backward,
    # Pooling.mm: the gradient has the shape of the input.
    "aten::max_pool2d_backward": _like_argument(1),
    "aten::_copy_from": _like_argument(1),
    "aten::_copy_from_and_resize": _like_argument(0),
    # Distributions.mm and native/Distributions.cpp
    "aten::_dirichlet_grad": _like_argument(0),
    "aten::_sample_dirichlet": _like_argument(0),
    "aten::_standard_gamma": _like_argument(0),  # torch 2.9 has no meta kernel of it
    "aten::_standard_gamma_grad": _like_argument(0),
    "aten::binomial": _like_argument(0),
    "aten::_logcumsumexp": _like_argument(0),
    # native/WeightNorm.cpp: the gradients of v and g; torch 2.9 has no meta kernel of it
    "aten::_weight_norm_interface_backward": _like_argument(1, 2),
    # native/LossCTC.cpp: the gradient of log_probs
    "aten::_ctc_loss_backward": _like_argument(1),
    "aten::_ctc_loss_backward.Tensor": _like_argument(1),
    "aten::histogram.bin_ct": _histogram,
    "aten::histogram.bins_tensor": _histogram,
    "aten::_histogramdd_bin_edges": _bin_edges,
    "aten::_histogramdd_from_bin_cts": _histogram_of_counts,
    "aten::_histogramdd_from_bin_tensors": _histogram_of_edges,
}

_VALUES = "its shape is in the values: simulator/unbacked_values.py"
_HOST = "its result is a number of the host's, a guess where the values are not known"
_LAYOUT = "its result has a layout that is not simulated, which is said"

#: operators with a kernel on MPS that need neither a rule nor a meta kernel, and why
WITHOUT_RULE: dict[str, str] = {
    "aten::_unique": _VALUES,
    "aten::_unique2": _VALUES,
    "aten::unique_consecutive": _VALUES,
    "aten::unique_dim": _VALUES,
    "aten::unique_dim_consecutive": _VALUES,
    "aten::bincount": _VALUES,
    "aten::masked_select": _VALUES,
    "aten::equal": _HOST,
    "aten::is_set_to": _HOST,
    "aten::_to_sparse": _LAYOUT,
    "aten::_to_sparse.sparse_dim": _LAYOUT,
    "aten::_ctc_loss.Tensor": "not called: the twin of ctc_loss reads the lengths on the host",
}
