"""Bound the memory that kernels take besides their results.

Workspaces are MPSGraph's, which an error counts as "other allocations".  What MPSGraph takes is not published.  The
bound for a convolution is its unfolded input, as a matrix product needs it; for attention by graph it is a copy of the
scores in float32; for softmax a copy of its result (3.00 GB of other allocations where the scores have 3.00 GiB:
https://github.com/kght6123/examples-shieldgemma2); for random numbers the numbers in float32.  Reports of decoders at
large sizes show that the workspaces of several calls exist at once (139.74 GiB:
https://github.com/Comfy-Org/ComfyUI/issues/9308).

Temporaries are PyTorch's, and come from its allocator.
"""

import math
from collections.abc import Sequence

from opcheck.common.names import DTYPES
from opcheck.common.vocabulary import RouteKind
from opcheck.model.records import OpCall

_SAFE_SOFTMAX = "aten::_safe_softmax"
#: The routes whose kernels allocate outside of PyTorch's allocator.
_APPLE: frozenset[RouteKind] = frozenset({"graph", "mps", "either"})
_ATTENTION = "aten::_scaled_dot_product_attention_math_for_mps"
_SOFTMAX = frozenset({"aten::_softmax", "aten::_log_softmax", _SAFE_SOFTMAX})
_RANDOM = ("aten::bernoulli", "aten::normal", "aten::uniform", "aten::random")


def workspace(call: OpCall, route: RouteKind) -> int:
    """Return an upper bound in bytes for the workspace of one call; 0: none is assumed."""
    if route not in _APPLE:
        return 0
    by_argument = {spec.argument: spec for spec in call.inputs}
    if call.op == _ATTENTION and {"query", "key"} <= by_argument.keys():
        query, key = by_argument["query"], by_argument["key"]
        return math.prod(query.shape[:-1]) * key.shape[-2] * DTYPES["float32"].itemsize
    elements = math.prod(call.outputs[0].shape) if call.outputs else 0
    if call.op in _SOFTMAX and route == "graph":
        return call.outputs[0].nbytes
    if call.op.startswith(_RANDOM):
        return elements * DTYPES["float32"].itemsize
    weight = by_argument.get("weight")
    if "convolution" not in call.op or weight is None or len(weight.shape) < 4:
        return 0
    image = by_argument.get("grad_output") or (call.outputs[0] if call.outputs else None)
    if image is None or math.prod(weight.shape[2:]) == 1:
        return 0
    columns = math.prod(weight.shape[1:]) * image.shape[0] * math.prod(image.shape[2:])
    return columns * DTYPES[weight.dtype].itemsize


def concurrent(calls: Sequence[OpCall], workspaces: Sequence[int]) -> int:
    """Return the largest sum of workspaces between two waits of the CPU for the GPU."""
    largest = total = 0
    for call, nbytes in zip(calls, workspaces, strict=True):
        total = 0 if call.waits else total + nbytes
        largest = max(largest, total)
    return largest


def temporaries(call: OpCall) -> tuple[int, ...]:
    """Return the bytes of each tensor that the call allocates before its result and frees at its end.

    aten/src/ATen/native/transformers/attention.cpp, ``_safe_softmax``: the softmax, and where its input is -inf.
    """
    if call.op != _SAFE_SOFTMAX or not call.outputs:
        return ()
    result = call.outputs[0]
    return result.nbytes, math.prod(result.shape)
