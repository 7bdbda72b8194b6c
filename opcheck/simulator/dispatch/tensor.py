"""Define the tensor that dispatches as one on MPS, on any machine.

It is an ordinary ``torch.Tensor`` (or Parameter, or a subclass of the program's): its C++ device stays ``cpu``, and
it carries the MPS dispatch keys besides, so that the dispatcher picks the MPS column while autograd's device guard
stays the CPU's.  Its attribute ``_mps`` is what the simulation records about it.  The class is torch's own because
libraries ask for it (``type(x) is torch.Tensor``) and because Module.to, ``.data =`` and Parameter treat a class of
another name differently from a Mac's (torch/nn/parameter.py, torch/nn/modules/module.py ``_apply``).

There are three payloads: none (shapes only, for audits), a small real CPU tensor (for control flow on data), a real
CPU tensor of any size (for emulation).

Tried on torch 2.13.0; the keys and ``_extra_dispatch_keys`` are the same in 2.9.1 and 2.15.0.
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable
from typing import Any, TypeGuard, cast

import torch

from opcheck.simulator.dispatch.tensor_meta import TensorMeta, spec_of
from opcheck.simulator.errors import OutsideError
from opcheck.tracing.torch_private import dispatch, tensors
from opcheck.tracing.torch_private.backend import BUILT_FOR_MPS
from opcheck.tracing.torch_private.dispatch import DispatchKey, DispatchKeySet

MPS_KEYS = (
    DispatchKeySet(DispatchKey.MPS) | DispatchKeySet(DispatchKey.AutogradMPS) | DispatchKeySet(dispatch.AUTOCAST_KEY)
)
SPARSE_KEYS = MPS_KEYS | DispatchKeySet(DispatchKey.SparseMPS)
MPS_DEVICE = torch.device("mps", 0)
_CPU = torch.device("cpu")
_make_subclass = tensors.make_subclass
#: ``detach`` shares its version counter (VariableTypeManual.cpp, ADInplaceOrView); a new tensor has its own.
_OWN_VERSION = DispatchKeySet(DispatchKey.ADInplaceOrView)
_numbers = itertools.count(1)
#: What a tensor becomes when its simulation ends on a Mac, where kernels for MPS are real: a tensor of a backend that
#: this build has no kernels for.  Among the backends that C++ lets ``set_data`` exchange (c10/core/TensorImpl.h,
#: has_compatible_shallow_copy_type).
_RETIRED_KEY = "HPU"
_RETIRED_KEYS = DispatchKeySet(DispatchKey.HPU) | DispatchKeySet(DispatchKey.AutogradHPU)
#: The tensors to retire, by their ids; None where no real kernel could take them.
_living: weakref.WeakValueDictionary[int, torch.Tensor] | None = (
    weakref.WeakValueDictionary() if BUILT_FOR_MPS else None
)

# What every other tensor has: an attribute is read faster than it is missed.
torch.Tensor._mps = None  # type: ignore[attr-defined]


class Storage:
    """The memory that aliases share: whether its values are known, and the watcher to notify when it is freed.

    It lives as long as a tensor that shares it: where autograd alone keeps one, C++ keeps the Python object too
    (torch/csrc/autograd/python_variable.cpp).
    """

    __slots__ = ("_handle", "known", "number", "watcher")

    def __init__(self, *, known: bool) -> None:
        self._handle: torch.UntypedStorage | None = None
        self.number = next(_numbers)
        self.known = known
        #: called with the number once nothing shares the memory any more
        self.watcher: Callable[[int], None] | None = None

    def handle(self, spec: TensorMeta) -> torch.UntypedStorage:
        """Return an identity for memory without values; Python compares it to find tensors that share memory."""
        if self._handle is None:
            self._handle = spec.fresh_meta().untyped_storage()
        return self._handle

    def __del__(self, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Notify the watcher; not while Python ends, which has emptied the modules that the watcher needs."""
        if self.watcher is not None and not _is_ending():
            self.watcher(self.number)


class Placement:
    """What the simulation records about one tensor on ``mps:0``."""

    __slots__ = ("memory", "number", "payload", "spec")

    def __init__(self, spec: TensorMeta, payload: torch.Tensor | None, memory: Storage | None) -> None:
        self.spec = spec
        #: the values, where they are known
        self.payload = payload
        self.memory = memory if memory is not None else Storage(known=payload is not None)
        self.number = next(_numbers)

    def alias(self) -> Placement:
        """Return a placement of the same memory, for another tensor."""
        return Placement(self.spec, detach_values(self.payload), self.memory)

    def __deepcopy__(self, memo: dict[int, Any]) -> Placement:
        """Serve Tensor.__deepcopy__, which gives its clone a copy of the ``__dict__``."""
        payload = None if self.payload is None else detach_values(self.payload.clone())
        copied = Placement(self.spec if payload is None else spec_of(payload), payload, None)
        copied.memory.known = self.memory.known
        return copied


class MPSTensor(torch.Tensor):
    """The type of a tensor on the simulated ``mps:0``, for annotations: no object is of this class."""

    _mps: Placement


class _Wrapper(torch.Tensor):
    """The class that a template is made from; torch makes no wrapper of a class without this method."""

    @classmethod
    def __torch_dispatch__(cls, *_args: Any, **_kwargs: Any) -> Any:
        """Never reached: no such tensor leaves ``_template``."""
        raise NotImplementedError


def is_on_mps(value: Any) -> TypeGuard[MPSTensor]:
    """Return whether the value is a tensor on the simulated device."""
    return isinstance(value, torch.Tensor) and value._mps is not None  # type: ignore[attr-defined]


def placement(tensor: torch.Tensor) -> Placement | None:
    """Return what the simulation records about a tensor; None for a tensor on another device."""
    return tensor._mps  # type: ignore[attr-defined]


def place(tensor: torch.Tensor, state: Placement | None) -> None:
    """Set what is known of a tensor whose keys C++ has set already."""
    if state is not None:
        tensor._mps = state  # type: ignore[attr-defined]
        if _living is not None:
            _living[id(tensor)] = tensor
    else:
        vars(tensor).pop("_mps", None)


def set_bits(tensor: torch.Tensor, *, conjugate: bool, negative: bool) -> None:
    """Set the conjugate and the negative bit of a tensor where they are given."""
    if conjugate:
        tensors.set_conjugate(tensor, True)
    if negative:
        tensors.set_negative(tensor, True)


def detach_values(tensor: Any) -> Any:
    """Return a plain CPU tensor with the same memory, hidden from modes; None if there is none."""
    return None if tensor is None else _make_subclass(torch.Tensor, tensor)


def _template(spec: TensorMeta, inference: bool) -> torch.Tensor:
    """Return a tensor of this metadata with the MPS keys and no data; all others of the metadata are copies of it."""
    # C++ takes a tensor for a sparse one by its keys (c10/core/TensorImpl.h, is_sparse).
    keys = MPS_KEYS if spec.layout is torch.strided else SPARSE_KEYS
    return spec.templates.setdefault(inference, _made_with_keys(spec, keys, inference))


def _made_with_keys(spec: TensorMeta, keys: DispatchKeySet, inference: bool = False) -> torch.Tensor:
    is_strided = spec.layout is torch.strided
    with torch.inference_mode(mode=inference), dispatch.without_function_modes(), dispatch.without_dispatch_modes():
        wrapper = tensors.make_wrapper_subclass(
            _Wrapper,
            spec.shape,
            strides=spec.stride if is_strided else None,
            storage_offset=spec.offset if is_strided else None,
            dtype=spec.dtype,
            device=_CPU,
            _extra_dispatch_keys=keys,
        )
        # C++ that takes the tensor for a CPU tensor with data (ldexp's kernel in 2.13 to 2.15) raises then, and does
        # not end the process.
        tensors.refuse_data_access(wrapper)
        tensor = torch.empty(0, device=_CPU)
        # Takes all but the Python key, which C++ keeps for each object (TensorImpl::copy_tensor_metadata):
        # a tensor without it is a plain one wherever no mode is on.
        tensors.set_data(tensor, wrapper)
    return tensor


def wrap(
    spec: TensorMeta,
    payload: torch.Tensor | None = None,
    memory: Storage | None = None,
    *,
    requires_grad: bool = False,
    alias_of: torch.Tensor | None = None,
) -> MPSTensor:
    """Return a tensor of this metadata; ``payload`` contains its values if they are known.

    ``memory`` is given for views, which share that of their base.  An alias is an inference tensor if its base is,
    anything else if it is made in inference mode (c10/core/TensorImpl.cpp, its constructors).
    """
    inference = torch.is_inference_mode_enabled() if alias_of is None else alias_of.is_inference()
    template = spec.templates.get(inference)
    if template is None:
        template = _template(spec, inference)
    with dispatch.excluding(_OWN_VERSION):
        tensor: Any = _make_subclass(torch.Tensor, template, requires_grad)
    place(tensor, Placement(spec, payload, memory))
    return cast("MPSTensor", tensor)


def retire() -> None:
    """Keep tensors that outlive their simulation from the real kernels of a Mac: a call raises OutsideError."""
    if not _living:
        return
    _refuse_retired()
    for tensor in list(_living.values()):
        if state := placement(tensor):  # else it has moved to the CPU
            with dispatch.without_function_modes(), dispatch.without_dispatch_modes():
                tensors.set_data(tensor, _made_with_keys(state.spec, _RETIRED_KEYS))
    _living.clear()


@functools.cache
def _refuse_retired() -> torch.library.Library:
    """Register the answer to a call on a retired tensor; the library must live as long as the process."""

    def refuse(overload: Any, *_args: Any, **_kwargs: Any) -> Any:
        raise OutsideError(f"{overload.name()} was called on a tensor of a simulated Mac after the simulation")

    library = torch.library.Library("_", "IMPL")
    library.fallback(refuse, _RETIRED_KEY)
    return library


def exchange(tensor: torch.Tensor, source: torch.Tensor) -> None:
    """Run ``tensor.data = source`` as C++ does, on any devices: the object and its history stay."""
    state = placement(source)
    with dispatch.without_function_modes(), dispatch.without_dispatch_modes():
        tensors.set_data(tensor, source)
    place(tensor, None if state is None else state.alias())


def to_mps(tensor: torch.Tensor, *, keep: int) -> MPSTensor:
    """Return a CPU or meta tensor as it is after a move; up to ``keep`` elements its values stay known."""
    state = tensor.device.type != "meta" and tensor.numel() <= keep
    return wrap(spec_of(tensor), detach_values(tensor) if state else None)


def to_mps_in_place(tensor: torch.Tensor, *, keep: int) -> MPSTensor:
    """Move a tensor wherever the program keeps it: the same object, with other data."""
    values = to_mps(tensor.detach(), keep=keep)
    if tensor.device.type == "meta":
        # C++ gives a meta tensor no memory of another device.
        result = wrap(values._mps.spec, requires_grad=tensor.requires_grad)
        tensors.swap_implementations(tensor, result)
        place(tensor, result._mps)
    else:
        exchange(tensor, values)
    return cast("MPSTensor", tensor)


def parameter_to_mps(parameter: torch.Tensor, *, keep: int) -> MPSTensor:
    """Move a parameter as Module.to does: the same object, of any class, with other data (Module._apply)."""
    # Not .data, which an uninitialized buffer gives in its own class, and that refuses its size.
    values = to_mps(_make_subclass(torch.Tensor, parameter), keep=keep)
    moved: Any = parameter
    if parameter.device.type == "meta":
        # Built without memory (capture/child/build.py); C++ makes none of another device of it.
        moved = _make_subclass(type(parameter), values, parameter.requires_grad)
        vars(moved).update(vars(parameter))
        place(moved, values._mps)
    else:
        exchange(parameter, values)
    return cast("MPSTensor", moved)
