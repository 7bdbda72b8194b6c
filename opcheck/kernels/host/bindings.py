"""Which calls the host side's tables have, and the launches of a call."""

from __future__ import annotations

from collections.abc import Callable

from opcheck.kernels.host import pointwise_calls, row_calls
from opcheck.kernels.host.host_call import BoundCall, HostCall
from opcheck.kernels.host.release_kernels import ReleaseKernels

Binder = Callable[[HostCall, ReleaseKernels], BoundCall]
#: The functions by the operators that they bind; the others are in the table of pointwise operators.
BINDERS: dict[str, Binder] = {**row_calls.BINDERS}


def is_bound(name: str) -> bool:
    """Return whether the tables have an operator."""
    return name in BINDERS or name in pointwise_calls.table()


#: By operator the operand whose rows do not depend on each other, where it is not all of them that are as the result.
_ROWS = {
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), "input"),
    **dict.fromkeys(row_calls.BINDERS, "self"),
}


def free_dims(call: HostCall) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the operands that can be cut, and the dimensions of the result along which its parts are independent.

    No operand: each that the result's shape is broadcast from.
    """
    dims = call.outputs[0].dim()
    if call.name not in BINDERS:
        return (), tuple(range(dims))
    source = call.arguments.get(_ROWS.get(call.name, ""))
    if source is None or not dims or source.dim() != dims:
        return (), ()
    reduced = row_calls.reduced_dims(call, source)
    return (_ROWS[call.name],), tuple(dim for dim in range(dims) if dim not in reduced)


def bind(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Return the launches of a call in a release.

    Raises:
        UnboundError: the release computes the call by no kernel that the tables have.
        KernelError: a kernel cannot be run here.
        Unfit: a kernel has an argument that the tables do not have.
    """
    return BINDERS.get(call.name, pointwise_calls.bind)(call, release)
