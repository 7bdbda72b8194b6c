"""The tensor that dispatches as one on MPS, on any machine.

Its C++ device stays ``cpu`` and it carries the MPS dispatch keys besides, so that the dispatcher picks the MPS
column while autograd's device guard stays the CPU's.  One class has three payloads: none (shapes only, for
audits), a small real CPU tensor (for control flow on data), a real CPU tensor of any size (for emulation).

Tried on torch 2.13.0; the keys and ``_extra_dispatch_keys`` are the same in 2.9.1 and 2.15.0.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch._C import DispatchKey, DispatchKeySet

from opcheck.simulate.flight import FLIGHT
from opcheck.simulate.specs import Spec, spec_of

if TYPE_CHECKING:
    from collections.abc import Callable

MPS_KEYS = (
    DispatchKeySet(DispatchKey.MPS)
    | DispatchKeySet(DispatchKey.AutogradMPS)
    | DispatchKeySet(DispatchKey.AutocastMPS)  # type: ignore[attr-defined]  # the stub lacks it
)
MPS_DEVICE = torch.device("mps", 0)
_CPU = torch.device("cpu")
_make_wrapper = torch.Tensor._make_wrapper_subclass
_numbers = itertools.count(1)


class OutsideError(RuntimeError):
    """A simulated tensor was used where no simulation is active."""


class Storage:
    """The memory that aliases share: whether its values are known, and who is told when it is given back.

    It lives as long as a tensor that shares it: where autograd alone holds one, C++ keeps the Python object too
    (torch/csrc/autograd/python_variable.cpp).
    """

    __slots__ = ("known", "number", "watcher")

    def __init__(self, *, known: bool) -> None:
        self.number = next(_numbers)
        self.known = known
        #: called with the number once nothing shares the memory any more
        self.watcher: Callable[[int], None] | None = None

    def __del__(self) -> None:
        """Tell the watcher."""
        if self.watcher is not None:
            self.watcher(self.number)


class MPSTensor(torch.Tensor):
    """A tensor on the simulated ``mps:0``."""

    spec: Spec
    payload: torch.Tensor | None
    memory: Storage
    number: int

    # Function-level interception is the function mode's work (simulate/device.py): a subclass hook would run
    # for every attribute access on every tensor.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub has no func
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Reached only where no simulator is active: say so."""
        message = (
            f"{func} was called on a tensor of a simulated Mac outside of the simulation: "
            "in a thread of the program's own, or after the end"
        )
        raise OutsideError(message)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """What Python sees; C++ sees ``cpu``."""
        return MPS_DEVICE

    is_mps = property(lambda _: True)
    is_cpu = property(lambda _: False)

    def get_device(self) -> int:
        """Index of ``mps:0``."""
        return 0

    def mps(self, *_args: Any, **_kwargs: Any) -> torch.Tensor:
        """Already there."""
        return self

    def cpu(self, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        """The values, on the CPU."""
        # The user says where to: not a temporary of C++'s.
        with FLIGHT.set(on_mps=False):
            return torch.ops.aten._to_copy.default(self, device=_CPU, memory_format=memory_format)

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As torch.Tensor.to: C++ would take ``mps`` for another device than the wrapper's."""
        device, dtype, non_blocking, memory_format, copy = parse_to(*args, **kwargs)
        moves = device is not None and device.type != "mps"
        same_dtype = dtype is None or dtype == self.dtype
        same_format = memory_format is None or self.is_contiguous(memory_format=memory_format)
        if same_dtype and same_format and not moves and not copy:
            return self
        options: dict[str, Any] = {"dtype": dtype, "non_blocking": non_blocking}
        if moves:
            options["device"] = device
        if memory_format is not None:
            options["memory_format"] = memory_format
        with FLIGHT.set(on_mps=not moves):
            return torch.ops.aten._to_copy.default(self, **options)

    def numpy(self, *, force: bool = False) -> Any:
        """Raise as a Mac does unless ``force``."""
        if not force:
            # torch/csrc/utils/tensor_numpy.cpp
            message = (
                "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
                "to host memory first."
            )
            FLIGHT.refuse(torch.ops.aten._to_copy.default, (self,), "numpy", message)
            raise TypeError(message)
        return self.detach().cpu().resolve_conj().resolve_neg().numpy()

    def __array__(self, dtype: Any = None) -> Any:
        """Raise as ``numpy`` does."""
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def tolist(self) -> Any:
        """Read the values, which a Mac copies to the host first."""
        return self.detach().cpu().tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Metadata, and the values where they are known."""
        values = f", {self.payload}" if self.payload is not None and self.memory.known else ""
        return f"MPSTensor({self.spec!r}{values})"

    def __format__(self, spec: str) -> str:
        """Numbers format as numbers."""
        return self.item().__format__(spec) if self.dim() == 0 else repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        """Parameters are copied by module.deepcopy and by torch.nn.utils."""
        if id(self) in memo:
            return memo[id(self)]
        copied = self.detach().clone()
        result = (
            torch.nn.Parameter(copied, self.requires_grad)
            if isinstance(self, torch.nn.Parameter)
            else copied.requires_grad_(self.requires_grad)
        )
        memo[id(self)] = result
        return result


def parse_to(
    *args: Any, **kwargs: Any
) -> tuple[torch.device | None, torch.dtype | None, bool, torch.memory_format | None, bool]:
    """The arguments of Tensor.to, by torch's own parser, which knows no ``copy``."""
    if args and isinstance(args[0], torch.Tensor):
        other = args[0]
        args = (other.device, other.dtype, *args[1:])
    copy = bool(kwargs.pop("copy", False))
    flags = [index for index, value in enumerate(args) if isinstance(value, bool)]
    if len(flags) == 2:  # non_blocking, copy
        copy = bool(args[flags[1]])
        args = args[: flags[1]]
    return (*torch._C._nn._parse_to(*args, **kwargs), copy)


def wrap(
    spec: Spec,
    payload: torch.Tensor | None = None,
    memory: Storage | None = None,
    *,
    requires_grad: bool = False,
) -> MPSTensor:
    """A tensor of this metadata; ``payload`` holds its values where they are known.

    ``memory`` is given for views, which share that of their base.
    """
    if torch.is_inference_mode_enabled():
        # A view of a normal tensor is a normal one in inference mode too (VariableTypeUtils.h, as_view), and
        # what is made here may become one.
        with torch.inference_mode(mode=False):
            return wrap(spec, payload, memory, requires_grad=requires_grad)
    # Storage offset is kept in the spec only: the wrapper has no storage of its own.
    tensor: MPSTensor = _make_wrapper(
        MPSTensor,
        spec.shape,
        strides=spec.stride,
        dtype=spec.dtype,
        device=_CPU,
        requires_grad=requires_grad,
        _extra_dispatch_keys=MPS_KEYS,
    )
    tensor.spec = spec
    tensor.payload = payload
    tensor.memory = memory if memory is not None else Storage(known=payload is not None)
    tensor.number = next(_numbers)
    return tensor


def to_mps(tensor: torch.Tensor, *, keep: int) -> MPSTensor:
    """A CPU or meta tensor as it is after a move: the values stay known up to ``keep`` elements."""
    known = tensor.device.type != "meta" and tensor.numel() <= keep
    return wrap(spec_of(tensor), tensor.detach() if known else None)


def parameter_to_mps(parameter: torch.Tensor, *, keep: int) -> MPSTensor:
    """A parameter after a move: still a torch.nn.Parameter to isinstance, still a leaf."""
    moved = to_mps(parameter.data, keep=keep)
    moved.requires_grad_(parameter.requires_grad)
    # torch/nn/parameter.py: what makes a tensor of another class a Parameter.
    moved._is_param = True
    return moved
