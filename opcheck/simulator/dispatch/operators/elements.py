"""Operators that read, write, copy or count elements: indexing, memory and reductions."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch import unbacked_values
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators import operator
from opcheck.simulator.dispatch.operators.operator import Given, Refusal, Results, fact
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import contiguous, spec_of
from opcheck.simulator.dispatch.unbacked_values import Guess, all_selected, count_selected, known_values
from opcheck.simulator.errors import DataDependentError
from opcheck.simulator.target_reads import TargetQueries, is_before

aten = torch.ops.aten
Tensor = torch.Tensor

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
    place = operator.is_on_cpu(args[0])
    if place and any(isinstance(i, torch.Tensor) and not operator.is_on_cpu(i) for i in args[1]):
        # check_indices_on_cpu_or_selfdevice; github.com/pytorch/pytorch/issues/81051
        return "indices_on_mps", "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
    values = args[2] if len(args) > 2 else None
    # To C++ a number of Python's is a tensor without dimensions.
    if isinstance(values, torch.Tensor) and values.dim() and operator.is_on_cpu(values) is not place:
        return "device_mismatch", operator.TWO_DEVICES
    return None


@fact("metadata", "aten::masked_fill.Tensor")
def _fill_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # torch/_refs/__init__.py lets a value on the CPU be without dimensions, but not next to a tensor
    # on meta.
    return (spec_of(torch.masked_fill(arguments["self"].meta(), arguments["mask"].meta(), 0)),)


@fact("unbacked", "aten::nonzero", "aten::argwhere")
def _guess_nonzero(arguments: Given, keep: int) -> Guess:
    x = arguments["self"]
    count, assumed = all_selected(x.numel())
    is_small = x.numel() * x.dim() <= keep
    result = torch.ones(x.shape, dtype=torch.bool).nonzero() if is_small else contiguous((count, x.dim()), torch.int64)
    return Guess((result,), assumed)


@fact("metadata", "aten::values", "aten::_values", "aten::indices", "aten::_indices", "aten::_nnz")
def _refuse_count(_given: Given, _ask: TargetQueries) -> Results:
    raise DataDependentError("the number of a sparse tensor's values is not known in a run on shapes")


@fact("unbacked", "aten::masked_select")
def _guess_masked_select(arguments: Given, _keep: int) -> Guess:
    x, mask = arguments["self"], arguments["mask"]
    count, assumed = count_selected(mask, math.prod(torch.broadcast_shapes(x.shape, mask.shape)))
    return Guess((contiguous((count,), x.dtype),), assumed)


@fact("unbacked", "aten::repeat_interleave.Tensor")
def _guess_repeats(arguments: Given, keep: int) -> Guess:
    if (size := arguments.get("output_size")) is not None:
        return Guess((contiguous((size,), torch.int64),), "")
    count = arguments["repeats"].numel()
    result = torch.arange(count) if count <= keep else contiguous((count,), torch.int64)
    return Guess((result,), "as if each were repeated once")


@fact("unbacked", "aten::repeat_interleave.self_Tensor")
def _guess_repeated(arguments: Given, _keep: int) -> Guess:
    shape, dim, size = (list(arguments["self"].shape), arguments.get("dim"), arguments.get("output_size"))
    if dim is None:
        shape, dim = [arguments["self"].numel()], 0
    if (repeats := known_values(arguments["repeats"])) is not None:
        size = int(repeats.expand(shape[dim]).sum())
    if size is not None:
        shape[dim] = size
    assumed = "as if each were repeated once" if size is None else ""
    return Guess((contiguous(tuple(shape), arguments["self"].dtype),), assumed)


@fact("unbacked", "torchvision::nms", "torchvision::qnms")
def _guess_kept_boxes(arguments: Given, _keep: int) -> Guess:
    count = arguments["dets"].shape[0]
    kept = min(count, unbacked_values.MOST_BOXES)
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
    both = torch.broadcast_shapes(*([1 if i == dim else n for i, n in enumerate(t.shape)] for t in (x, indices)))
    x, indices = (t.broadcast_to([t.shape[i] if i == dim else n for i, n in enumerate(both)]) for t in (x, indices))
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


# -- allocation, copies, aliases and views: operators that compute nothing --


@fact("text", "aten::cat", "aten::stack", "aten::_stack")
def _cat_text(tensors: Any) -> str:
    # mps/operations/Shape.mm, cat_out_mps: each after the last that is not skipped; since 2.12 no
    # check is left.
    *others, last = operator.places(tensors)
    another = next(place for place in others if place != last)
    return f"torch.cat(): all input tensors must be on the same device. Received {another} and {last}"


@fact("repair", "aten::split_with_sizes", "aten::split_with_sizes_copy", "aten::unsafe_split_with_sizes")
def _equal_parts(arguments: Given) -> tuple[Given, str] | None:
    """Split into counted parts, as a router counts the tokens of each expert."""
    x, sizes = arguments["self"], arguments["split_sizes"]
    size = x.shape[arguments.get("dim", 0)] if x.dim() else None
    if size is None or not sizes or not all(type(part) is int for part in sizes):
        return None
    if sum(sizes) == size and min(sizes) >= 0:
        return None
    share, more = divmod(size, len(sizes))
    return {"split_sizes": [share + (place < more) for place in range(len(sizes))]}, "as if the parts were equal"


@fact("branch", "aten::tensor_split.tensor_indices_or_sections")
def _tensor_split(context: DispatchContext, x: Tensor, indices: Tensor, dim: int = 0) -> Any:
    if indices.device.type != "cpu":
        text = "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on mps:0"
        context.refuse(aten.tensor_split.tensor_indices_or_sections, (x, indices, dim), "indices_on_mps", text)
        # The audit continues as if they were on the CPU.
    if indices.dim() == 0:
        return x.tensor_split(int(indices.item()), dim)
    return x.tensor_split([int(i) for i in indices.tolist()], dim)


def _grid_text(tensors: Sequence[Tensor], **_: Any) -> str | None:
    # native/TensorShape.cpp, ``meshgrid``
    differ = len(set(operator.places(tensors))) > 1
    return "meshgrid expects all tensors to have the same device" if differ else None


for _op in (aten.meshgrid.default, aten.meshgrid.indexing):
    fact("branch", _op.name())(operator.one_device(_op, _grid_text))
fact("emulate", "aten::_efficientzerotensor")(torch.zeros)


@fact("emulate", "aten::_copy_from")
def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    return target.copy_(source, non_blocking)


@fact("emulate", "aten::_copy_from_and_resize")
def _copy_resized(source: Tensor, target: Tensor) -> Tensor:
    return target.resize_(source.shape).copy_(source)


# -- reductions, comparisons to one answer, histograms, sets of values and pooling --


#: Sorting.cpp, quantile_compute: on the CPU alone the values of q are checked (the torch 2.9 that
#: may be installed).
_CHECKS_OF_QUANTILES = frozenset(
    f"aten::{name}" for name in ("ge.Scalar", "le.Scalar", "logical_and_", "all", "new_ones", "equal")
)


def _quantile_text(x: Tensor, q: Any, *_: Any, out: Any = None, **__: Any) -> str | None:
    # Sorting.cpp, ``quantile_checks`` and ``quantile_out_impl``
    for name, tensor in (("q", q), ("out", out)):
        if isinstance(tensor, torch.Tensor) and is_on_mps(tensor) is not is_on_mps(x):
            return f"quantile() {name} tensor must be on the same device as the input tensor"
    return None


@fact("unbacked", "aten::_unique2", "aten::unique_consecutive")
def _guess_unique(arguments: Given, _keep: int) -> Guess:
    x, dim = arguments["self"], arguments.get("dim")
    size = x.numel() if dim is None else x.shape[dim]
    kept = size if dim is not None else min(size, unbacked_values.MOST_DIFFERENT)
    shape = (kept,) if dim is None else tuple(x.shape)
    inverse = tuple(x.shape) if dim is None else (size,)
    results = (
        contiguous(shape, x.dtype),
        contiguous(inverse if arguments.get("return_inverse") else (0,), torch.int64),
        contiguous((kept,) if arguments.get("return_counts") else (0,), torch.int64),
    )
    how_many = "all" if kept == size else f"{kept:,}"
    return Guess(results, f"as if {how_many} values were different")


@fact("unbacked", "aten::_unique")
def _guess_unique_and_inverse(arguments: Given, keep: int) -> Guess:
    results, assumed = _guess_unique(arguments, keep)
    return Guess(results[:2], assumed)


@fact("unbacked", "aten::unique_dim", "aten::unique_dim_consecutive")
def _guess_unique_along(arguments: Given, keep: int) -> Guess:
    # Its kernels make the inverse and the counts always (native/Unique.cpp,
    # _unique_dim_cpu_template).
    return _guess_unique({**arguments, "return_inverse": True, "return_counts": True}, keep)


@fact("unbacked", "aten::bincount")
def _guess_bincount(arguments: Given, _keep: int) -> Guess:
    length = max(arguments.get("minlength", 0), 2)
    # native/SummaryOps.cpp: sums of weights that are not float32 are float64, which MPS has not.
    dtype = torch.int64 if arguments.get("weights") is None else torch.float32
    return Guess((contiguous((length,), dtype),), f"as if no value were above {length - 1}")


@fact("metadata", "aten::histogram.bin_ct", "aten::histogram.bins_tensor")
def _histogram(arguments: Given, _ask: TargetQueries) -> Results:
    # native/Histogram.cpp: a number of boxes, or their edges
    x, bins = arguments["self"], arguments.get("bins", 100)
    edges = bins + 1 if isinstance(bins, int) else bins.shape[0]
    return (contiguous((edges - 1,), x.dtype), contiguous((edges,), x.dtype))


@fact("metadata", "aten::_histogramdd_bin_edges")
def _bin_edges(arguments: Given, _ask: TargetQueries) -> Results:
    return ([contiguous((count + 1,), arguments["self"].dtype) for count in arguments["bins"]],)


@fact("metadata", "aten::_histogramdd_from_bin_cts", "aten::_histogramdd_from_bin_tensors")
def _histogram_of_bins(arguments: Given, _ask: TargetQueries) -> Results:
    counts = (bins if isinstance(bins, int) else bins.shape[0] - 1 for bins in arguments["bins"])
    return (contiguous(tuple(counts), arguments["self"].dtype),)


def _emulate_histc(x: Tensor, *settings: Any, **named: Any) -> Tensor:
    return aten.histc.default(x.double(), *settings, **named).to(x.dtype)


@fact("emulate", "aten::max_pool2d_backward")
def _emulate_pooling_backward(
    grad: Tensor, x: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Tensor:
    settings = (kernel, stride, padding, dilation, ceil_mode)
    _, indices = aten.max_pool2d_with_indices.default(x, *settings)
    return aten.max_pool2d_with_indices_backward.default(grad, x, *settings, indices)


for _packet in (aten.quantile, aten.nanquantile):
    for _op in (getattr(_packet, name) for name in _packet.overloads()):
        fact("branch", _op.name())(
            operator.one_device(_op, _quantile_text, operator.follow_calls(_op, hidden=_CHECKS_OF_QUANTILES))
        )
# mps/operations/HistogramKernel.mm has Metal kernels for integers; grouped experts are counted so.
fact("emulate_wider", "aten::histc")(operator.WiderEmulation(Version(2, 13), _emulate_histc))
