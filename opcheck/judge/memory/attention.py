"""Find attention weights that the trace records as a result, although the Mac's kernel never writes them."""

from __future__ import annotations

from collections.abc import Iterator

from opcheck.common.versions import Target, Version
from opcheck.model.records import OpCall, Trace

_OP = "aten::_scaled_dot_product_attention_math_for_mps"

#: Attention.mm: the prefill kernels hand the output back in place of the weights.  The releases and the head sizes
#: are those of the kernels named in the wheels of 2.13 to 2.15; the conditions were read in the source after 2.13.
_SINCE = Version(2, 13)
_HEADS = frozenset({32, 64, 72, 80, 96, 128, 256})
_DTYPES = frozenset({"float32", "float16", "bfloat16"})
#: Up to so many queries, other kernels run, which do take memory for the weights.
_SHORT = 8


def never_written(trace: Trace, target: Target) -> frozenset[int]:
    """Return the storages of the attention weights that the kernel does not write."""
    return frozenset(_weights(trace)) if target.torch >= _SINCE else frozenset()


def _weights(trace: Trace) -> Iterator[int]:
    for call in trace.calls:
        if call.op == _OP and len(call.outputs) == 2 and _prefill(call):
            yield call.outputs[1].storage


def _prefill(call: OpCall) -> bool:
    named = {spec.argument: spec for spec in call.inputs}
    query, value, mask = named["query"], named["value"], named.get("attn_mask")
    return (
        query.dtype in _DTYPES
        and query.shape[-1] in _HEADS
        and query.shape[-1] == value.shape[-1]
        and query.shape[-2] > _SHORT
        and value.shape[-2] > 0
        and (mask is None or mask.dtype in {"bool", query.dtype})
    )
