"""Define what the simulation records about an operator in addition to its schema and the target's registrations."""

import contextlib
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from opcheck.common.versions import Span, Target, Version
from opcheck.common.yaml_text import load_shipped
from opcheck.simulator.dispatch.tensor import is_on_mps
from opcheck.simulator.dispatch.tensor_meta import TensorMeta, contiguous
from opcheck.simulator.dispatch.unbacked_values import Guess
from opcheck.simulator.target_reads import TargetQueries
from opcheck.tracing.torch_private import dispatch

#: the arguments of a call by the names of the schema, without those that were left out
Given = Mapping[str, Any]
Tensors = Sequence[torch.Tensor]
#: for each result the TensorMeta that it has, or a list of them
Results = tuple[Any, ...]
#: gets the TensorMeta of each tensor among the arguments in its place
MetadataRule = Callable[[Given, "TargetQueries"], Results]
Calls = tuple[str, ...]
#: an id and the text of an error
Refusal = tuple[str, str]


#: Operators that the dispatcher itself treats specially.  The result of EXPAND is a view of any size, which takes no
#: memory; that of ZERO_TENSOR has none: its key makes zeros where a kernel reads it (ATen/ZeroTensorFallback.cpp).
Role = enum.Enum("Role", ["CAST", "DETACH", "EXPAND", "ZERO_TENSOR", "CONJUGATE", "NEGATE", "VIEW_AS_REAL"])


class Branch(NamedTuple):
    """A branch that PyTorch's C++ takes only on a Mac, or took in earlier releases, as a Python function."""

    #: takes the simulation's DispatchContext, then the operator's arguments
    function: Callable[..., Any]
    #: where PyTorch decides, and what
    reason: str
    releases: Span = Span()


class DeviceText(NamedTuple):
    """The error of a kernel whose tensors are on two devices; None: that of TensorIterator.cpp."""

    text: Callable[[Any], str | None]
    releases: Span = Span()


class WiderEmulation(NamedTuple):
    """How the CPU computes dtypes that a Mac's kernel takes and the CPU's does not."""

    #: the first release whose kernel on MPS takes them
    since: Version
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator overload."""

    _: KW_ONLY

    # -- which way a call goes
    branch: Branch | None = None
    #: the kernel that a Mac registers from Python at ``import torch``
    #: (torch/backends/mps/__init__.py, ``_init``)
    python_kernel: Callable[..., Any] | None = None
    #: what a composite below autograd calls, where its body cannot be followed here: it branches on
    #: the device at compile time, or calls itself.  A function returns None for a release whose
    #: body is not known.
    body: Calls | Callable[[Given, TargetQueries], Calls | None] | None = None
    #: calls of a declared body that take its arguments over: overload -> its argument -> ours, if names differ,
    #: "" for none; ``result.shape`` and ``result.stride`` are of the first result
    passes: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    role: Role | None = None

    #: its kernel on MPS draws random numbers although no tag of the operator states so
    draws: bool = False

    # -- metadata and values of its results
    #: where torch has no meta kernel of it, or another device's
    metadata: MetadataRule | None = None
    #: its results where they depend on values that are not known; also takes up to how many
    #: elements get values
    unbacked: Callable[[Given, int], Guess] | None = None
    #: the value of one argument that decides the result, whatever the other is
    absorbing: bool | None = None
    #: it answers with a bool, not with a tensor
    answers_bool: bool = False
    #: its result is most often asserted where it is requested: ``if not (a >= b).all(): raise``
    is_check: bool = False
    #: takes masks as indices: its meta kernel counts what a mask selects
    takes_masks: bool = False
    #: its values are arbitrary: zeros, so that two runs are the same and what is filled part by
    #: part is known
    uninitialized: bool = False
    #: its shape depends on values, which known arguments have
    needs_values: bool = False
    #: positions of arguments that it may write, and that keep their values where others are not
    #: known
    keeps_values_of: frozenset[int] = frozenset()
    #: its results share the memory of the first argument although the schema does not say so
    #: (TensorShape.cpp: to autograd they are no views)
    shares_first: bool = False
    #: the arguments that an assumption led to and that fit nothing, made to fit, and what is
    #: assumed with them
    repair: Callable[[Given], tuple[Given, str] | None] | None = None

    # -- devices
    #: it takes a CPU tensor next to MPS ones
    mixes_devices: bool = False
    #: positions of results that stay on the CPU
    results_on_cpu: frozenset[int] = frozenset()
    #: what it refuses about the devices of its arguments although it mixes them: takes the
    #: arguments and all tensors
    refuses_devices: Callable[[Any, Any], Refusal | None] | None = None
    #: what makes its result where that is quantized (TensorConversions.cpp, TensorFactories.cpp); empty: itself
    quantizes_by: str = ""
    device_texts: tuple[DeviceText, ...] = ()
    #: since when it does not look at empty tensors of one dimension (TensorShape.h, ``cat_should_skip_tensor``)
    skips_empty: Version | None = None

    # -- emulation on the CPU (opcheck run)
    #: computes on the CPU what only MPS has a kernel for, with the CPU's numbers bit for bit
    emulate: Callable[..., Any] | None = None
    emulate_wider: WiderEmulation | None = None
    #: only MPS has it, with a memory layout of its own, so that nothing here computes its values
    not_emulated: bool = False


Fact = TypeVar("Fact")
#: By overload, the functions that ``fact`` registers.
FUNCTIONS: dict[str, dict[str, Any]] = {}


def fact(field: str, *names: str) -> Callable[[Fact], Fact]:
    """Register a function as a field of the ``Operator`` of these overloads; ``text`` is that of ``device_texts``.

    Raises:
        ValueError: an overload has such a function already.
    """

    def register(function: Fact) -> Fact:
        for name in names:
            if FUNCTIONS.setdefault(name, {}).setdefault(field, function) is not function:
                raise ValueError(f"{name} has two functions as {field}")
        return function

    return register


def make_like(*names: str) -> MetadataRule:
    """Return a metadata rule: each result is contiguous, with the shape and dtype of the argument named."""

    def rule(arguments: Given, _ask: TargetQueries) -> Results:
        return tuple(alike(arguments[name]) for name in names)

    return rule


def alike(spec: TensorMeta) -> TensorMeta:
    """Return the metadata of a new contiguous tensor of the same shape and dtype."""
    return contiguous(spec.shape, spec.dtype)


def overload_named(name: str) -> Any:
    """Return the overload with this name in the namespace aten, such as ``aten::add.Tensor``."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def composite(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the C++ body of a composite."""
    return dispatch.body_of(op)(dispatch.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def needs_grad(*tensors: torch.Tensor | None) -> bool:
    """Return whether autograd records what is computed from these (GradMode, and requires_grad of each tensor)."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def follow_calls(op: Any, *, hidden: frozenset[str] = frozenset()) -> Callable[..., Any]:
    """Return a branch that runs the C++ body, which makes no float64 temporaries on MPS.

    Args:
        op: the overload.
        hidden: operators that it calls on other devices alone.
    """

    def branch(context: Any, *args: Any, **kwargs: Any) -> Any:
        with context.set(on_mps=True, narrows=True, hidden=hidden):
            return composite(op, *args, **kwargs)

    return branch


# -- gradients by this machine's CPU, below a dispatch mode, for functions of MPS alone ------------------------------


@contextlib.contextmanager
def cpu_autograd() -> Iterator[None]:
    """Turn on the CPU's own autograd, which is off below a dispatch mode, without function modes."""
    keys = dispatch.DispatchKey
    with (
        dispatch.without_function_modes(),
        dispatch.include_key(keys.AutogradFunctionality),
        dispatch.include_key(keys.ADInplaceOrView),
        torch.enable_grad(),
    ):
        yield


def gradients(
    forward: Callable[..., Any], inputs: Sequence[torch.Tensor], wanted: Sequence[bool], *grads: Any
) -> list[torch.Tensor | None]:
    """Differentiate on the CPU.

    Args:
        forward: a function of the inputs.
        inputs: its arguments.
        wanted: for each input, whether its gradient is wanted.
        grads: the gradient of each result; None for a result without one.

    Returns:
        For each input its gradient; None where it is not wanted or does not depend on a result.
    """
    with cpu_autograd():
        leaves = [tensor.detach().requires_grad_(want) for tensor, want in zip(inputs, wanted, strict=True)]
        outputs = forward(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        arguments = [(out, grad) for out, grad in zip(outputs, grads, strict=False) if grad is not None]
        asked = [leaf for leaf in leaves if leaf.requires_grad]
        if not asked or not arguments:
            return [None] * len(leaves)
        ends, gradients = zip(*arguments, strict=True)
        results = iter(torch.autograd.grad(ends, asked, gradients, allow_unused=True))
    return [next(results) if leaf.requires_grad else None for leaf in leaves]


# -- word the errors of kernels for tensors on two devices; each kernel has its own check and text -------------

#: TensorIterator.cpp, ``compute_types``
TWO_DEVICES = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!"
#: ... for the second CPU tensor without dimensions
TOO_MANY_NUMBERS = "Trying to pass too many CPU scalars to non-CPU kernel!"


def is_on_cpu(tensor: Any) -> bool:
    """Return whether the value is a tensor that is not on the simulated device."""
    return isinstance(tensor, torch.Tensor) and not is_on_mps(tensor)


def places(tensors: Any) -> list[str]:
    """Return the device of each tensor as C++ writes it."""
    return ["cpu" if is_on_cpu(tensor) else "mps:0" for tensor in tensors]


def type_name(tensor: torch.Tensor) -> str:
    """Return ``toString`` of ATen/core/DeprecatedTypeProperties.cpp: a CPU type has its Python name."""
    name = scalar_type(tensor)
    return f"torch.{name}Tensor" if is_on_cpu(tensor) else f"MPS{name}Type"


def scalar_type(tensor: torch.Tensor) -> str:
    """Return the name in c10/core/ScalarType.h: ``Long`` for int64."""
    name = torch.empty(0, dtype=tensor.dtype, device="cpu").type()
    return name.removeprefix("torch.").removesuffix("Tensor")


def fill_places(text: str) -> Callable[[Any], str]:
    """Return a function that fills in the devices of the tensors: each by its position, or all of them."""
    return lambda tensors: text.format(*places(tensors), all=", ".join(places(tensors)))


def checked_by_linear_algebra(kernel: str, *names: str) -> Callable[[Any], str | None]:
    """Return the text of ``checkAllSameGPU`` (ATen/TensorUtils.cpp), which LinearAlgebra.mm calls."""

    def text(tensors: Any) -> str | None:
        if is_on_cpu(tensors[-2]):
            return None  # the result would be allocated next to the first factor, on the CPU
        for position, (name, tensor) in enumerate(zip(names, tensors, strict=False), start=1):
            if is_on_cpu(tensor):
                return (
                    f"Tensor for argument #{position} '{name}' is on CPU, but expected it to be on "
                    f"GPU (while checking arguments for {kernel})"
                )
        return None

    return text


def one_device(op: Any, text: Callable[..., str | None], body: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a branch for a composite whose C++ compares devices, and sees the CPU under simulated tensors.

    Args:
        op: the overload.
        text: returns the error for the arguments of a call; None where there is none.
        body: the branch to follow; the C++ body if not given.
    """

    def branch(context: Any, *args: Any, **kwargs: Any) -> Any:
        if (error := text(*args, **kwargs)) is not None:
            context.refuse(op, args, "device_mismatch", error)
        return body(context, *args, **kwargs) if body else composite(op, *args, **kwargs)

    return branch


def row_of(target: Target, texts: tuple[DeviceText, ...]) -> int | None:
    """Return the index of the operator's text for the target; None if it has none."""
    return next((number for number, row in enumerate(texts) if target.torch in row.releases), None)


_LISTS = load_shipped(Path(__file__).with_name("device_texts.yaml"))
_ITERATES = frozenset(_LISTS["iterates"])
_NUMBERS: Mapping[str, list[str]] = _LISTS["numbers"]


def is_iterated(name: str, tags: Sequence[Any]) -> bool:
    """Return whether TensorIterator checks the devices of an overload's tensors (TensorIterator.cpp)."""
    if name.startswith("aten::masked_fill."):
        return False  # TensorAdvancedIndexing.cpp: a clone, and masked_fill_
    return torch.Tag.pointwise in tags or name in _ITERATES


def mismatch(
    name: str, arguments: Given, inputs: Tensors, outs: Tensors, written: Tensors, *, iterated: bool
) -> str | None:
    """Return the error of a call on tensors of two devices; None if the kernel takes them.

    Args:
        name: the overload.
        arguments: its arguments by their names.
        inputs: all tensors among them.
        outs: those of ``out=``.
        written: those that it writes, ``out=`` included.
        iterated: whether TensorIterator checks them.
    """
    others = [tensor for tensor in inputs if not any(tensor is out for out in outs)]
    numbers = [tensor for tensor in others if is_on_cpu(tensor)]
    if outs and not iterated and others and places(others[:1]) != places(outs[:1]):
        # ATen/RegisterMPS.cpp, ``resize_out``, of structured kernels and of generated composites
        return f"Expected out tensor to have device {places(others)[0]}, but got {places(outs)[0]} instead"
    if any(tensor.dim() for tensor in numbers) or any(map(is_on_cpu, written)):
        return TWO_DEVICES
    # TensorCompare.cpp: ``where_self_out`` moves each of them
    if not name.startswith("aten::") or name.startswith(("aten::_foreach_", "aten::where.")):
        return None
    if iterated and len(others) > 1:
        return TOO_MANY_NUMBERS if len(numbers) > 1 else None
    taken = [arguments.get(argument) for argument in _NUMBERS.get(name, ())]
    return None if all(any(number is value for value in taken) for number in numbers) else TWO_DEVICES
