"""Counts the floating-point operations of a call from its shapes, by the formulas of ``torch.utils.flop_counter``.

The counter knows matrix products, convolutions and attention; every other operator counts as 0. It decomposes
what a Mac runs as one kernel, such as ``linear``: the table here has a formula for each of those.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch.utils.flop_counter import flop_registry

from opcheck.simulator.tensor_meta import TensorMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opcheck.tracing.torch_private.dispatch import OpOverload

Shape = tuple[int, ...]


def flops(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], outputs: Any) -> int:
    """Return the floating-point operations of a call; 0 if no formula counts it.

    Args:
        func: the overload.
        args: its positional arguments, a ``TensorMeta`` for each tensor.
        kwargs: its other arguments.
        outputs: the metadata of the result, or a list of several; results that nobody wants are not in it.
    """
    packet = getattr(func, "overloadpacket", None)
    own = _OWN.get(str(packet))
    formula = own or flop_registry.get(packet)
    # A formula that was registered with get_raw=True reads values; those are kernels of CUDA.
    if formula is None or not (own or hasattr(formula, "__wrapped__")):
        return 0
    given = [_shapes(value) for value in args]
    named = {name: _shapes(value) for name, value in kwargs.items()}
    try:
        results = _by_mask(_shapes(outputs), given)
        return int(own(*given) if own else formula(*given, **named, out_val=results))
    except Exception:  # noqa: BLE001  (a formula of PyTorch's, or one that the program registered)
        return 0


def _shapes(value: Any) -> Any:
    """Replace each tensor's metadata in a value by its shape."""
    if type(value) is TensorMeta:
        return value.shape
    return type(value)(map(_shapes, value)) if type(value) in (list, tuple) else value


def _by_mask(results: Any, given: Sequence[Any]) -> Any:
    """Put None for each result that the last argument, an ``output_mask``, does not want."""
    mask = given[-1] if given else None
    if not isinstance(mask, (list, tuple)) or {*map(type, mask)} != {bool}:
        return results
    wanted = iter(results if type(results) is list else [results])
    return [next(wanted) if wants else None for wants in mask]


def _linear(given: Shape, weight: Shape, *_rest: Any) -> int:
    return 2 * math.prod(given) * math.prod(weight[:-1])


def _linear_backward(
    given: Shape, _gradient: Shape, weight: Shape, wanted: Sequence[bool], *_rest: Any
) -> int:
    # One product for the gradient of the input, one for that of the weight; the bias takes a sum.
    return _linear(given, weight) * sum(wanted[:2])


def _attention(query: Shape, key: Shape, value: Shape, *_rest: Any) -> int:
    # As sdpa_flop_count, which takes four dimensions alone.
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _grouped(given: Shape, weight: Shape, *_rest: Any) -> int:
    return 2 * math.prod(given) * weight[-1]


def _lstm(given: Shape, _state: Any, parameters: Sequence[Shape], *_rest: Any) -> int:
    return 2 * math.prod(given[:-1]) * sum(math.prod(shape) for shape in parameters if shape[1:])


def _lstm_backward(*args: Any) -> int:
    given, parameters = args[5], args[8]
    return 2 * _lstm(given, None, parameters)


_OWN: dict[str, Callable[..., int]] = {
    "aten.linear": _linear,
    "aten.linear_backward": _linear_backward,
    "aten._scaled_dot_product_attention_math_for_mps": _attention,
    "aten._grouped_mm": _grouped,
    "aten._lstm_mps": _lstm,
    "aten.lstm_mps_backward": _lstm_backward,
}
