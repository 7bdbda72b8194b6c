"""Check the devices of gradients as autograd's C++ does, which sees the CPU under simulated tensors.

torch/csrc/autograd: ``validate_outputs`` of engine.cpp, which moves a gradient without dimensions and
refuses any other, and ``check_variable_result`` of custom_function.cpp.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from opcheck.common.replacing import replace_attributes
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators.operator import type_name
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.tracing.torch_private import tensors
from opcheck.tracing.torch_private.dispatch import function_mode_stack, is_batched
from opcheck.tracing.torch_private.tensors import BACKWARD_APPLY, RUN_BACKWARD, SINGLE_LEVEL_FUNCTION

#: The name of a tensor's type where autograd refuses a tensor that was changed in place
#: (torch/csrc/autograd/saved_variable.cpp).
_MODIFIED = re.compile(r"(modified by an inplace operation: \[)torch\.(\w+)Tensor")
#: the attribute of a custom Function's node that states where its arguments are
_PLACES = "_opcheck_places"


def _locate(value: Any) -> SimpleNamespace | None:
    """Return what has the device of a tensor, unknown for a wrapper of torch.func's; None for other values.

    The tensor itself would keep the graph alive.
    """
    is_tensor = isinstance(value, torch.Tensor)
    return SimpleNamespace(device=None if is_batched(value) else value.device) if is_tensor else None


def validate_devices(gradients: Sequence[Any], tensors: Sequence[Any], text: str) -> tuple[Any, ...]:
    """Return the gradients on the devices of their tensors.

    Args:
        gradients: of any type; only tensors are compared.
        tensors: the tensor of each gradient, or what represents it and has its device.
        text: the message before ``invalid gradient``.

    Raises:
        RuntimeError: a gradient that has dimensions is on another device.
    """
    moved = []
    for index, (gradient, tensor) in enumerate(zip(gradients, tensors, strict=True)):
        # Inside of transforms C++ compares wrappers, whose device is that of their parts.
        compared = isinstance(gradient, torch.Tensor) and not any(
            isinstance(each, torch.Tensor) and is_batched(each) for each in (gradient, tensor)
        )
        device = getattr(tensor, "device", None)
        if not compared or device is None or gradient.device == device:
            moved.append(gradient)
        elif gradient.dim():
            message = f"{text}invalid gradient at index {index} - expected device {device} but got {gradient.device}"
            raise RuntimeError(message)
        else:
            moved.append(gradient.to(device))
    return tuple(moved)


def register_hook(tensor: torch.Tensor, hook: Callable[[Any], Any]) -> Any:
    """Run ``Tensor.register_hook`` for a hook whose result autograd compares with the gradient."""

    @functools.wraps(hook, updated=())
    def check_hook(gradient: torch.Tensor) -> Any:
        result = hook(gradient)
        if isinstance(result, torch.Tensor) and result.device != gradient.device:
            name = getattr(hook, "__name__", "<unknown>")
            message = f"hook '{name}' has changed the type of value (was {type_name(gradient)} got {type_name(result)})"
            raise RuntimeError(message)
        return result

    return torch.Tensor.register_hook(tensor, check_hook)


def keep_on_cpu(args: Any) -> list[Any]:
    """Let the gradients of CPU tensors without dimensions, next to tensors on MPS, be on the CPU.

    Returns:
        the nodes that gather these gradients, to be kept until the call has made its graph.
    """
    nodes = [
        get_gradient_edge(value).node
        for value in args
        if isinstance(value, torch.Tensor)
        and value.requires_grad
        and not value.dim()
        and not is_batched(value)
        and value.device.type == "cpu"
    ]
    for node in nodes:
        node.register_prehook(_on_cpu)
    return nodes


def _on_cpu(gradients: Any) -> Any:
    return tuple(each if each is None else each.to("cpu") for each in gradients)


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a custom Function, and keep the devices of its tensors for its node."""
    outputs = super(SINGLE_LEVEL_FUNCTION, cls).apply(*args, **kwargs)
    for output in outputs if isinstance(outputs, tuple) else (outputs,):
        node = getattr(output, "grad_fn", None)
        if isinstance(node, cls._backward_cls):
            setattr(node, _PLACES, [_locate(arg) for arg in args])
            break
    return outputs


def _backward(self: Any, *gradients: Any) -> Any:
    """Run the backward of a custom Function, and check what it returns."""
    results = BACKWARD_APPLIED(self, *gradients)
    places = getattr(self, _PLACES, ())
    listed = results if isinstance(results, tuple) else (results,)
    # PyNode::apply drops the results for arguments that are no tensors.
    counted = [index for index, place in enumerate(places[: len(listed)]) if place is not None]
    text = f"Function {self.name()} returned an "
    checked = validate_devices([listed[index] for index in counted], [places[index] for index in counted], text)
    moved = dict(zip(counted, checked, strict=True))
    return tuple(moved.get(index, result) for index, result in enumerate(listed))


BACKWARD_APPLIED = BACKWARD_APPLY.value()


# -- the nodes of the graph ------------------------------------------------------------------------------------------


class Nodes:
    """Records the nodes that calls on MPS made, by their sequence numbers.

    A node takes the next number before its call reaches the dispatcher's Python key (VariableType.cpp), so that all
    numbers since the call before belong to this call: an operator in place makes two nodes, it saves a clone first.
    """

    def __init__(self) -> None:
        self._noted = tensors.next_sequence_number()
        self._on_mps: set[int] = set()

    def note(self, *, on_mps: bool) -> None:
        """Note that a call has reached the dispatcher."""
        number = tensors.next_sequence_number()
        if number > self._noted:
            if on_mps:
                self._on_mps.update(range(self._noted, number))
            self._noted = number

    def running_on_mps(self) -> bool:
        """Return whether the node that autograd's engine runs now is on MPS."""
        node = tensors.running_node()
        return node is not None and tensors.sequence_number_of(node) in self._on_mps

    def name(self) -> str:
        """Return the name of the node that runs now; empty if none does."""
        node = tensors.running_node()
        return "" if node is None else str(node.name())


@contextlib.contextmanager
def engine_seen_by(mode: TorchFunctionMode, context: DispatchContext) -> Iterator[None]:
    """Keep ``mode`` on while autograd's engine runs, for the program's own calls there, and check custom Functions.

    Tensor.backward and torch.autograd.grad are API calls, and the mode is off in them; hooks, custom functions and what
    a checkpoint runs again are the program's.
    """
    run = RUN_BACKWARD.value()

    def running(tensors: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        on = any(each is mode for each in function_mode_stack())
        gradients = validate_devices(gradients, tensors, "")
        with context.set(on_mps=False, engine=True), contextlib.nullcontext() if on else mode:
            try:
                return run(tensors, gradients, *args, **kwargs)
            except RuntimeError as error:
                text = _MODIFIED.sub(r"\1MPS\2Type", str(error))
                if text == str(error) or not any(map(is_on_mps, tensors)):
                    raise
                raise RuntimeError(text) from None

    custom = [(SINGLE_LEVEL_FUNCTION, "apply", classmethod(_apply)), (*BACKWARD_APPLY, _backward)]
    with replace_attributes([(*RUN_BACKWARD, running), *custom]):
        yield
