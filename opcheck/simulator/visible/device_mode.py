"""Simulate the ``mps`` device as Python sees it: moves, and which API call works on it."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from opcheck.simulator.dispatch.dispatch_context import RECORDED, DispatchContext
from opcheck.simulator.dispatch.gradient_devices import keep_on_cpu, register_hook
from opcheck.simulator.dispatch.random_numbers import Generator
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, is_on_mps
from opcheck.simulator.visible import methods, optimizers, subscripts
from opcheck.simulator.visible.methods import as_device
from opcheck.simulator.visible.public_names import check_in_cpp
from opcheck.tracing.source_locations import is_handled
from opcheck.tracing.torch_private.backend import constructors, default_device
from opcheck.tracing.torch_private.dispatch import functorch_level

_DETACH = {torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.detach_}
_TO = torch.Tensor.to
_PIN = torch.Tensor.pin_memory
_REPLACED: dict[Any, Callable[..., Any]] = {
    **methods.REPLACED,
    subscripts.GET: subscripts.get,
    subscripts.SET: subscripts.put,
    **optimizers.REPLACED,
    torch.sparse_coo_tensor: methods.sparse_coo_tensor,
    torch.Tensor.register_hook: register_hook,
}

#: dtypes that a way out casts to float32
_NARROW = {torch.float16, torch.bfloat16}

#: Marks an error that a cast did not mend.
_FINAL = "opcheck_final"

#: the level of torch.func's transforms; None outside of them
_in_func_transform = functorch_level

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
        if device is not None and func is not _TO:
            # A string without an index is a device that C++ would initialize.
            kwargs = {**kwargs, "device": as_device(device)}
            device = _device_beside_out(kwargs)
        if func is _PIN:
            # Queries the accelerator of the build for its allocator; pages that are pinned change no operator call.
            return args[0]
        context = self._context
        before = (context.on_mps, context.detaches, context.in_engine)
        context.on_mps = device is None and (
            any_on_mps(args, kwargs)
            or (_in_func_transform() is not None and methods.any_inside((*args, *kwargs.values())))
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

    def _is_refused(
        self, error: BaseException, func: Any, args: Any, kwargs: dict[str, Any]
    ) -> bool:
        """Return whether a Mac refuses the call and the run goes on after it; the refusal is recorded.

        An error that the program handles is raised, so that its handler runs.
        """
        context, marks = self._context, vars(error)
        name = getattr(func, "__name__", "")
        if (
            context.find_refusal is None
            or not context.on_mps
            or _FINAL in marks
            or "out" in kwargs
            or name.endswith("_")
            or not any(map(_is_narrow, args))
            or is_handled(type(error), sys._getframe(2))
        ):
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
        message = f"no implementation found for '{func}' on types that implement __torch_function__: {names}"
        raise TypeError(message)


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
        raise RuntimeError(
            f"device type {wanted} does not match device type of out parameter ({out.device.type})"
        )
    return None


def any_on_mps(args: Any, kwargs: Any) -> bool:
    """Return whether any of the values, or of the lists among them, is a tensor on MPS."""
    for value in args:
        kind = type(value)
        if kind is list or kind is tuple:
            if any_on_mps(value, {}):
                return True
        elif is_on_mps(value):
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
        result = func(
            *(each.to(torch.float32) if _is_narrow(each) else each for each in args), **kwargs
        )
    except (RuntimeError, TypeError):
        vars(error)[_FINAL] = True
        raise error from None
    if not (is_on_mps(result) and result.dtype is torch.float32):
        return result
    return result.to(next(each.dtype for each in args if _is_narrow(each)))
