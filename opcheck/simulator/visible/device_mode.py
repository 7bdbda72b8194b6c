"""Simulate the ``mps`` device as Python sees it: moves, and which API call works on it."""

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from opcheck.common.versions import Version
from opcheck.simulator.dispatch.dispatch_context import RECORDED, DispatchContext, current
from opcheck.simulator.dispatch.gradient_devices import keep_on_cpu, register_hook
from opcheck.simulator.dispatch.random_numbers import Generator
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, is_on_mps
from opcheck.simulator.target_reads import is_before
from opcheck.simulator.visible import constructors as layout_constructors
from opcheck.simulator.visible import methods, pinned_memory
from opcheck.simulator.visible.methods import as_device
from opcheck.simulator.visible.public_names import check_in_cpp
from opcheck.tracing.source_locations import is_handled
from opcheck.tracing.torch_private import backend
from opcheck.tracing.torch_private.backend import constructors, default_device
from opcheck.tracing.torch_private.dispatch import functorch_level

GET = torch.Tensor.__getitem__
SET = torch.Tensor.__setitem__

_NUMBERS = (bool, int, float, complex)
#: with these alone an index makes views
_VIEWING = (int, slice, type(None), type(...))

#: from here on a number fills on every device: a view by fill_ (at::indexing::impl::copy_to of a Scalar), a mask by
#: masked_fill_, indices by index_fill_ (at::indexing::try_dispatch_*).
_FILLS_FROM = Version(2, 15)
_CPP_FILLS = Version.parse(torch.__version__) >= _FILLS_FROM


def get_item(x: torch.Tensor, index: Any) -> torch.Tensor:
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


def set_item(x: torch.Tensor, index: Any, value: Any) -> None:
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
    elif is_on_mps(index) and index.dtype is torch.bool and index.dim() == x.dim():
        x.masked_fill_(index, value)
    elif is_on_mps(index) and index.dtype is torch.int64 and index.dim() == 1:
        x.index_fill_(0, index, value)
    else:
        return False
    return True


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
    return all(type(item) in _VIEWING for item in (index if type(index) is tuple else (index,)))


def _is_all(index: Any) -> bool:
    """Return whether C++ writes to the tensor itself, without a view of it."""
    items = index if type(index) is tuple else (index,)
    return all(item is ... or (type(item) is slice and item == slice(None)) for item in items)


# -- simulate the steps of torch.optim, and the clipping before them, as earlier releases wrote them --
# That is, where the installed ones call other operators: ``torch/optim/*.py`` of the macOS wheels of
# 1.13 to 2.15, each run next to the installed one (scripts/compare_optimizers.py),
# ``torch/nn/utils/clip_grad.py`` and ``torch/amp/grad_scaler.py``.

Tensor = torch.Tensor

#: Modules that pass a call on, between the caller and the replacement: this device,
#: torch.set_default_device's.
_HAND_ON = frozenset({"opcheck.simulator.visible.device_mode", "torch.overrides", "torch.utils._device"})


def lerp_(self: Tensor, end: Any, weight: Any) -> Tensor:
    """Compute by a product and a sum, as up to 2.0 (adam.py, adamw.py, nadam.py, radam.py, adamax.py, rmsprop.py)."""
    if _calls("torch.optim.", Version(2, 1)):
        return self.mul_(1 - weight).add_(end, alpha=weight)
    return Tensor.lerp_(self, end, weight)


def foreach_lerp_(self: list[Tensor], ends: list[Tensor], weight: Any) -> Any:
    """Compute ``lerp_`` of each tensor, for ``foreach=True``."""
    if _calls("torch.optim.", Version(2, 1)):
        backend.foreach_mul_(self, 1 - weight)
        return backend.foreach_add_(self, ends, alpha=weight)
    return backend.foreach_lerp_(self, ends, weight)


def maximum(input: Tensor, other: Tensor, *, out: Any = None) -> Tensor:
    """Compute the maximum of both, stacked, as adamax.py does up to 2.2."""
    if out is not None and _calls("torch.optim.adamax", Version(2, 3)):
        both = torch.cat([input.unsqueeze(0), other.unsqueeze_(0)], 0)
        return torch.amax(both, 0, keepdim=False, out=out)
    return torch.maximum(input, other, out=out)


def vector_norm(x: Tensor, ord: Any = 2, *args: Any, **kwargs: Any) -> Tensor:
    """Use torch.norm, as linalg_vector_norm has no kernel, or max for infinity (clip_grad.py up to 2.0)."""
    if not args and not kwargs and _calls("torch.nn.utils.clip_grad", Version(2, 1)):
        return x.abs().max() if ord == math.inf else torch.norm(x, ord)
    return torch.linalg.vector_norm(x, ord, *args, **kwargs)


def reciprocal(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Take the reciprocal in float64 on every device, as ``unscale_`` of grad_scaler.py does up to 2.7."""
    if _calls("torch.amp.grad_scaler", Version(2, 8)):
        return self.double().reciprocal().float()
    return Tensor.reciprocal(self, *args, **kwargs)


def fused_devices() -> list[str]:
    """Return the devices of ``fused=True``: MPS since 2.5, the CPU since 2.4 (torch/utils/_foreach_utils.py)."""
    devices = _installed_fused_devices()
    if current().ask(is_before, Version(2, 5)):
        # The fused kernels of hpu and mtia came later, too.
        devices = [name for name in devices if name not in {"mps", "hpu", "mtia"}]
    if current().ask(is_before, Version(2, 4)):
        devices.remove("cpu")
    return devices


_installed_fused_devices = backend.FUSED_DEVICES.value()


def _calls(module: str, until: Version) -> bool:
    """Return whether a module with this prefix is calling and the target is older than ``until``."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in _HAND_ON:
        frame = frame.f_back
    caller = str(frame.f_globals.get("__name__")) if frame is not None else ""
    return caller.startswith(module) and current().ask(is_before, until)


# -- simulate the ``mps`` device as Python sees it: moves, and which API call works on it --

_DETACH = {torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.detach_}
_REPLACED: dict[Any, Callable[..., Any]] = {
    **methods.REPLACED,
    **layout_constructors.REPLACED,
    GET: get_item,
    SET: set_item,
    Tensor.lerp_: lerp_,
    Tensor.reciprocal: reciprocal,
    backend.foreach_lerp_: foreach_lerp_,
    torch.maximum: maximum,
    torch.linalg.vector_norm: vector_norm,
    torch.sparse_coo_tensor: methods.sparse_coo_tensor,
    torch.Tensor.register_hook: register_hook,
    torch.Tensor.is_pinned: pinned_memory.is_pinned,
}

#: dtypes that a way out casts to float32
_NARROW = {torch.float16, torch.bfloat16}

#: Marks an error that a cast did not mend.
_FINAL = "opcheck_final"

Watcher = Callable[[Callable[..., Any], Any, Any, Any], None]


class DeviceMode(TorchFunctionMode):
    """Moves CPU tensors to ``mps`` and notes for each API call whether it works on MPS tensors.

    C++ refuses ``.to("mps")`` on a build without MPS, and cannot see that a temporary belongs on MPS
    (simulator/dispatch/dispatch_context.py).
    """

    def __init__(self, context: DispatchContext, on_cpu: Watcher | None = None) -> None:
        super().__init__()
        self._context = context
        #: called with each API call whose result stays on the CPU, with that result
        self._on_cpu = on_cpu

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Process one API call."""
        kwargs = kwargs or {}
        if kwargs:
            check_in_cpp(func, kwargs)
        if types and methods.hooks_run(types):
            return self._hand_on(func, types, args, kwargs)
        device = kwargs.get("device")
        if device is None and as_device(default_device()) is MPS_DEVICE and func in constructors():
            # torch.set_default_device: its mode is always below this one (torch/utils/_device.py).
            device = MPS_DEVICE
            kwargs = {**kwargs, "device": device}
        if device is not None and func is not methods.TO and func is not torch.device:
            # A string without an index is a device that C++ would initialize.
            kwargs = {**kwargs, "device": as_device(device)}
            device = _device_beside_out(kwargs)
        if func is torch.Tensor.pin_memory:
            # It would ask the accelerator of this build; pages that are pinned change no operator call.
            return pinned_memory.pin(*args, **kwargs)
        if kwargs.get("pin_memory"):
            is_there = device is None and any_on_mps(args, {})
            place = "mps" if is_there else torch.device(device or "cpu").type
            kwargs = pinned_memory.make_on(place, kwargs)
            return pinned_memory.mark_pinned(self.__torch_function__(func, types, args, kwargs))
        context = self._context
        before = (context.on_mps, context.detaches, context.in_engine)
        context.on_mps = device is None and (
            any_on_mps(args, kwargs)
            or (functorch_level() is not None and methods.any_inside((*args, *kwargs.values())))
        )
        # A leaf's node lives as long as the graph of this call, or this name.
        nodes = keep_on_cpu(args) if context.on_mps else []
        context.in_engine = False
        context.detaches = func in _DETACH
        try:
            self._prepare(kwargs.get("generator"), device)
            try:
                result = _REPLACED.get(func, func)(*args, **kwargs)
            except (RuntimeError, TypeError) as error:
                if not self._is_refused(error, func, args, kwargs):
                    raise
                context.on_mps = True
                result = _call_in_float32(error, func, args, kwargs)
        finally:
            context.on_mps, context.detaches, context.in_engine = before
            context.draws_on_cpu = False
            nodes.clear()
        if self._on_cpu is not None and type(result) is torch.Tensor and not is_on_mps(result):
            self._on_cpu(func, args, kwargs, result)
        return result

    def _is_refused(self, error: BaseException, func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Return whether a Mac refuses the call and the run goes on after it; the refusal is recorded.

        An error that the program handles is raised, so that its handler runs.
        """
        context, marks = self._context, vars(error)
        name = getattr(func, "__name__", "")
        is_castable = any(map(_is_narrow, args)) and "out" not in kwargs and not name.endswith("_")
        if context.find_refusal is None or not context.on_mps or _FINAL in marks or not is_castable:
            return False
        if is_handled(type(error), sys._getframe(2)):
            return False
        if RECORDED in marks:
            return True
        refusal = context.find_refusal(error)
        overload = getattr(getattr(torch.ops.aten, name, None), "default", None)
        if refusal is None or overload is None:
            return False
        context.refuse(overload, args, *refusal)
        return True

    def _prepare(self, generator: Any, device: Any) -> None:
        if generator is None:
            return
        context = self._context
        context.draws_on_cpu = generator.device.type == "cpu"
        if context.draws_on_cpu:
            return
        if not context.on_mps and as_device(device) is not MPS_DEVICE:
            # ATen/core/Generator.h, check_generator, in a kernel of the CPU
            raise RuntimeError("Expected a 'cpu' device type for generator but found 'mps'")
        if isinstance(generator, Generator):
            generator.begin_call()

    def _hand_on(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Let a subclass's own hook process the call first, as torch does; calls inside the hook return here."""
        with self:
            for kind in types:
                result = kind.__torch_function__(func, types, args, kwargs)
                if result is not NotImplemented:
                    return result
        names = [kind.__name__ for kind in types]
        raise TypeError(f"no implementation found for '{func}' on types that implement __torch_function__: {names}")


def _device_beside_out(kwargs: dict[str, Any]) -> Any:
    """Return the device of a call; None, and no argument, where ``out=`` decides.

    Raises:
        RuntimeError: they differ (python_torch_functions.cpp, ``check_out_type_matches``).
    """
    out, device = kwargs.get("out"), kwargs["device"]
    if not isinstance(out, torch.Tensor) or device is None:
        return device
    wanted = torch.device(kwargs.pop("device")).type
    if wanted != out.device.type:
        raise RuntimeError(f"device type {wanted} does not match device type of out parameter ({out.device.type})")
    return None


def any_on_mps(args: Any, kwargs: Any) -> bool:
    """Return whether any of the values, or of the lists among them, is a tensor on MPS."""
    for value in args:
        kind = type(value)
        if any_on_mps(value, {}) if kind is list or kind is tuple else is_on_mps(value):
            return True
    return any(is_on_mps(value) for value in kwargs.values())


def _is_narrow(value: Any) -> bool:
    return is_on_mps(value) and value.dtype in _NARROW


def _call_in_float32(error: BaseException, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a refused call gives after a cast to float32, cast back.

    Raises:
        RuntimeError, TypeError: the cast does not mend the call.
    """
    try:
        result = func(*(each.to(torch.float32) if _is_narrow(each) else each for each in args), **kwargs)
    except (RuntimeError, TypeError):
        vars(error)[_FINAL] = True
        raise error from None
    if not (is_on_mps(result) and result.dtype is torch.float32):
        return result
    return result.to(next(each.dtype for each in args if _is_narrow(each)))
