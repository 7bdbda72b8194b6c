"""Simulate ``x[index]`` and ``x[index] = value``, where Python's indexing branches on the device.

torch/csrc/autograd/python_variable_indexing.cpp and ATen/TensorIndexing.h (1.13 to 2.15).  A list becomes a tensor on
the device of ``x``, a number one made by ``scalar_tensor``; the CPU makes both without an operator, and a value
without dimensions fills there where it is expanded and copied elsewhere.
"""

from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import current
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, is_on_mps
from opcheck.simulator.target_reads import is_before

GET = torch.Tensor.__getitem__
SET = torch.Tensor.__setitem__

_NUMBERS = (bool, int, float, complex)
#: with these alone an index makes views
_VIEWING = (int, slice, type(None), type(...))

#: from here on a number fills on every device: a view by fill_ (at::indexing::impl::copy_to of a Scalar), a mask by
#: masked_fill_, indices by index_fill_ (at::indexing::try_dispatch_*).
_FILLS_FROM = Version(2, 15)
_CPP_FILLS = Version.parse(torch.__version__) >= _FILLS_FROM


def get(x: torch.Tensor, index: Any) -> torch.Tensor:
    """Compute ``x[index]``."""
    if not is_on_mps(x):
        return GET(x, index)
    try:
        return GET(x, _on_device(index))
    except IndexError:
        report = current().report_guess
        if report is None or not is_on_mps(index) or index.dim() or not x.dim():
            raise
        # The last of a guessed selection may be one that the data never selects, as of experts one more than there
        # are (transformers' Dbrx).
        report(torch.ops.aten.select.int.name(), "as if the last entry were selected")
        return GET(x, -1)


def put(x: torch.Tensor, index: Any, value: Any) -> None:
    """Compute ``x[index] = value``."""
    if not is_on_mps(x):
        SET(x, index, value)
        return
    index = _on_device(index)
    if type(value) in _NUMBERS:
        if not current().ask(is_before, _FILLS_FROM) and _fill_number(x, index, value):
            return
        value = torch.ops.aten.scalar_tensor.default(value, dtype=x.dtype, device=MPS_DEVICE)
    if is_on_mps(value) and value.dim() == 0 and _views(index):
        part = x if _is_all(index) else GET(x, index)
        part.copy_(value.view(()).expand(part.shape) if part.dim() else value)
        return
    SET(x, index, value)


def _fill_number(x: torch.Tensor, index: Any, value: Any) -> bool:
    if _CPP_FILLS:
        SET(x, index, value)
        return True
    if _views(index):
        (x if _is_all(index) else GET(x, index)).fill_(value)
        return True
    if not is_on_mps(index):
        return False
    if index.dtype is torch.bool and index.dim() == x.dim():
        x.masked_fill_(index, value)
        return True
    if index.dtype is torch.int64 and index.dim() == 1:
        x.index_fill_(0, index, value)
        return True
    return False


def _on_device(index: Any) -> Any:
    if type(index) is tuple:
        # A tuple inside is a list, not an index of several dimensions.
        return tuple(_on_device(list(item) if type(item) is tuple else item) for item in index)
    if type(index) is list and any(is_on_mps(item) and item.dim() == 0 for item in index):
        # sequenceToVariable reads each number (torch/csrc/utils/tensor_new.cpp).
        index = [item.item() if isinstance(item, torch.Tensor) else item for item in index]
    if type(index) is list and index and all(type(item) in (int, bool) for item in index):
        return torch.ops.aten._to_copy.default(torch.tensor(index), device=MPS_DEVICE)
    return index


def _views(index: Any) -> bool:
    items = index if type(index) is tuple else (index,)
    return all(type(item) in _VIEWING for item in items)


def _is_all(index: Any) -> bool:
    """Return whether C++ writes to the tensor itself, without a view of it."""
    items = index if type(index) is tuple else (index,)
    return all(item is ... or (type(item) is slice and item == slice(None)) for item in items)
