"""Puts a model and its inputs on the simulated device, as ``model.to("mps")`` does on a Mac."""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch.nn.parameter import is_lazy

from opcheck.capture.child.build import is_marked
from opcheck.capture.child.recording.dtype_origins import Births
from opcheck.capture.child.recording.recorder import Numbers, Placed
from opcheck.capture.word_lists import read_words
from opcheck.common.errors import CaptureError
from opcheck.common.vocabulary import MemoryOrigin
from opcheck.model.records import Birth, OpCall, TensorSpec
from opcheck.simulator.dispatch.calls import check_layout
from opcheck.simulator.dispatch.tensor import parameter_to_mps, to_mps, to_mps_in_place
from opcheck.simulator.errors import NotSimulatedError, RefusedError
from opcheck.tracing.torch_private.modules import buffers_of, parameters_of
from opcheck.tracing.torch_private.tensors import is_wrapper, mark_parameter

#: dtypes that every release takes on every macOS; a move of any other is a call that can fail.
PLAIN_DTYPES = frozenset(getattr(torch, name) for name in read_words("plain_dtypes"))


class Move(NamedTuple):
    """One tensor that was moved, of a dtype or a layout that not every release takes."""

    #: of the tensor on MPS
    number: int
    storage: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    made: Birth | None
    layout: str = "strided"


class Mover:
    """Moves tensors, keeps which became which, and the moves that need a verdict."""

    def __init__(self, keep: int, births: Births | None = None) -> None:
        self._keep = keep
        self._births = births or Births()
        self._moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        #: the number of each moved tensor -> its name
        self.names: dict[int, str] = {}
        self.moves: list[Move] = []
        #: the number of each moved tensor's storage -> what was moved
        self.placed: dict[int, Placed] = {}
        self.elements = 0
        self.bytes = 0

    def module(self, module: torch.nn.Module) -> None:
        """Move parameters and buffers; tied ones stay tied, other attributes stay where they were made."""
        for prefix, child in module.named_modules():
            kinds: dict[MemoryOrigin, dict[str, Any]] = {"parameter": parameters_of(child), "buffer": buffers_of(child)}
            for kind, tensors in kinds.items():
                for name, tensor in tensors.items():
                    if tensor is not None:
                        path = f"{prefix}.{name}" if prefix else name
                        tensors[name] = self._move(tensor, path, kind)
            for name, value in vars(child).items():
                if is_marked(value):
                    self._move(value, f"{prefix}.{name}" if prefix else name, "buffer")

    def others(self, tensors: Sequence[torch.Tensor]) -> None:
        """Move what the program has put on ``mps`` while it was loaded, wherever it keeps it: a global, a list."""
        names = _global_names(tensors)
        for tensor in tensors:
            self._move(tensor, names.get(id(tensor), ""), "buffer")

    def value(self, value: Any, name: str) -> Any:
        """Move every tensor in an input, however it is nested."""
        if isinstance(value, torch.Tensor):
            return self._move(value, name, "input")
        if isinstance(value, (list, tuple)):
            items = [self.value(item, f"{name}[{i}]") for i, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {key: self.value(item, f"{name}[{key!r}]") for key, item in value.items()}
        return value

    def _move(self, tensor: torch.Tensor, name: str, kind: MemoryOrigin) -> torch.Tensor:
        cached = self._moved.get(id(tensor))
        if cached is not None:
            return cached[1]
        if is_wrapper(tensor):
            return self._move_wrapper(tensor, name)
        try:
            check_layout(tensor)
        except (NotSimulatedError, RefusedError) as error:
            hint = "give it in a dense layout, if the model takes that"
            raise CaptureError(f"a tensor of layout {tensor.layout}: {error}", context=name, hint=hint) from error
        is_parameter = kind == "parameter"
        maker = None if tensor.dtype in PLAIN_DTYPES else self._births.origin(tensor)
        # A parameter or buffer of a lazy module has no size before the first call makes it.
        lazy = is_lazy(tensor)
        move = parameter_to_mps if is_parameter or lazy else to_mps
        moved = (to_mps_in_place if is_marked(tensor) else move)(tensor, keep=self._keep)
        # With the tensor, whose id must not be given to another while the table is in use.
        self._moved[id(tensor)] = (tensor, moved)
        number, storage = moved._mps.number, moved._mps.memory.number
        self.names[number] = name
        elements = 0 if lazy else tensor.numel()
        size = elements * tensor.dtype.itemsize
        self.placed[storage] = Placed(kind, name, size)
        if is_parameter:
            self.elements += elements
            self.bytes += size
        if tensor.dtype not in PLAIN_DTYPES or tensor.layout is not torch.strided:
            dtype, layout = (str(each).removeprefix("torch.") for each in (tensor.dtype, tensor.layout))
            self.moves.append(Move(number, storage, name, dtype, tuple(tensor.shape), maker, layout))
        return moved

    def _move_wrapper(self, tensor: Any, name: str) -> torch.Tensor:
        """Move the tensors inside of a wrapper, such as the quantized weights of torchao, and wrap them again."""
        names, context = tensor.__tensor_flatten__()
        # The parts are no parameters, whatever wraps them.
        inner = {each: self._move(getattr(tensor, each), f"{name}.{each}", "buffer") for each in names}
        moved = type(tensor).__tensor_unflatten__(inner, context, tensor.shape, tensor.stride())
        # Parameter() would detach the parts outside of the simulation (torch/nn/parameter.py).
        moved._mps_outer = True
        mark_parameter(moved, is_parameter=isinstance(tensor, torch.nn.Parameter))
        self._moved[id(tensor)] = (tensor, moved)
        return moved

    def calls(self, numbers: Numbers) -> tuple[OpCall, ...]:
        """Return the moves that need a verdict, as calls; ``numbers`` are those of the graph that follows."""
        return tuple(_move_call(move, numbers) for move in self.moves)

    def births(self, numbers: Numbers) -> tuple[Birth, ...]:
        """Return how the tensors of these moves were made, as far as it was seen."""
        pairs = ((move, move.made) for move in self.moves if move.made is not None)
        return tuple(
            replace(maker, tensor=numbers.number("moved", move.number), name=move.name) for move, maker in pairs
        )


def _global_names(tensors: Sequence[torch.Tensor]) -> dict[int, str]:
    """Return the names of those that are global in a module, by their ids."""
    wanted = {id(tensor) for tensor in tensors}
    if not wanted:
        return {}
    return {
        id(value): f"{module.__name__}.{name}"
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if id(value) in wanted
    }


def _move_call(move: Move, numbers: Numbers) -> OpCall:
    def spec(tensor: int, storage: int, device: str) -> TensorSpec:
        return TensorSpec(
            tensor=tensor, storage=storage, dtype=move.dtype, shape=move.shape, device=device, layout=move.layout
        )

    source = numbers.number("moved", move.number)
    return OpCall(
        op="aten::_to_copy",
        inputs=(spec(source, source, "cpu"),),
        outputs=(spec(numbers.number("tensor", move.number), numbers.number("storage", move.storage), "mps"),),
        arguments={"device": "mps:0"},
        module=move.name,
        phase="move",
        inner=("aten::empty_strided",),
    )
