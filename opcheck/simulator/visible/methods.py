"""Replace the methods and attributes of ``torch.Tensor`` whose C++ would take the device for ``cpu``.

They are on the class itself as long as a simulation runs, and not only in a function mode: torch's own Python calls
them where modes are off (torch/overrides.py, ``handle_torch_function``).  A class with a hook of its own is called
first, as by C++ (``_is_hooked``); the mode then comes here (simulator/visible/device_mode.py).
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import MethodType
from typing import Any

import torch
from torch.autograd import forward_ad

from opcheck.common.replacing import replace_attributes
from opcheck.common.versions import Version
from opcheck.simulator.dispatch.calls import NESTED
from opcheck.simulator.dispatch.dispatch_context import current
from opcheck.simulator.dispatch.tensor import MPS_DEVICE, MPS_KEYS, exchange, is_on_mps, place, set_bits, wrap
from opcheck.simulator.target_reads import READS, is_before
from opcheck.simulator.visible import storage
from opcheck.simulator.visible.storage import on_mps
from opcheck.tracing.torch_private import dispatch, tensors

_CPU = torch.device("cpu")
_Tensor: Any = torch.Tensor
_Base = tensors.tensor_base
#: the devices that every build for a Mac has
_BUILT = frozenset({"mps", "cpu", "meta"})
_EXACT = frozenset({torch.Tensor, torch.nn.Parameter})
_NO_DISPATCH = torch.Tensor.__torch_dispatch__

TO = _Tensor.to
DATA_SET = _Base.data.__set__
GRAD_SET = _Base.grad.__set__


def is_hooked(kind: type) -> bool:
    """Return whether a class of tensors has a ``__torch_function__`` that C++ calls first."""
    return kind not in _EXACT and kind.__torch_function__ is not dispatch.no_function_hook  # type: ignore[attr-defined]


def hooks_run(types: Iterable[type]) -> bool:
    """Return whether C++ calls a hook of these classes now."""
    return any(map(is_hooked, types)) and dispatch.function_hooks_enabled()


# -- where it is ------------------------------------------------------------------------------------------------


def is_outer(tensor: Any) -> bool:
    """Return whether C++ takes the tensor for a CPU tensor although the tensor that it wraps is on MPS.

    So do a wrapper of the program's own (``make_wrapper``) and a wrapper of torch.func, which represents the tensor
    inside.
    """
    if vars(tensor).get("_mps_outer"):
        return True
    if dispatch.functorch_level() is None:
        return False
    while dispatch.is_functorch_wrapper(tensor):
        tensor = dispatch.functorch_inner(tensor)
        if tensor._mps is not None:
            return True
    return False


def any_inside(values: Any) -> bool:
    """Return whether any of these values, or any in their nested lists, wraps a tensor on MPS."""
    return any(
        any_inside(value) if isinstance(value, (list, tuple)) else isinstance(value, torch.Tensor) and is_outer(value)
        for value in values
    )


def _is_there(tensor: Any) -> bool:
    return tensor._mps is not None or is_outer(tensor)


def _device(self: Any) -> Any:
    return MPS_DEVICE if _is_there(self) else _Base.device.__get__(self)


def _is_cpu(self: Any) -> bool:
    return not _is_there(self) and bool(_Base.is_cpu.__get__(self))


def _get_device(self: Any) -> int:
    return 0 if _is_there(self) else int(_Base.get_device(self))


# -- moves ------------------------------------------------------------------------------------------------------


def as_device(device: Any) -> Any:
    """Return ``mps:0`` for any ``mps`` and for the index of an accelerator; return anything else as it is.

    MPS has one device, and its allocator does not look at the index (MPSAllocator.mm; MPSGuardImpl.h, ``setDevice``).
    """
    kind = type(device)
    if kind is torch.device:
        return MPS_DEVICE if device.type == "mps" else device
    if kind is str and device.partition(":")[0] == "mps":
        return MPS_DEVICE
    if kind is int and device >= 0:
        # torch/csrc/utils/python_arg_parser.h of the wheels: ``toDevice`` makes CUDA of it up to 2.4,
        # ``deviceFromLong`` queries ``at::getAccelerator`` since 2.5, where ATen/DeviceAccelerator.h lists MPS for
        # the first time.
        return torch.device("cuda", device) if READS.ask(is_before, Version(2, 5)) else MPS_DEVICE
    return device


def _without_index(device: Any) -> Any:
    """Return the device that an index alone means; return anything else as it is."""
    return torch.device(as_device(device).type, device) if type(device) is int and device >= 0 else device


def make_device(*args: Any, **kwargs: Any) -> torch.device:
    """Run torch.device, whose C++ would search this build for an accelerator to make a device of an index alone."""
    if len(args) == 1 and not kwargs:
        args = (_without_index(args[0]),)
    elif "device" in kwargs:
        kwargs["device"] = _without_index(kwargs["device"])
    return torch.device(*args, **kwargs)


def _names_mps(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return _is_there(value)
    return as_device(value) is MPS_DEVICE


def _is_another(device: Any) -> bool:
    if type(device) is str and device.startswith("mps:"):
        device = torch.device(device)
    return type(device) is torch.device and device.type == "mps" and bool(device.index)


def move(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Move or convert as torch.Tensor.to does; to C++ both devices are the same."""
    here = _is_there(self)
    named = [as_device(value) for value in args]
    options = {name: as_device(value) for name, value in kwargs.items()}
    if not here and not any(_names_mps(value) for value in (*named, *options.values())):
        return TO(self, *named, **options)
    device, dtype, non_blocking, memory_format, copy = parse_to(*named, **options)
    moves = device is not None and (device.type == "mps") is not here
    if moves and device is not None and device.type not in _BUILT:
        torch.empty(0, device=device)  # raises as on a Mac: no macOS build has the device
    # To C++ mps:1 is not where the tensor is.
    copy = copy or (here and any(map(_is_another, (*args, *kwargs.values()))))
    same_dtype = dtype is None or dtype == self.dtype
    same_format = memory_format is None or self.is_contiguous(memory_format=memory_format)
    if same_dtype and same_format and not moves and not copy:
        return self
    options = {"dtype": dtype, "non_blocking": non_blocking}
    options |= {"device": device} if moves else {}
    options |= {} if memory_format is None else {"memory_format": memory_format}
    return copy_across(self, **options)


def parse_to(
    *args: Any, **kwargs: Any
) -> tuple[torch.device | None, torch.dtype | None, bool, torch.memory_format | None, bool]:
    """Parse the arguments of Tensor.to by torch's own parser, which does not know ``copy``."""
    other = kwargs.pop("other", None)
    if other is None and args and isinstance(args[0], torch.Tensor):
        other, args = args[0], args[1:]
    if other is not None:
        args = (other.device, other.dtype, *args)
    copy = bool(kwargs.pop("copy", False))
    flags = [index for index, value in enumerate(args) if isinstance(value, bool)]
    if len(flags) == 2:  # non_blocking, copy
        copy = bool(args[flags[1]])
        args = args[: flags[1]]
    return (*tensors.parse_to(*args, **kwargs), copy)


def module_parse_to(*args: Any, **kwargs: Any) -> Any:
    """Parse the arguments of Module.to, which calls this (torch/nn/modules/module.py)."""
    options = {name: _without_index(value) for name, value in kwargs.items()}
    return tensors.parse_to(*map(_without_index, args), **options)


def cpu(self: Any, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
    """Return the values on the CPU."""
    if not _is_there(self):
        return _Base.cpu(self, memory_format=memory_format)
    return copy_across(self, device=_CPU, memory_format=memory_format)


def cuda(self: Any, device: Any = None, *args: Any, **options: Any) -> Any:
    """Raise as a Mac does: an index is no CUDA device since 2.5 (python_variable_methods.cpp, ``THPVariable_cuda``).

    The installed build has no accelerator, and would say so in place of torch's refusal of the wrong device.
    """
    return _Base.cuda(self, _without_index(device), *args, **options)


def numpy(self: Any, *, force: bool = False) -> Any:
    """Raise as a Mac does unless ``force``."""
    if not _is_there(self):
        return _Base.numpy(self, force=force)
    if not force:
        # torch/csrc/utils/tensor_numpy.cpp
        message = (
            "can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )
        current().refuse(torch.ops.aten._to_copy.default, (self,), "numpy", message)
        raise TypeError(message)
    return self.detach().cpu().resolve_conj().resolve_neg().numpy()


def tolist(self: Any) -> Any:
    """Read the values, which a Mac copies to the host first."""
    return _Base.tolist(self.detach().cpu() if _is_there(self) else self)


def _reader(name: str) -> Callable[[Any], Any]:
    """Return the method that reads a tensor as one number, such as ``__float__``.

    C++ calls it for each tensor in the data of a new one while it skips the Python key (tensor_new.cpp,
    ``internal_new_from_data`` and ``recursive_store``); a Mac's ``item`` needs no such key.
    """
    base = getattr(_Base, name)

    def read(self: Any) -> Any:
        if not _is_there(self):
            return base(self)
        with dispatch.include_key(dispatch.DispatchKey.Python):
            return base(self)

    return read


def type_(self: Any, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
    """Return ``torch.mps.FloatTensor``, or convert; no release accepts that name as an argument (tensor_types.cpp)."""
    if not _is_there(self):
        return _Base.type(self, dtype, non_blocking, **options)
    if dtype is None:
        return _Base.type(torch.empty(0, dtype=self.dtype, device=_CPU)).replace("torch.", "torch.mps.")
    if isinstance(dtype, torch.dtype):
        return move(self, dtype, non_blocking=non_blocking, **options)
    return _Base.type(cpu(self), dtype, non_blocking, **options)


# -- new tensors next to it --------------------------------------------------------------------------------------


def new_tensor(self: Any, data: Any, **options: Any) -> torch.Tensor:
    """Run torch.Tensor.new_tensor, whose C++ would put the result on the CPU."""
    if not _is_there(self):
        return _Base.new_tensor(self, data, **options)
    options = {"dtype": self.dtype, "device": MPS_DEVICE, **options}
    if isinstance(data, torch.Tensor):
        result = data.detach().clone().to(options["device"], options["dtype"])
        return result.requires_grad_(options.get("requires_grad", False))
    return torch.tensor(data, **options)


def new(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Do as torch.Tensor.new: create a tensor with this dtype, on this device."""
    if not _is_there(self):
        return _Base.new(self, *args, **kwargs)
    if self.is_sparse and len(args) == 3:  # indices, values and sizes, as SparseAdam passes them
        return sparse_coo_tensor(*args)
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        return args[0].detach()
    if len(args) == 1 and isinstance(args[0], (list, tuple)) and type(args[0]) is not torch.Size:
        return torch.tensor(args[0], dtype=self.dtype, device=MPS_DEVICE)
    if args and isinstance(args[0], torch.TypedStorage):
        return torch.empty(0, dtype=self.dtype, device=MPS_DEVICE).set_(tensors.untyped_memory(args[0]))
    return torch.empty(*args or (0,), dtype=self.dtype, device=MPS_DEVICE)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
    """Run torch.as_tensor, whose C++ sees no move between the devices."""
    if not is_on_mps(data) or device is None:
        return torch.as_tensor(data, dtype=dtype, device=device)
    return move(data, device, data.dtype if dtype is None else dtype)


def as_array(obj: Any, **options: Any) -> torch.Tensor:
    """Run torch.asarray."""
    if is_on_mps(obj) and options.get("device") is not None:
        device = torch.device(options["device"])
        if device.type != "mps" and options.get("copy") is False:
            # torch/csrc/utils/tensor_new.cpp, asarray
            raise ValueError(f"can't alias tensor from device '{obj.device}' to '{device}'.")
        options.pop("device")
        obj = move(obj, device)
    return torch.asarray(obj, **options)


# -- its memory -------------------------------------------------------------------------------------------------


def _data(self: Any) -> torch.Tensor:
    if (state := self._mps) is None:
        return _Base.data.__get__(self)
    alias = state.alias()
    # An uninitialized parameter allows reading its own data, and nothing else.
    with dispatch.without_function_modes():
        result = wrap(alias.spec, alias.payload, alias.memory, alias_of=self)
        set_bits(result, conjugate=self.is_conj(), negative=self.is_neg())
    return result


def set_data(self: Any, value: torch.Tensor) -> None:
    """Run ``tensor.data = value``, which C++ takes for an assignment between tensors of one device."""
    if self._mps is None and not is_on_mps(value):
        DATA_SET(self, value)
    else:
        exchange(self, value)


def set_grad(self: Any, value: Any) -> None:
    """Run ``tensor.grad = value``, which compares the devices (python_variable.cpp, THPVariable_set_grad)."""
    if isinstance(value, torch.Tensor) and _is_there(self) is not _is_there(value):
        message = (
            f"attempting to assign a gradient with device type '{value.device.type}' to a tensor with device type "
            f"'{self.device.type}'. Please ensure that the gradient and the tensor are on the same device"
        )
        raise RuntimeError(message)
    GRAD_SET(self, value)


def untyped_storage(self: Any) -> torch.UntypedStorage:
    """Return the tensor's storage, which reports ``mps`` if the tensor has values."""
    if (state := self._mps) is None:
        return _Base.untyped_storage(self)
    if state.payload is None:
        return on_mps(state.memory.handle(state.spec))
    return on_mps(state.payload.untyped_storage())


def data_ptr(self: Any) -> int:
    """Return the address of the values; 0 if there are none."""
    if (state := self._mps) is None:
        return int(_Base.data_ptr(self))
    return 0 if state.payload is None else int(_Base.data_ptr(state.payload))


# -- other classes ----------------------------------------------------------------------------------------------


def as_subclass(self: Any, cls: type[torch.Tensor]) -> torch.Tensor:
    """Return the tensor as a subclass; C++ refuses a tensor that has a Python object from a dispatch mode."""
    if type(self).__torch_dispatch__ is not _NO_DISPATCH:
        return _Base.as_subclass(self, cls)
    with dispatch.without_function_modes(), dispatch.without_dispatch_modes():
        result: torch.Tensor = _Base.as_subclass(self, cls)
    return _place_beside(result, self)


def make_subclass(*args: Any, **kwargs: Any) -> Any:
    """Run torch.Tensor._make_subclass, which detaches below all modes and which Parameter calls.

    With these parameters, since torch._dynamo compares them with those of a function of its own
    (torch/_dynamo/polyfills/tensor.py).
    """
    return _place_beside(tensors.base_make_subclass(*args, **kwargs), args[1] if args[1:] else kwargs["data"])


def _place_beside(result: torch.Tensor, source: Any) -> torch.Tensor:
    if source._mps is not None:
        place(result, source._mps.alias())
    return result


def make_wrapper(*args: Any, **kwargs: Any) -> Any:
    """Run torch.Tensor._make_wrapper_subclass; a wrapper on MPS has its keys, and no device that C++ sees."""
    if as_device(kwargs.get("device")) is not MPS_DEVICE:
        return tensors.base_make_wrapper_subclass(*args, **kwargs)
    keys = kwargs.pop("_extra_dispatch_keys", None)
    keys = MPS_KEYS if keys is None else MPS_KEYS | keys
    options = {**kwargs, "device": _CPU, "_extra_dispatch_keys": keys}
    result = tensors.base_make_wrapper_subclass(*args, **options)
    result._mps_outer = True
    return result


def make_new(*args: Any, **kwargs: Any) -> Any:
    """Run ``Tensor(...)``; an instance of a subclass is an alias of its argument (legacy_tensor_ctor)."""
    cls = args[0]
    if cls is torch.Tensor or cls.__torch_dispatch__ is not _NO_DISPATCH:
        return _Base.__new__(*args, **kwargs)
    return as_subclass(_Base.__new__(torch.Tensor, *args[1:], **kwargs), cls)


def show(self: Any, *, tensor_contents: Any = None) -> str:
    """Format the tensor as a Mac prints it if the values are known, else by its metadata."""
    if (state := self._mps) is None:
        return _Tensor.__repr__(self, tensor_contents=tensor_contents)
    if state.payload is None or not state.memory.known:
        return f"MPSTensor({state.spec!r})"
    return format_tensor(self, state.payload, tensor_contents)


def any_output_is_alias(args: Any, kwargs: Any, outputs: Any) -> bool:
    """Compare storages as C++ does for torch.library.custom_op; C++ takes equal metadata here for one storage."""
    arguments = {id(t._mps.memory) for t in (*args, *kwargs.values()) if is_on_mps(t)}
    result = [id(t._mps.memory) for t in outputs if is_on_mps(t)]
    if len(arguments.union(result)) != len(arguments) + len(result):
        return True
    others = tuple(t for t in args if not is_on_mps(t))
    named = {name: t for name, t in kwargs.items() if not is_on_mps(t)}
    return bool(_IS_ALIAS(others, named, tuple(t for t in outputs if not is_on_mps(t))))


def _state(tensor: Any) -> Any:
    """Return what a tensor pickles in addition to its values, without opcheck's attributes."""
    state = _STATE(tensor)
    attributes, *slots = state if type(state) is tuple else (state,)
    if isinstance(attributes, dict):
        attributes = {name: value for name, value in attributes.items() if name not in ("_mps", "_mps_outer")}
    return (attributes, *slots) if slots else attributes


_STATE = tensors.PICKLED_STATE.value()
_IS_ALIAS: Any = tensors.IS_ALIAS.value()


class _Method:
    """Replaces a method for tensors on the simulated device.

    On the class it is torch's own, which hooks compare their ``func`` with.
    """

    def __init__(self, base: Any, ours: Callable[..., Any], *, asks: bool = True) -> None:
        self._base = base
        self._ours = ours
        self._asks = asks

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        """Bind the method to an instance, as a function in a class does."""
        if tensor is None:
            return self._base
        if self._asks and is_hooked(type(tensor)) and dispatch.function_hooks_enabled():
            return self._base.__get__(tensor, owner)
        return MethodType(self._ours, tensor)


class _Attribute:
    """Replaces an attribute for tensors on the simulated device."""

    def __init__(self, base: Any, read: Callable[[Any], Any], write: Callable[[Any, Any], None] | None = None) -> None:
        self._base = base
        self._read = read
        self._write = write or base.__set__

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        """Read the attribute, as a property does."""
        return self._base if tensor is None else self._read(tensor)

    def __set__(self, tensor: Any, value: Any) -> None:
        """Write the attribute, as a property does."""
        self._write(tensor, value)


def set_storage(self: Any, *args: Any, **options: Any) -> Any:
    """Run ``tensor.set_(source)``, which takes no memory of another device (native/Resize.h, checkSetStorage)."""
    source = args[0] if args else options.get("source")
    if isinstance(source, torch.TypedStorage):
        source = tensors.untyped_memory(source)
    if isinstance(source, (torch.UntypedStorage, torch.Tensor)) and source.device.type != self.device.type:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{self.device}" to a storage on different device '
            f'"{source.device}".  This is no longer allowed; the devices must match.'
        )
    return _Base.set_(self, *args, **options)


_METHODS: dict[str, Callable[..., Any]] = {
    **{each.__name__: each for each in (cpu, cuda, numpy, tolist, new_tensor, new, untyped_storage, data_ptr)},
    "get_device": _get_device,
    "to": move,
    "type": type_,
    "set_": set_storage,
    # TensorConversions.cpp: ``self.to(other.options())``
    "type_as": lambda self, other: move(self, other.device, other.dtype),
    "__repr__": show,
    **{name: _reader(name) for name in ("__complex__", "__float__", "__index__", "__int__")},
    "__dlpack_device__": storage.device,
}

#: attribute -> what reads it, and what writes it where that is not C++
_ATTRIBUTES: dict[str, tuple[Callable[..., Any], ...]] = {
    "device": (_device,),
    "is_mps": (_is_there,),
    "is_cpu": (_is_cpu,),
    "data": (_data, set_data),
}

#: name on torch.Tensor -> what is there during a simulation.
_INSTALLED: dict[str, Any] = {
    **{name: _Method(getattr(torch.Tensor, name), ours) for name, ours in _METHODS.items()},
    # C++ calls no hook for this (python_variable.cpp, THPVariable_as_subclass).
    "as_subclass": _Method(_Base.as_subclass, as_subclass, asks=False),
    **{name: _Attribute(getattr(_Base, name), *functions) for name, functions in _ATTRIBUTES.items()},
    "_make_subclass": staticmethod(make_subclass),
    "_make_wrapper_subclass": staticmethod(make_wrapper),
    "__new__": staticmethod(make_new),
}


#: C++'s own, as the function mode sees them: those of a class with a hook, and what is called on the class.
def _only_on_cpu(name: str) -> Callable[..., Any]:
    """Return a method that calls Python for each element (torch/csrc/utils/tensor_apply.cpp)."""
    method = getattr(torch.Tensor, name)

    def compute(self: Any, *args: Any) -> Any:
        if any(isinstance(each, torch.Tensor) and _is_there(each) for each in (self, *args)):
            raise TypeError(f"{name} is only implemented on CPU tensors")
        return method(self, *args)

    return compute


REPLACED: dict[Any, Callable[..., Any]] = {
    **{getattr(torch.Tensor, name): _only_on_cpu(name) for name in ("apply_", "map_")},
    **{getattr(torch.Tensor, name): ours for name, ours in _METHODS.items()},
    **{getattr(_Base, name).__get__: functions[0] for name, functions in _ATTRIBUTES.items()},
    torch.device: make_device,
    torch.as_tensor: as_tensor,
    torch.asarray: as_array,
    DATA_SET: set_data,
    GRAD_SET: set_grad,
}


@contextlib.contextmanager
def methods_of_mac() -> Iterator[None]:
    """Make tensors report that they are on MPS for the length of the block."""
    changes: list[tuple[Any, str, Any]] = [
        *((torch.Tensor, name, value) for name, value in _INSTALLED.items()),
        (*tensors.PICKLED_STATE, _state),
        (*tensors.PARSE_TO, module_parse_to),
        (*tensors.IS_ALIAS, any_output_is_alias),
    ]
    with replace_attributes(changes):
        yield


def format_tensor(tensor: torch.Tensor, values: torch.Tensor, contents: str | None = None) -> str:
    """Return the text that a Mac prints."""
    primal, tangent = forward_ad.unpack_dual(tensor)
    with dispatch.without_function_modes(), dispatch.disable_modes():
        if values.is_sparse:
            return repr(values.detach()).replace("size=(", "device='mps:0', size=(", 1)
        if contents is None:
            contents = tensors.text_of_contents(values.detach(), len("tensor("))
        # torch would take it apart once more, into tensors that are nowhere.
        with replace_attributes([(forward_ad, "unpack_dual", lambda tensor: (tensor, None))]):
            text = tensors.text_of_tensor(primal, tensor_contents=contents)
    return text if tangent is None else f"{text[:-1]}, tangent={tangent})"


class _Crossing(torch.autograd.Function):
    """A copy to another device, whose gradient is copied back; to C++ both devices are the same."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        return torch.ops.aten._to_copy.default(tensor, **options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        del output
        ctx.options = inputs[1]
        ctx.origin = {"device": inputs[0].device, "dtype": inputs[0].dtype}

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return copy_across(grad, **ctx.origin), None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, _options: None) -> torch.Tensor:
        return copy_across(tangent, **ctx.options)


def copy_across(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run ``_to_copy`` as the user's own call with a given device, so that the result is no temporary of C++."""
    device = options.get("device")
    crosses = device is not None and device.type != tensor.device.type
    on_mps = (device or tensor.device).type == "mps"
    if on_mps and tensor.is_nested and tensor.layout is torch.strided:
        current().refuse(torch.ops.aten._to_copy.default, (), *NESTED)
    records = crosses and tensor.requires_grad and torch.is_grad_enabled()
    copy: Callable[..., torch.Tensor] = _Crossing.apply if records else _Crossing.forward
    with current().set(on_mps=on_mps):
        return copy(tensor, options)


# -- sparse tensors --------------------------------------------------------------------------------------------------


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
    is_coalesced: bool | None = None,
    **_checks: Any,
) -> torch.Tensor:
    """Run ``torch.sparse_coo_tensor``: the values decide the device, and the indices move there."""
    place = torch.device(device) if device is not None else getattr(values, "device", None)
    if (place is None or place.type != "mps") and not is_on_mps(indices):
        options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        return torch.sparse_coo_tensor(indices, values, *(() if size is None else (size,)), **options)
    place = place or MPS_DEVICE
    values = torch.as_tensor(values, dtype=dtype).to(place)
    indices = torch.as_tensor(indices, dtype=torch.int64).to(place)
    if size is None:
        # Their maximum is read on the host (SparseTensor.cpp, sparse_coo_tensor).
        ends = indices.amax(1).cpu() + 1 if indices.numel() else torch.zeros(len(indices))
        size = (*(int(end) for end in ends), *values.shape[1:])
    make: Callable[..., torch.Tensor] = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default
    options = {"layout": torch.sparse_coo, "device": place, "pin_memory": False, "is_coalesced": is_coalesced}
    result = make(len(indices), values.dim() - 1, tuple(size), indices, values, dtype=values.dtype, **options)
    return result.requires_grad_(requires_grad) if requires_grad else result
