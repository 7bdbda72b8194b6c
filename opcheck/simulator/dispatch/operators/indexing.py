"""Reading and writing by indices and by masks, embeddings and encodings, and the boxes that torchvision keeps."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import (
    TWO_DEVICES,
    Given,
    Refusal,
    Results,
    fact,
    is_on_cpu,
    places,
)
from opcheck.simulator.dispatch.tensor_meta import contiguous, spec_of
from opcheck.simulator.dispatch.unbacked_values import (
    MOST_BOXES,
    Guess,
    all_selected,
    count_selected,
    known_values,
)
from opcheck.simulator.errors import DataDependentError
from opcheck.simulator.target_reads import TargetQueries, is_before

aten = torch.ops.aten
Tensor = torch.Tensor

_V2_0, _V2_14 = Version(2, 0), Version(2, 14)


# -- indices and masks --------------------------------------------------------------------------------------


@fact(
    "refuses_devices",
    "aten::index.Tensor",
    "aten::_unsafe_index.Tensor",
    "aten::index_put",
    "aten::index_put_",
    "aten::_unsafe_index_put",
    "aten::_index_put_impl_",
)
def _refuses_indices(args: Sequence[Any], _tensors: Any) -> Refusal | None:
    """Refuse indices, or values, on another device than the tensor (TensorAdvancedIndexing.cpp).

    Indices of the CPU are moved (``make_info``), and so is a value without dimensions (``_index_put_impl_``).
    """
    place = is_on_cpu(args[0])
    if place and any(isinstance(i, torch.Tensor) and not is_on_cpu(i) for i in args[1]):
        # check_indices_on_cpu_or_selfdevice; github.com/pytorch/pytorch/issues/81051
        text = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
        return "indices_on_mps", text
    values = args[2] if len(args) > 2 else None
    # To C++ a number of Python's is a tensor without dimensions.
    if isinstance(values, torch.Tensor) and values.dim() and is_on_cpu(values) is not place:
        return "device_mismatch", TWO_DEVICES
    return None


@fact("metadata", "aten::masked_fill.Tensor")
def _fill_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # torch/_refs/__init__.py lets a value on the CPU be without dimensions, but not next to a tensor
    # on meta.
    return (spec_of(torch.masked_fill(arguments["self"].meta(), arguments["mask"].meta(), 0)),)


@fact(
    "text",
    "aten::masked_fill.Tensor",
    "aten::masked_fill_.Tensor",
    "aten::masked_fill.Scalar",
    "aten::masked_fill_.Scalar",
)
def _fill_text(tensors: Any) -> str:
    self, mask = places(tensors[:2])
    return f"expected self and mask to be on the same device, but got mask on {mask} and self on {self}"


@fact("text", "aten::nonzero.out")
def _nonzero_text(tensors: Any) -> str:
    # mps/operations/Indexing.mm, ``nonzero_impl_mps``
    self, out = places(tensors[:2])
    return (
        f"expected self and out to be on the same device, but got out on {out} and self on {self}"
    )


@fact("unbacked", "aten::nonzero", "aten::argwhere")
def _guess_nonzero(arguments: Given, keep: int) -> Guess:
    x = arguments["self"]
    count, assumed = all_selected(x.numel())
    if x.numel() * x.dim() <= keep:
        return Guess((torch.ones(x.shape, dtype=torch.bool).nonzero(),), assumed)
    return Guess((contiguous((count, x.dim()), torch.int64),), assumed)


@fact("metadata", "aten::values", "aten::_values", "aten::indices", "aten::_indices", "aten::_nnz")
def _refuse_count(_given: Given, _ask: TargetQueries) -> Results:
    raise DataDependentError(
        "the number of a sparse tensor's values is not known in a run on shapes"
    )


@fact("unbacked", "aten::masked_select")
def _guess_masked_select(arguments: Given, _keep: int) -> Guess:
    x, mask = arguments["self"], arguments["mask"]
    elements = math.prod(torch.broadcast_shapes(x.shape, mask.shape))
    count, assumed = count_selected(mask, elements)
    return Guess((contiguous((count,), x.dtype),), assumed)


@fact("unbacked", "aten::repeat_interleave.Tensor")
def _guess_repeats(arguments: Given, keep: int) -> Guess:
    size = arguments.get("output_size")
    if size is not None:
        return Guess((contiguous((size,), torch.int64),), "")
    count = arguments["repeats"].numel()
    result = torch.arange(count) if count <= keep else contiguous((count,), torch.int64)
    return Guess((result,), "as if each were repeated once")


@fact("unbacked", "aten::repeat_interleave.self_Tensor")
def _guess_repeated(arguments: Given, _keep: int) -> Guess:
    shape, dim, size = (
        list(arguments["self"].shape),
        arguments.get("dim"),
        arguments.get("output_size"),
    )
    if dim is None:
        shape, dim = [arguments["self"].numel()], 0
    repeats = known_values(arguments["repeats"])
    if repeats is not None:
        size = int(repeats.expand(shape[dim]).sum())
    assumed = "" if size is not None else "as if each were repeated once"
    shape[dim] = shape[dim] if size is None else size
    return Guess((contiguous(tuple(shape), arguments["self"].dtype),), assumed)


@fact("unbacked", "torchvision::nms", "torchvision::qnms")
def _guess_kept_boxes(arguments: Given, _keep: int) -> Guess:
    count = arguments["dets"].shape[0]
    kept = min(count, MOST_BOXES)
    assumed = "as if no box were suppressed" if kept == count else f"as if {kept:,} boxes were kept"
    return Guess((torch.arange(kept),), assumed)


@fact("metadata", "aten::masked_fill_.Tensor")
def _filled_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    return (arguments["self"],)


# -- branches -----------------------------------------------------------------------------------------------


@fact("branch", "aten::take_along_dim")
def take_along_dim(_context: Any, x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Compute as up to 2.9, which does not wrap negative indices by remainder (TensorAdvancedIndexing.cpp)."""
    if dim is None:
        return aten.gather.default(x.view(-1), 0, indices.view(-1))
    dim %= x.dim()
    both = torch.broadcast_shapes(
        *([1 if i == dim else n for i, n in enumerate(t.shape)] for t in (x, indices))
    )
    x, indices = (
        t.broadcast_to([t.shape[i] if i == dim else n for i, n in enumerate(both)])
        for t in (x, indices)
    )
    return aten.gather.default(x, dim, indices)


@fact("branch", "aten::one_hot")
def _one_hot(context: DispatchContext, x: Tensor, num_classes: int = -1) -> Tensor:
    # Onehot.cpp: up to 2.11 the checks that read values are skipped for MPS; later they are made at once.
    if x.numel() and not context.ask(is_before, Version(2, 12)):
        high = aten.aminmax.default(x)[1]
        num_classes = int(high.item()) + 1 if num_classes == -1 else num_classes
    elif num_classes == -1:
        num_classes = int(aten.max.default(x).item()) + 1
    result = torch.zeros([*x.shape, num_classes], dtype=x.dtype, device=x.device)
    return aten.scatter_.value(result, -1, x.unsqueeze(-1), 1)
