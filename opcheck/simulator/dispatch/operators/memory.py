"""Allocation, copies, aliases and views: operators that compute nothing."""

from collections.abc import Sequence
from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import (
    Given,
    fact,
    one_device,
    places,
)

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_0, _V2_12 = Version(2, 0), Version(2, 12)


@fact("text", "aten::cat", "aten::stack", "aten::_stack")
def _cat_text(tensors: Any) -> str:
    # mps/operations/Shape.mm, cat_out_mps: each after the last that is not skipped; since 2.12 no
    # check is left.
    *others, last = places(tensors)
    another = next(place for place in others if place != last)
    return (
        f"torch.cat(): all input tensors must be on the same device. Received {another} and {last}"
    )


@fact(
    "repair",
    "aten::split_with_sizes",
    "aten::split_with_sizes_copy",
    "aten::unsafe_split_with_sizes",
)
def _equal_parts(arguments: Given) -> tuple[Given, str] | None:
    """Split into counted parts, as a router counts the tokens of each expert."""
    x, sizes = arguments["self"], arguments["split_sizes"]
    size = x.shape[arguments.get("dim", 0)] if x.dim() else None
    if size is None or not sizes or not all(type(part) is int for part in sizes):
        return None
    if sum(sizes) == size and min(sizes) >= 0:
        return None
    share, more = divmod(size, len(sizes))
    equal = [share + (place < more) for place in range(len(sizes))]
    return {"split_sizes": equal}, "as if the parts were equal"


@fact("branch", "aten::tensor_split.tensor_indices_or_sections")
def _tensor_split(context: DispatchContext, x: Tensor, indices: Tensor, dim: int = 0) -> Any:
    if indices.device.type != "cpu":
        context.refuse(
            aten.tensor_split.tensor_indices_or_sections,
            (x, indices, dim),
            "indices_on_mps",
            "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on mps:0",
        )
        # The audit continues as if they were on the CPU.
    if indices.dim() == 0:
        return x.tensor_split(int(indices.item()), dim)
    return x.tensor_split([int(i) for i in indices.tolist()], dim)


def _grid_text(tensors: Sequence[Tensor], **_: Any) -> str | None:
    # native/TensorShape.cpp, ``meshgrid``
    if len(set(places(tensors))) < 2:
        return None
    return "meshgrid expects all tensors to have the same device"


for _op in (aten.meshgrid.default, aten.meshgrid.indexing):
    fact("branch", _op.name())(one_device(_op, _grid_text))
fact("emulate", "aten::_efficientzerotensor")(torch.zeros)


@fact("emulate", "aten::_copy_from")
def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    return target.copy_(source, non_blocking)


@fact("emulate", "aten::_copy_from_and_resize")
def _copy_resized(source: Tensor, target: Tensor) -> Tensor:
    return target.resize_(source.shape).copy_(source)
