"""The operators that only MPS has a kernel for, computed by the CPU's own operators.

The results equal the CPU's bit for bit: the backward of a composite is what autograd derives from
that composite on the CPU.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.common.versions import Version
from opcheck.tracing.torch_private import dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Tensor = torch.Tensor
aten = torch.ops.aten
_CONVOLVE: Callable[..., Tensor] = aten.convolution.default
_TRANSPOSED, _NOT_TRANSPOSED = True, False

#: The state of the generator before a forward LSTM with dropout, by the address of its result.
_LSTM_STATES: dict[int, Tensor] = {}
_LSTM_STATES_KEPT = 256


@contextlib.contextmanager
def _autograd() -> Iterator[None]:
    """Turn on the CPU's own autograd, which is off below a dispatch mode, without function modes."""
    keys = dispatch.DispatchKey
    with (
        dispatch.without_function_modes(),
        dispatch.include_key(keys.AutogradFunctionality),
        dispatch.include_key(keys.ADInplaceOrView),
        torch.enable_grad(),
    ):
        yield


def gradients(
    forward: Callable[..., Any], inputs: Sequence[Tensor], wanted: Sequence[bool], *grads: Any
) -> list[Tensor | None]:
    """Differentiate on the CPU.

    Args:
        forward: a function of the inputs.
        inputs: its arguments.
        wanted: for each input, whether its gradient is wanted.
        grads: the gradient of each result; None for a result without one.

    Returns:
        For each input its gradient; None where it is not wanted or does not depend on a result.
    """
    with _autograd():
        leaves = [
            tensor.detach().requires_grad_(want)
            for tensor, want in zip(inputs, wanted, strict=True)
        ]
        outputs = forward(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        given = [(out, grad) for out, grad in zip(outputs, grads, strict=False) if grad is not None]
        asked = [leaf for leaf in leaves if leaf.requires_grad]
        if not asked or not given:
            return [None] * len(leaves)
        computed = iter(
            torch.autograd.grad(
                [out for out, _ in given], asked, [grad for _, grad in given], allow_unused=True
            )
        )
    return [next(computed) if leaf.requires_grad else None for leaf in leaves]


def _linear_backward(x: Tensor, grad: Tensor, weight: Tensor, mask: Sequence[bool]) -> Any:
    if not mask[2]:
        return (*gradients(torch.nn.functional.linear, (x, weight), mask[:2], grad), None)
    bias = grad.new_zeros(grad.shape[-1:])
    return tuple(gradients(torch.nn.functional.linear, (x, weight, bias), mask, grad))


def _max_pool2d_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - the operator's schema
) -> Tensor:
    rest = (kernel, stride, padding, dilation, ceil_mode)
    _, indices = aten.max_pool2d_with_indices.default(x, *rest)
    result: Tensor = aten.max_pool2d_with_indices_backward.default(grad, x, *rest, indices)
    return result


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - the operator's schema
    _dropout_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, **options
    )
    # The second result is only read by the kernel's own backward.
    return out, query.new_empty((*query.shape[:-1], key.shape[-2]))


def _lstm(x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], *rest: Any) -> Any:
    has_biases, layers, dropout, train, bidirectional, batch_first = rest
    state = torch.get_rng_state() if dropout and train else None
    with _autograd() if train else torch.no_grad():
        # The CPU runs another kernel where autograd records.
        weights = [p.detach().requires_grad_(train) for p in params]
        out, h, c = torch.lstm(x, list(hx), weights, *rest)
    del has_biases
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    ways = 2 if bidirectional else 1
    cell = hx[1].shape[-1]
    gates = x.new_empty((layers * ways, steps, batch, 4 * cell))
    if state is not None:
        _LSTM_STATES[gates.data_ptr()] = state
        if len(_LSTM_STATES) > _LSTM_STATES_KEPT:
            _LSTM_STATES.pop(next(iter(_LSTM_STATES)))
    cells = x.new_empty((layers * ways, steps, batch, cell))
    outputs = x.new_empty((layers, steps, batch, hx[0].shape[-1] * ways))
    return out.detach(), h.detach(), c.detach(), gates, cells, outputs


def _lstm_backward(
    grad_y: Tensor | None,
    grad_h: Tensor | None,
    grad_c: Tensor | None,
    gates: Tensor,
    _cells: Tensor,
    x: Tensor,
    _outputs: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    *rest: Any,
) -> tuple[Tensor | None, list[Tensor | None], list[Tensor | None]]:
    def forward(*tensors: Tensor) -> Any:
        return torch.lstm(tensors[0], list(tensors[1:3]), list(tensors[3:]), *rest)

    inputs = (x, *hx, *params)
    # The forward pass runs again for its gradients, with the numbers that its dropout drew.
    before, state = torch.get_rng_state(), _LSTM_STATES.get(gates.data_ptr())
    if state is not None:
        torch.set_rng_state(state)
    try:
        computed = gradients(forward, inputs, [True] * len(inputs), grad_y, grad_h, grad_c)
    finally:
        torch.set_rng_state(before)
    filled = [
        torch.zeros_like(tensor) if grad is None else grad
        for grad, tensor in zip(computed, inputs, strict=True)
    ]
    return filled[0], list(filled[1:3]), list(filled[3:])


# MPS has operators of its own for convolutions, whose arguments stand in another order than those
# of the CPU's.


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Any, *rest: Any) -> Any:
    stride, dilation, groups = rest
    none = [0] * len(padding)
    return _CONVOLVE(x, weight, bias, stride, padding, dilation, _NOT_TRANSPOSED, none, groups)


def _convolution_transpose(x: Tensor, weight: Tensor, padding: Any, more: Any, *rest: Any) -> Any:
    stride, dilation, groups = rest
    return _CONVOLVE(x, weight, None, stride, padding, dilation, _TRANSPOSED, more, groups)


def _convolution_backward(
    x: Tensor, grad: Tensor, weight: Tensor, padding: Any, *rest: Any
) -> tuple[Tensor | None, ...]:
    stride, dilation, groups, mask = rest
    how = (stride, padding, dilation, _NOT_TRANSPOSED, [0] * len(padding), groups, mask)
    gradients: tuple[Tensor | None, ...]
    gradients = aten.convolution_backward.default(grad, x, weight, [weight.shape[0]], *how)
    return gradients


def _convolution_transpose_backward(
    x: Tensor, grad: Tensor, weight: Tensor, padding: Any, more: Any, *rest: Any
) -> tuple[Tensor | None, ...]:
    stride, dilation, groups, mask = rest
    how = (stride, padding, dilation, _TRANSPOSED, more, groups, [*mask, False])
    gradients: tuple[Tensor | None, ...]
    gradients = aten.convolution_backward.default(grad, x, weight, None, *how)
    return gradients[:2]


def _copy_from(source: Tensor, target: Tensor, *non_blocking: bool) -> Tensor:
    return target.copy_(source, *non_blocking)


def _copy_from_and_resize(source: Tensor, target: Tensor) -> Tensor:
    return target.resize_(source.shape).copy_(source)


def _zeros(size: Any, **options: Any) -> Tensor:
    # A real one has no memory, and only the dispatcher's ZeroTensor key can read it.
    return torch.zeros(size, **options)


#: by operator overload, how the CPU computes it
NUMBERS: dict[str, Callable[..., Any]] = {
    "aten::linear_backward": _linear_backward,
    "aten::max_pool2d_backward": _max_pool2d_backward,
    "aten::_scaled_dot_product_attention_math_for_mps": _attention,
    "aten::_lstm_mps": _lstm,
    "aten::lstm_mps_backward": _lstm_backward,
    "aten::_mps_convolution": _convolution,
    "aten::_mps_convolution_transpose": _convolution_transpose,
    "aten::mps_convolution_backward": _convolution_backward,
    "aten::mps_convolution_transpose_backward": _convolution_transpose_backward,
    "aten::_efficientzerotensor": _zeros,
    "aten::_copy_from": _copy_from,
    "aten::_copy_from_and_resize": _copy_from_and_resize,
}


class Wider(NamedTuple):
    """How the CPU computes a dtype that a Mac's kernel takes and its own kernel refuses."""

    #: the first release whose kernel on MPS takes them
    since: Version
    function: Callable[..., Any]


def _histc(x: Tensor, *settings: Any, **named: Any) -> Tensor:
    counted: Tensor = aten.histc.default(x.double(), *settings, **named)
    return counted.to(x.dtype)


#: by operator overload
WIDER: dict[str, Wider] = {
    # mps/operations/HistogramKernel.mm has Metal kernels for integers, which count grouped experts.
    "aten::histc": Wider(Version(2, 13), _histc),
}
