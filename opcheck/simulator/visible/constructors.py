"""Replace constructors of other layouts, and those whose C++ would initialize the device of this build."""

from collections.abc import Callable
from typing import Any

import torch

from opcheck.simulator.dispatch.calls import COMPRESSED
from opcheck.simulator.dispatch.dispatch_context import current
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, is_on_mps
from opcheck.simulator.visible.methods import as_device
from opcheck.simulator.visible.storage import on_mps


def _refuse_compressed(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a constructor of compressed tensors that raises on MPS as a Mac does."""

    def refuse_on_mps(*args: Any, **options: Any) -> torch.Tensor:
        place = options.get("device")
        if place is MPS_DEVICE or (place is None and any(map(is_on_mps, (*args, *options.values())))):
            current().refuse(torch.ops.aten.sparse_compressed_tensor.comp_plain_value, (), *COMPRESSED)
            raise NotImplementedError(COMPRESSED[1])
        return make(*args, **options)

    return refuse_on_mps


#: what the function mode sees
REPLACED = {
    make: _refuse_compressed(make)
    for make in (getattr(torch, f"sparse_{layout}_tensor") for layout in ("compressed", "csr", "csc", "bsr", "bsc"))
}


def _nested_tensor(tensor_list: Any, **options: Any) -> torch.Tensor:
    if as_device(options.get("device")) is MPS_DEVICE and options.get("layout") in (None, torch.strided):
        parts = [torch.as_tensor(part, dtype=options.get("dtype"), device=MPS_DEVICE) for part in tensor_list]
        return torch.nested.as_nested_tensor(parts)
    return _NESTED_TENSOR(tensor_list, **options)


def _range(*args: Any, **options: Any) -> torch.Tensor:
    if as_device(options.get("device")) is not MPS_DEVICE:
        return _RANGE(*args, **options)
    _RANGE(0, 1)  # warns
    options = {"dtype": torch.get_default_dtype(), **options, "device": MPS_DEVICE}
    requires_grad = options.pop("requires_grad", False)
    args += tuple(options.pop(name) for name in ("start", "end", "step") if name in options)
    return torch.ops.aten.range.step(*args, **options).requires_grad_(requires_grad)


def _untyped_storage(cls: Any, *args: Any, **options: Any) -> torch.UntypedStorage:
    if as_device(options.get("device")) is not MPS_DEVICE:
        return _STORAGE(cls, *args, **options)
    return on_mps(_STORAGE(cls, *args, **{**options, "device": "cpu"}))


_NESTED_TENSOR, _RANGE, _STORAGE = torch.nested.nested_tensor, torch.range, torch.UntypedStorage.__new__

#: what no function mode sees (python_torch_functions_manual.cpp, python_nested_functions_manual.cpp, Storage.cpp)
CONSTRUCTORS = (
    (torch, "range", _range),
    (torch.nested, "nested_tensor", _nested_tensor),
    (torch.UntypedStorage, "__new__", staticmethod(_untyped_storage)),
)
