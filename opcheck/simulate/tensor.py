"""The tensor that dispatches as one on MPS, on any machine.

Its C++ device stays ``cpu`` and it carries the MPS dispatch keys besides, so that the dispatcher picks the MPS
column while autograd's device guard stays the CPU's.  One class has three payloads: none (shapes only, for
audits), a small real CPU tensor (for control flow on data), a real CPU tensor of any size (for emulation).

Tried on torch 2.13.0; the keys and ``_extra_dispatch_keys`` are the same in 2.9.1 and 2.15.0.
"""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch._C import DispatchKey, DispatchKeySet

from opcheck.simulate.crossing import copied, swap
from opcheck.simulate.flight import FLIGHT
from opcheck.simulate.printing import printed
from opcheck.simulate.specs import Spec, spec_of
from opcheck.simulate.storage import on_mps

if TYPE_CHECKING:
    from collections.abc import Callable

MPS_KEYS = (
    DispatchKeySet(DispatchKey.MPS)
    | DispatchKeySet(DispatchKey.AutogradMPS)
    | DispatchKeySet(DispatchKey.AutocastMPS)  # type: ignore[attr-defined]  # the stub lacks it
)
SPARSE_KEYS = MPS_KEYS | DispatchKeySet(DispatchKey.SparseMPS)
MPS_DEVICE = torch.device("mps", 0)
_CPU = torch.device("cpu")
#: the devices beside ``mps`` that every build has
_OTHERS = frozenset({"cpu", "meta"})
_make_wrapper = torch.Tensor._make_wrapper_subclass
#: C++ that takes the wrapper for a CPU tensor with data (ldexp's kernel in 2.13 to 2.15) raises then, and does not
#: end the process.
_refuse_data_access = torch._C._set_throw_on_mutable_data_ptr
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
        """Reached only where no simulator is active: say so; another subclass goes first."""
        if any(kind is not MPSTensor for kind in types):
            return NotImplemented
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
        return copied(self, device=_CPU, memory_format=memory_format)

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As torch.Tensor.to: C++ would take ``mps`` for another device than the wrapper's."""
        device, dtype, non_blocking, memory_format, copy = parse_to(*args, **kwargs)
        moves = device is not None and device.type != "mps"
        if moves and device is not None and device.type not in _OTHERS:
            torch.empty(
                0, device=device
            )  # raises what a Mac raises: no build for one has the device
        same_dtype = dtype is None or dtype == self.dtype
        same_format = memory_format is None or self.is_contiguous(memory_format=memory_format)
        if same_dtype and same_format and not moves and not copy:
            return self
        options: dict[str, Any] = {"dtype": dtype, "non_blocking": non_blocking}
        if moves:
            options["device"] = device
        if memory_format is not None:
            options["memory_format"] = memory_format
        return copied(self, **options)

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

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Raise as ``numpy`` does."""
        del copy
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def tolist(self) -> Any:
        """Read the values, which a Mac copies to the host first."""
        return self.detach().cpu().tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """As a Mac prints it where the values are known, else the metadata."""
        if self.payload is None or not self.memory.known:
            return f"MPSTensor({self.spec!r})"
        return printed(self, self.payload, tensor_contents)

    def __format__(self, spec: str) -> str:
        """Numbers format as numbers."""
        return self.item().__format__(spec) if self.dim() == 0 else repr(self)

    @property
    def data(self) -> torch.Tensor:
        """The same memory without history; C++ would make one that shares the metadata's holes too."""
        payload = None if self.payload is None else self.payload.detach()
        return wrap(self.spec, payload, self.memory)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if type(value) is not MPSTensor:
            swap(self, value)
            return
        fresh = wrap(value.spec, value.payload, value.memory)
        with torch._C._DisableTorchDispatch():
            torch._C.TensorBase.data.__set__(self, fresh)  # type: ignore[attr-defined]  # a descriptor
        self.spec, self.payload, self.memory = value.spec, value.payload, value.memory

    def untyped_storage(self) -> torch.UntypedStorage:
        """The memory behind it, which says ``mps`` where there is any."""
        if self.payload is None:
            return super().untyped_storage()
        return on_mps(self.payload.untyped_storage())

    def _typed_storage(self) -> torch.TypedStorage:
        return torch.TypedStorage(
            wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True
        )

    def storage(self) -> torch.TypedStorage:
        """As torch.Tensor.storage."""
        return self._typed_storage()

    def storage_offset(self) -> int:
        """Of its elements in the memory that it shares."""
        return self.spec.offset

    def data_ptr(self) -> int:
        """Where the values are; 0 where there are none."""
        return 0 if self.payload is None else self.payload.data_ptr()

    def type(self, dtype: Any = None, non_blocking: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002
        """``torch.mps.FloatTensor``, or a conversion."""
        if dtype is None:
            kind = torch.empty(0, dtype=self.dtype, device=_CPU).type()
            return kind.replace("torch.", "torch.mps.")
        if isinstance(dtype, torch.dtype):
            return self.to(dtype, non_blocking=non_blocking)
        return torch.Tensor.type(self.cpu(), dtype, non_blocking)

    def new_tensor(  # type: ignore[override]  # every option by its name
        self, data: Any, **options: Any
    ) -> torch.Tensor:
        """As torch.Tensor.new_tensor: C++ would put it on the CPU."""
        options = {"dtype": self.dtype, "device": MPS_DEVICE, **options}
        if isinstance(data, torch.Tensor):
            return data.detach().clone().to(options["device"], options["dtype"])
        return torch.tensor(data, **options)

    def new(self, *args: Any) -> torch.Tensor:  # type: ignore[override]  # deprecated forms left out
        """As torch.Tensor.new: of this dtype, on this device."""
        if (
            len(args) == 1
            and isinstance(args[0], (list, tuple))
            and type(args[0]) is not torch.Size
        ):
            return torch.tensor(args[0], dtype=self.dtype, device=MPS_DEVICE)
        return torch.empty(*args or (0,), dtype=self.dtype, device=MPS_DEVICE)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As a tensor of a Mac pickles: its storage, which says ``mps``."""
        if self.payload is None:
            return super().__reduce_ex__(protocol)
        if self.is_sparse:
            parts = (self._indices(), self._values(), self.size(), self.is_coalesced())
            return torch._utils._rebuild_sparse_tensor, (self.layout, parts)
        hooks: dict[int, Any] = {}
        arguments = (
            self._typed_storage(),
            self.spec.offset,
            torch.Size(self.spec.shape),
            self.spec.stride,
        )
        if not isinstance(self, torch.nn.Parameter):
            return torch._utils._rebuild_tensor_v2, (*arguments, self.requires_grad, hooks)
        return torch._utils._rebuild_parameter, (self.data, self.requires_grad, hooks)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        """Parameters are copied by module.deepcopy and by torch.nn.utils."""
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            # torch/_tensor.py, Tensor.__deepcopy__
            message = (
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
                "because of a torch.nn.utils.weight_norm usage, see "
                "https://github.com/pytorch/pytorch/pull/103001"
            )
            raise RuntimeError(message)
        clone = self.detach().clone()
        result = (
            torch.nn.Parameter(clone, self.requires_grad)
            if isinstance(self, torch.nn.Parameter)
            else clone.requires_grad_(self.requires_grad)
        )
        memo[id(self)] = result
        if self.grad is not None:
            result.grad = self.grad.__deepcopy__(memo)
        vars(result).update(
            {k: copy.deepcopy(v, memo) for k, v in vars(self).items() if k not in _OWN}
        )
        return result


#: what an MPSTensor keeps in its dict, beside what the program puts there.
_OWN = frozenset({"spec", "payload", "memory", "number", "_is_param", "_moved_from"})


def parse_to(
    *args: Any, **kwargs: Any
) -> tuple[torch.device | None, torch.dtype | None, bool, torch.memory_format | None, bool]:
    """The arguments of Tensor.to, by torch's own parser, which knows no ``copy``."""
    if args and isinstance(args[0], torch.Tensor):
        other = args[0]
        args = (other.device, other.dtype, *args[1:])
    if type(kwargs.get("device", args[0] if args else None)) is int:
        # An index of the accelerator, which the build does not have.
        index = kwargs.pop("device", None)
        args = (torch.device("mps", args[0] if index is None else index), *args[index is None :])
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
    sparse = spec.layout is not torch.strided
    tensor: MPSTensor = _make_wrapper(
        MPSTensor,
        spec.shape,
        strides=None if sparse else spec.stride,
        dtype=spec.dtype,
        device=_CPU,
        requires_grad=requires_grad,
        # C++ takes a tensor for a sparse one by its keys (c10/core/TensorImpl.h, is_sparse).
        _extra_dispatch_keys=SPARSE_KEYS if sparse else MPS_KEYS,
    )
    _refuse_data_access(tensor)
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
