"""Convolutions: aten/src/ATen/native/Convolution.cpp and mps/operations/Convolution.mm (1.13 to 2.15)."""

from typing import Any

import torch

from opcheck.common.versions import Target, Version
from opcheck.simulator.dispatch.operators.operator import (
    Calls,
    Given,
    Results,
    alike,
    fact,
    type_name,
)
from opcheck.simulator.dispatch.tensor_meta import TensorMeta, contiguous, spec_of
from opcheck.simulator.target_reads import TargetQueries

aten = torch.ops.aten
Tensor = torch.Tensor
_TRANSPOSED, _NOT_TRANSPOSED = True, False
_SIZES = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


@fact(
    "metadata",
    "aten::convolution",
    "aten::_slow_conv2d_forward",
    "aten::_mps_convolution",
    "aten::_mps_convolution_transpose",
)
def _metadata(arguments: Given, ask: TargetQueries) -> Results:
    tensors = arguments["input"] if "input" in arguments else arguments["self"], arguments["weight"]
    metas = [t.meta() if t is not None else None for t in (*tensors, arguments.get("bias"))]
    nothing = [0] * len(arguments["padding"])
    sizes = {"dilation": [1, 1], "groups": 1, "output_padding": nothing}
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
def _backward_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    grad = arguments["grad_output"]
    bias = contiguous((grad.shape[1],), grad.dtype)
    return (alike(arguments["self"]), alike(arguments["weight"]), bias)


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


_PASSES = {
    name: {"self": "input"}
    for name in (
        "aten::_mps_convolution",
        "aten::_mps_convolution_transpose",
        "aten::mps_convolution_backward",
        "aten::mps_convolution_transpose_backward",
    )
}


@fact("text", "aten::convolution")
def _type_text(tensors: Any) -> str:
    # Convolution.cpp, check_input_same_type_as_parameters
    kinds = [type_name(tensor) for tensor in tensors]
    name, kind = ("weight", kinds[1]) if kinds[0] != kinds[1] else ("bias", kinds[2])
    return f"Input type ({kinds[0]}) and {name} type ({kind}) should be the same"


# -- emulation ----------------------------------------------------------------------------------------------


@fact("emulate", "aten::_mps_convolution")
def _emulate(
    x: Tensor, weight: Tensor, bias: Any, padding: Any, stride: Any, dilation: Any, groups: int
) -> Tensor:
    settings = (stride, padding, dilation, _NOT_TRANSPOSED, [0] * len(padding), groups)
    return aten.convolution.default(x, weight, bias, *settings)


@fact("emulate", "aten::_mps_convolution_transpose")
def _emulate_transposed(
    x: Tensor, weight: Tensor, padding: Any, more: Any, stride: Any, dilation: Any, groups: int
) -> Tensor:
    settings = (stride, padding, dilation, _TRANSPOSED, more, groups)
    return aten.convolution.default(x, weight, None, *settings)


@fact("emulate", "aten::mps_convolution_backward")
def _emulate_backward(
    x: Tensor, grad: Tensor, weight: Tensor, padding: Any, stride: Any, *rest: Any
) -> Any:
    dilation, groups, mask = rest
    sizes = (stride, padding, dilation, _NOT_TRANSPOSED, [0] * len(padding), groups)
    return aten.convolution_backward.default(grad, x, weight, [weight.shape[0]], *sizes, mask)


@fact("emulate", "aten::mps_convolution_transpose_backward")
def _emulate_transposed_backward(
    x: Tensor, grad: Tensor, weight: Tensor, padding: Any, more: Any, stride: Any, *rest: Any
) -> Any:
    dilation, groups, mask = rest
    sizes = (stride, padding, dilation, _TRANSPOSED, more, groups)
    return aten.convolution_backward.default(grad, x, weight, None, *sizes, [*mask, False])[:2]
