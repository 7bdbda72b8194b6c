"""Putting a model and its inputs on the simulated device, as ``model.to("mps")`` does on a Mac."""

from __future__ import annotations

from typing import Any

import torch

from opcheck.capture.build import is_marked
from opcheck.errors import CaptureError
from opcheck.model import OpCall, TensorSpec
from opcheck.simulate.shapes import NotSimulatedError, check_layout
from opcheck.simulate.tensor import parameter_to_mps, to_mps

#: dtypes that every release takes on every macOS; a move of any other is a call that can fail.
PLAIN_DTYPES = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)


class Mover:
    """Moves tensors, keeps which became which, and the moves that need a verdict."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._moved: dict[int, torch.Tensor] = {}
        #: the number of each moved tensor -> its name
        self.names: dict[int, str] = {}
        self.calls: list[OpCall] = []
        self.elements = 0
        self.bytes = 0

    def module(self, module: torch.nn.Module) -> None:
        """Move parameters and buffers; tied ones stay tied, other attributes stay where they were made."""
        for prefix, child in module.named_modules():
            for tensors, is_parameter in ((child._parameters, True), (child._buffers, False)):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        path = f"{prefix}.{name}" if prefix else name
                        tensors[name] = self._move(tensor, path, is_parameter=is_parameter)
            for name, value in list(vars(child).items()):
                if is_marked(value):
                    path = f"{prefix}.{name}" if prefix else name
                    vars(child)[name] = self._move(value, path, is_parameter=False)

    def value(self, value: Any, name: str) -> Any:
        """Move every tensor in an input, however it is nested."""
        if isinstance(value, torch.Tensor):
            return self._move(value, name, is_parameter=False)
        if isinstance(value, (list, tuple)):
            items = [self.value(item, f"{name}[{i}]") for i, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {key: self.value(item, f"{name}[{key!r}]") for key, item in value.items()}
        return value

    def _move(self, tensor: torch.Tensor, name: str, *, is_parameter: bool) -> torch.Tensor:
        known = self._moved.get(id(tensor))
        if known is not None:
            return known
        try:
            check_layout(tensor)
        except NotSimulatedError as error:
            raise CaptureError(
                str(error), context=name, hint="give it in a dense layout, if the model takes that"
            ) from error
        move = parameter_to_mps if is_parameter else to_mps
        moved = move(tensor, keep=self._keep)
        self._moved[id(tensor)] = moved
        # The id must not be given to another tensor while the table is in use.
        moved._moved_from = tensor  # type: ignore[attr-defined]
        self.names[moved.number] = name
        if is_parameter:
            self.elements += tensor.numel()
            self.bytes += tensor.numel() * tensor.element_size()
        if tensor.dtype not in PLAIN_DTYPES:
            self.calls.append(_move_call(moved.number, tensor, name))
        return moved


def _move_call(number: int, tensor: torch.Tensor, name: str) -> OpCall:
    def spec(identity: int, device: str) -> TensorSpec:
        return TensorSpec(
            tensor=identity,
            storage=identity,
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            device=device,
        )

    return OpCall(
        op="aten::_to_copy",
        # Numbers below zero: the trace counts its own tensors from one.
        inputs=(spec(-2 * number, "cpu"),),
        outputs=(spec(-2 * number - 1, "mps"),),
        arguments={"device": "mps:0"},
        module=name,
        phase="move",
        inner=("aten::empty_strided",),
    )
