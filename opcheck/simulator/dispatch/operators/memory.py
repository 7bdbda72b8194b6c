"""Allocation, copies, aliases and views: operators that compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from opcheck.common.versions import Span, Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.device_texts import PASSED_CPU, always, one_device, places
from opcheck.simulator.dispatch.operators.operator import (
    Branch,
    DeviceText,
    Given,
    Operator,
    Role,
    make_like,
)

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_0, _V2_12 = Version(2, 0), Version(2, 12)


def _cat_text(tensors: Any) -> str:
    # mps/operations/Shape.mm, cat_out_mps: each after the last that is not skipped; since 2.12 no
    # check is left.
    *others, last = places(tensors)
    another = next(place for place in others if place != last)
    return (
        f"torch.cat(): all input tensors must be on the same device. Received {another} and {last}"
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


_ALLOCATES = {"aten::empty_strided": {"size": "result.shape", "stride": "result.stride"}}


def _grid_text(tensors: Sequence[Tensor], **_: Any) -> str | None:
    # native/TensorShape.cpp, ``meshgrid``
    if len(set(places(tensors))) < 2:
        return None
    return "meshgrid expects all tensors to have the same device"


OPERATORS = (
    *(
        Operator(
            (op.name(),),
            branch=Branch(one_device(op, _grid_text), "native/TensorShape.cpp: compares devices"),
        )
        for op in (aten.meshgrid.default, aten.meshgrid.indexing)
    ),
    # -- allocation: aten/src/ATen/native/Resize.cpp and TensorFactories.cpp
    Operator(("aten::empty.memory_format", "aten::empty_strided"), uninitialized=True),
    Operator(
        ("aten::empty_like", "aten::new_empty_strided"),
        uninitialized=True,
        body=("aten::empty_strided",),
        passes=_ALLOCATES,
    ),
    Operator(
        ("aten::new_empty",),
        uninitialized=True,
        body=("aten::empty.memory_format",),
        passes={"aten::empty.memory_format": {}},
    ),
    # A tensor without memory, which only the dispatcher's ZeroTensor key can read.
    Operator(("aten::_efficientzerotensor",), role=Role.ZERO_TENSOR, emulate=torch.zeros),
    # -- copies
    # Copy.cpp, ``copy_impl``: mps::mps_copy_ is called directly if either side is on MPS.
    Operator(("aten::copy_",), mixes_devices=True, body=()),
    # TensorConversions.cpp: an allocation, then copy_.
    Operator(
        ("aten::_to_copy",),
        mixes_devices=True,
        body=("aten::empty_strided",),
        passes=_ALLOCATES,
        role=Role.CAST,
    ),
    Operator(
        ("aten::_copy_from",),
        mixes_devices=True,
        metadata=make_like("dst"),
        emulate=lambda source, target, non_blocking=False: target.copy_(source, non_blocking),
    ),
    Operator(
        ("aten::_copy_from_and_resize",),
        metadata=make_like("self"),
        emulate=lambda source, target: target.resize_(source.shape).copy_(source),
    ),
    Operator(
        (
            "aten::set_.source_Tensor",
            # TensorShape.cpp: a clone, and copy_ into a view of it
            "aten::slice_scatter",
            "aten::select_scatter",
            "aten::diagonal_scatter",
            "aten::as_strided_scatter",
        ),
        mixes_devices=True,
    ),
    # -- aliases: no kernel runs (TensorShape.cpp)
    Operator(("aten::detach",), body=(), role=Role.DETACH),
    Operator(("aten::alias", "aten::lift", "aten::lift_fresh"), body=()),
    Operator(("aten::_conj",), body=(), role=Role.CONJUGATE),
    Operator(("aten::_neg_view",), body=(), role=Role.NEGATE),
    # ComparisonUtils.cpp: compares metadata, and raises where it differs.  torch.export writes it
    # before each cast.
    Operator(("aten::_assert_tensor_metadata",), body=()),
    # -- views and their joining
    Operator(("aten::expand",), role=Role.EXPAND),
    Operator(("aten::view_as_real",), role=Role.VIEW_AS_REAL),
    Operator(("aten::_unsafe_view", "aten::unsafe_split.Tensor"), shares_first=True),
    Operator(("aten::split_with_sizes", "aten::split_with_sizes_copy"), repair=_equal_parts),
    Operator(("aten::unsafe_split_with_sizes",), repair=_equal_parts, shares_first=True),
    Operator(
        ("aten::tensor_split.tensor_indices_or_sections",),
        mixes_devices=True,
        branch=Branch(_tensor_split, "native/TensorShape.cpp: the indices must be on the CPU"),
    ),
    Operator(
        ("aten::cat", "aten::stack", "aten::_stack"),
        device_texts=(
            DeviceText(_cat_text, Span(since=_V2_0, until=_V2_12)),
            DeviceText(always(PASSED_CPU), Span(since=_V2_12)),
        ),
    ),
)
