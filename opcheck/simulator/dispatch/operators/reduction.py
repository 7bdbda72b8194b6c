"""Reductions, comparisons to one answer, histograms, sets of values and pooling."""

from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.operators.operator import (
    Given,
    Results,
    WiderEmulation,
    fact,
    follow_calls,
    one_device,
)
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import contiguous
from opcheck.simulator.dispatch.unbacked_values import MOST_DIFFERENT, Guess
from opcheck.simulator.target_reads import TargetQueries

aten = torch.ops.aten
Tensor = torch.Tensor


#: Sorting.cpp, quantile_compute: on the CPU alone the values of q are checked (the torch 2.9 that
#: may be installed).
_CHECKS_OF_QUANTILES = frozenset(
    f"aten::{name}"
    for name in ("ge.Scalar", "le.Scalar", "logical_and_", "all", "new_ones", "equal")
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
    kept = size if dim is not None else min(size, MOST_DIFFERENT)
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
    counted: Tensor = aten.histc.default(x.double(), *settings, **named)
    return counted.to(x.dtype)


@fact("emulate", "aten::max_pool2d_backward")
def _emulate_pooling_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    settings = (kernel, stride, padding, dilation, ceil_mode)
    _, indices = aten.max_pool2d_with_indices.default(x, *settings)
    return aten.max_pool2d_with_indices_backward.default(grad, x, *settings, indices)


for _packet in (aten.quantile, aten.nanquantile):
    for _op in (getattr(_packet, name) for name in _packet.overloads()):
        _checked = one_device(_op, _quantile_text, follow_calls(_op, hidden=_CHECKS_OF_QUANTILES))
        fact("branch", _op.name())(_checked)
# mps/operations/HistogramKernel.mm has Metal kernels for integers; grouped experts are counted so.
fact("emulate_wider", "aten::histc")(WiderEmulation(Version(2, 13), _emulate_histc))
