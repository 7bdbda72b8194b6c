"""Builds a model without memory for its weights: large tensors on meta, small ones real."""

import contextlib
import functools
import gc
import math
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from typing_extensions import Self

from opcheck.capture.word_lists import read_words
from opcheck.common.errors import InputError
from opcheck.common.replacing import replace_attributes
from opcheck.tracing.torch_private.backend import clear_default_device, constructors, default_device
from opcheck.tracing.torch_private.dispatch import DispatchMode, disable_dynamo, packet_name_of, schema_of
from opcheck.tracing.torch_private.trees import tensors, tree_map_only

#: Most elements of a real tensor that only reserves memory.
SMALL = 1 << 16
#: Most elements of a real tensor with computed values: tables of positions and the like.
TABLE = 1 << 22
#: Bytes that all computed tables together may take.
BUDGET = 1 << 29

aten = torch.ops.aten

MPS = "mps"
_Tensor: Any = torch.Tensor
#: The attribute of a tensor that the program has put on ``mps``.
_MARK = "_made_on_mps"
#: Attributes that give a tensor's device, and their values for a tensor on ``mps``.
_PLACES: dict[Any, Any] = {
    _Tensor.device.__get__: torch.device(MPS, 0),
    _Tensor.is_mps.__get__: True,
    _Tensor.is_cpu.__get__: False,
}
#: What returns its argument where nothing is to be moved.
_MOVES = frozenset({torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.type_as})
#: What makes a tensor of the CPU of a list of tensors, wherever they are.
_FROM_DATA = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
_SET_DATA = _Tensor.data.__set__

#: Elements of an input: 16 GiB of float32.
LARGEST = 1 << 32

#: Factories whose result states something: the indices and tables that constructors compute with.
CONTENT = {getattr(aten, name) for name in read_words("content")}


class Building(DispatchMode):
    """Decides for each tensor that a constructor makes whether it gets memory.

    What is large and only reserves memory (a weight) goes to the meta device.  What is small, and
    the tables that are computed from small things, is real, so that ``linspace(...).item()``,
    ``numpy()`` and a buffer of relative positions work as in a plain run.  Where the two meet, the
    result is on meta; a real tensor that is overwritten from meta keeps its old values.
    """

    def __init__(self) -> None:
        super().__init__()
        #: bytes that were never allocated; what a real construction would take on top.
        self.avoided = 0
        self._tables = 0

    def __torch_dispatch__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator call on meta, for real, or as meta because its inputs are."""
        kwargs = kwargs or {}
        arguments = tensors((args, kwargs))
        # A tensor subclass decides about its own parts; other devices are not ours.
        if types or _elsewhere(arguments, kwargs.get("device")):
            return func(*args, **kwargs)
        if any(tensor.is_meta for tensor in arguments):
            return _on_meta(func, args, kwargs)
        # A view and a write into a real tensor take no memory.
        if arguments and _aliases(func):
            return func(*args, **kwargs)
        return self._new(func, args, kwargs, blank=not arguments or _is_blank(func))

    def _new(self, func: Any, args: Any, kwargs: Any, *, blank: bool) -> Any:
        try:
            sketch = _on_meta(func, args, kwargs)
        except Exception:  # noqa: BLE001 - whatever a meta kernel raises
            # The size depends on the values (nonzero), or no meta kernel exists: the inputs are
            # real and bounded, so that the result is, too.
            return func(*args, **kwargs)
        result = tensors(sketch)
        elements = sum(tensor.numel() for tensor in result)
        size = sum(tensor.numel() * tensor.itemsize for tensor in result)
        if elements <= SMALL:
            return func(*args, **kwargs)
        computed = not blank or func.overloadpacket in CONTENT
        if computed and elements <= TABLE and self._tables + size <= BUDGET:
            self._tables += size
            return func(*args, **kwargs)
        self.avoided += size
        return sketch


class OnMps(TorchFunctionMode):
    """Lets a program name the device ``mps`` while it is loaded: its tensors stay on the CPU, and are marked.

    The run moves them (move.py), wherever the program keeps them; a tensor that was made without a device stays on
    the CPU, as on a Mac.
    """

    def __init__(self) -> None:
        super().__init__()
        self._marked: dict[int, weakref.ref[torch.Tensor]] = {}

    def __enter__(self) -> Self:
        """Enter the mode; a parameter is where its data is, which no mode sees."""
        make = torch.nn.Parameter.__new__

        @functools.wraps(make)
        def parameter(kind: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
            result = make(kind, data, *args, **kwargs)
            if is_marked(data):
                self._mark(result)
            return result

        self._undo = contextlib.ExitStack()
        self._undo.enter_context(replace_attributes([(torch.nn.Parameter, "__new__", parameter)]))
        super().__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """Leave the mode."""
        super().__exit__(*raised)
        self._undo.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take the device out of one API call."""
        kwargs = kwargs or {}
        if func in _PLACES and is_marked(args[0]):
            return _PLACES[func]
        if kwargs.get("device") is None and _is_mps(default_device()) and func in constructors():
            kwargs = {**kwargs, "device": MPS}
        named = [device for device in map(_named_device, (*args[1:], kwargs.get("device"))) if device]
        asked = MPS in named
        if asked:
            here = args[0].device if func is torch.Tensor.to else torch.device("cpu")
            args = (*args[:1], *(here if _is_mps(value) else value for value in args[1:]))
            kwargs = {name: here if _is_mps(value) else value for name, value in kwargs.items()}
        result = func(*args, **kwargs)
        if func == _SET_DATA and is_marked(args[1]):
            self._mark(args[0])
        elsewhere = func is torch.Tensor.cpu or (named and not asked)
        on_mps = asked or bool(
            self._marked
            and not elsewhere
            and any(map(is_marked, args[:1] if func in _FROM_DATA else tensors((args, kwargs))))
        )
        if func in _MOVES and result is args[0] and is_marked(result) != on_mps:
            # A move that moves nothing here returns its argument.
            result = torch.Tensor.to(result, result.device, copy=True)
        for tensor in tensors(result) if on_mps else ():
            # What an operator writes into stays where it is.
            if not any(tensor is arguments for arguments in (*args[:1], kwargs.get("out"))):
                self._mark(tensor)
        return result

    def list_marked(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors on ``mps`` that the program still has."""
        living = (reference() for reference in self._marked.values())
        return tuple(tensor for tensor in living if tensor is not None)

    def _mark(self, tensor: torch.Tensor) -> None:
        setattr(tensor, _MARK, True)
        self._marked[id(tensor)] = weakref.ref(tensor)


def is_marked(value: Any) -> bool:
    """Return whether a program put this on the device ``mps`` while it was loaded."""
    return isinstance(value, torch.Tensor) and getattr(value, _MARK, False)


def _is_mps(value: Any) -> bool:
    return _named_device(value) == MPS


def _named_device(value: Any) -> str:
    """Return the type of the device that an argument names; empty: it names none."""
    if isinstance(value, torch.device):
        return value.type
    kind = value.partition(":")[0] if isinstance(value, str) else ""
    return kind if kind in {MPS, "cpu", "cuda", "meta"} else ""


def take_default_device() -> torch.device | None:
    """Take back ``torch.set_default_device("mps")``, which the simulation alone can serve, and return the device."""
    device = default_device()
    if not _is_mps(device):
        return None
    clear_default_device()
    return torch.device(device)


@contextlib.contextmanager
def by_default(device: torch.device | None) -> Iterator[None]:
    """Set the default device for the length of the block, if it is not None."""
    if device is None:
        yield
        return
    torch.set_default_device(device)
    try:
        yield
    finally:
        clear_default_device()


@contextlib.contextmanager
def building(on_mps: OnMps | None = None) -> Iterator[Building]:
    """Construct models inside: their large tensors land on meta, the small ones are real.

    Random values of the small ones are the same in each run; the generator is put back at the end.

    Args:
        on_mps: has afterwards what was put on ``mps``.

    Yields:
        The mode, which counts the bytes that were not allocated.
    """
    with torch.random.fork_rng(devices=()), without_compiler():
        torch.manual_seed(0)
        with on_mps or OnMps(), Building() as mode:
            yield mode


def fill_meta(value: Any) -> Any:
    """Return the same nest of containers with its meta tensors replaced by real ones on the CPU.

    For inputs that a user's factory made inside ``building``: floats are drawn from a fixed seed,
    everything else is zero.
    """
    return tree_map_only(
        torch.Tensor, lambda each: values(tuple(each.shape), each.dtype) if each.is_meta else each, value
    )


def values(shape: tuple[int, ...], dtype: torch.dtype, high: int = 1) -> torch.Tensor:
    """Return a CPU tensor of ``shape``: floats in [-1, 1), integers in [0, high), the same in each run.

    Raises:
        InputError: it would have more than LARGEST elements.
    """
    if math.prod(shape) > LARGEST:
        raise InputError(
            f"an input of {'x'.join(map(str, shape))} is more than opcheck makes",
            context=f"it has {math.prod(shape):,} elements, the limit is {LARGEST:,}",
            hint="give a smaller input with --input, or correct the sizes in the configuration",
        )
    generator = torch.Generator().manual_seed(math.prod(shape))
    if dtype.is_complex:
        real = torch.rand((*shape, 2), generator=generator) * 2 - 1
        return torch.view_as_complex(real).to(dtype)
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator) * 2 - 1).to(dtype)
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    return torch.randint(0, max(high, 1), shape, generator=generator).to(dtype)


def _is_blank(func: Any) -> bool:
    """Return whether it takes a tensor for its metadata only, and reserves memory as a factory does."""
    name = packet_name_of(func)
    return func.namespace == "aten" and (name.startswith("new_") or name.endswith("_like"))


def _elsewhere(arguments: list[torch.Tensor], device: Any) -> bool:
    """Return whether a call involves a device that is neither the CPU nor meta."""
    names = {tensor.device.type for tensor in arguments}
    if device is not None:
        names.add(torch.device(device).type)
    return not names <= {"cpu", "meta"}


def _aliases(func: Any) -> bool:
    return any(argument.alias_info is not None for argument in schema_of(func).arguments)


def _on_meta(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the call on meta.  What it writes into stays what it is, values apart."""
    written = _written_tensors(func, args, kwargs)
    if written and not any(tensor.is_meta for tensor in written):
        # A real tensor takes values that are unknown: it keeps the ones that it has.
        return written[0] if len(written) == 1 else tuple(written)
    args, kwargs = tree_map_only(torch.Tensor, _to_meta, (args, kwargs))
    if any(argument.name == "device" for argument in schema_of(func).arguments):
        kwargs = {**kwargs, "device": torch.device("meta")}
    kwargs.pop("pin_memory", None)
    if "generator" in kwargs:
        kwargs = {**kwargs, "generator": None}
    return func(*args, **kwargs)


def _written_tensors(func: Any, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    written: list[torch.Tensor] = []
    for position, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            by_position = position < len(args) and not argument.kwarg_only
            value = args[position] if by_position else kwargs.get(argument.name)
            written += tensors(value)
    return written


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_meta or tensor.layout != torch.strided:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


# -- torch without its compiler --------------------------------------------------------------------------------------


#: What torch._disable_dynamo (torch/_compile.py, 2.8 to 2.15) looks for before it imports the compiler.
_FLAG = "__dynamo_disable"


@contextlib.contextmanager
def without_compiler() -> Iterator[None]:
    """Let meta kernels written in Python run inside the block without importing torch._dynamo.

    torch wraps most of them in ``_disable_dynamo``, whose first call imports the compiler: a second
    and more, which a program that compiles nothing does not need.  A program that does compile
    imports it by itself; then this does nothing.
    """
    wrapped = () if "torch._dynamo" in sys.modules else _list_wrapped()
    marked = [function for function in wrapped if not hasattr(function, _FLAG)]
    for function in marked:
        setattr(function, _FLAG, function)
    try:
        yield
    finally:
        for function in marked:
            delattr(function, _FLAG)


@functools.cache
def _list_wrapped() -> tuple[Callable[..., Any], ...]:
    """Return the functions that torch has wrapped in ``_disable_dynamo`` so far."""
    code = getattr(disable_dynamo(_list_wrapped), "__code__", None)
    if code is None or "fn" not in code.co_freevars:
        return ()
    position = code.co_freevars.index("fn")
    # What is frozen has no referrers for the collector.
    is_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    inner = [each for each in gc.get_referrers(code) if isinstance(each, FunctionType)]
    if is_frozen:
        gc.freeze()
    return tuple(each.__closure__[position].cell_contents for each in inner if each.__closure__ is not None)
