"""Which calls the host side's tables have, and the launches of a call."""

from typing import NamedTuple

from opcheck.kernels.host import copying_calls, indexing_calls, layer_calls, pointwise_calls, row_calls, sorting_calls
from opcheck.kernels.host.host_call import CallArguments, HostCall
from opcheck.kernels.host.release_kernels import Binder, ReleaseKernels

#: The functions by the operators that they bind; the others are in the table of pointwise operators.
BINDERS: dict[str, Binder] = {
    name: binder
    for calls in (row_calls, indexing_calls, copying_calls, layer_calls, sorting_calls)
    for name, binder in calls.BINDERS.items()
}


def is_bound(name: str) -> bool:
    """Return whether the tables have an operator."""
    return name in BINDERS or name in pointwise_calls.table()


#: By operator the operand whose rows do not depend on each other.
_ROWS = {**dict.fromkeys(row_calls.BINDERS, "self"), **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), "input")}


class FreeDims(NamedTuple):
    """The dimensions of a result along which its parts are independent, and what they are cut from."""

    #: the operands; none: each that the result's shape is broadcast from
    operands: tuple[str, ...]
    #: of the result, the outermost first
    result: tuple[int, ...]
    #: of the operands, in the same order; none: the same, counted from the last
    source: tuple[int, ...] = ()


def free_dims(call: HostCall) -> FreeDims:
    """Return how a call can be cut into parts."""
    dims = call.outputs[0].dim()
    if call.name not in BINDERS:
        return FreeDims((), tuple(range(dims)))
    source = call.arguments.get(_ROWS.get(call.name, ""))
    if source is None or not dims:
        return FreeDims((), ())
    reduced = row_calls.reduced_dims(call, source)
    kept = tuple(dim for dim in range(source.dim()) if dim not in reduced)
    if source.dim() == dims:
        return FreeDims((_ROWS[call.name],), kept, kept)
    if len(kept) == dims:
        return FreeDims((_ROWS[call.name],), tuple(range(dims)), kept)
    return FreeDims((), ())


def bind(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Return the launches of a call in a release.

    Raises:
        UnboundError: the release computes the call by no kernel that the tables have.
        KernelError: a kernel cannot be run here.
        Unfit: a kernel has an argument that the tables do not have.
    """
    return BINDERS.get(call.name, pointwise_calls.bind)(call, release)
