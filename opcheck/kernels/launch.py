"""Calls kernels of whole families as PyTorch's host side calls them: the registry, and what its functions share.

The folder drivers has a function for each family.

The argument's name decides what a buffer contains, and a struct's layout by the kernel's metadata
(the structs are in aten/src/ATen/native/mps/kernels/*.h, which the wheel ships).  Grids and
threadgroups are those of the kernels' host functions
(aten/src/ATen/native/mps/operations/*.mm).
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from opcheck.kernels import air, judging, kernel_names
from opcheck.kernels.kernel_machine import Kernel
from opcheck.kernels.pointwise import Unfit, address, dtype_named, pack
from opcheck.kernels.values import fill_untouched

#: c10/metal/error.h, ErrorMessages: a count and 30 messages.
_ERRORS = 32 << 10
#: Extents that are tried: one, odd, around the simdgroup's width, more than a threadgroup.
LENGTHS = (1, 7, 33, 100, 1025)
#: More than a result of moderate numbers moves where denormal ones among them become zero.
_FLUSHED = 2.0**-116


#: The dtypes of numbers that the host passes, and of the elements of their vectors and arrays.
_NUMBERS = {
    "bool": torch.bool, "uchar": torch.uint8, "int": torch.int32, "uint": torch.int32, "long": torch.int64,
    "ulong": torch.int64, "float": torch.float32, "half": torch.float16, "bfloat": torch.bfloat16,
}  # fmt: skip


#: The input to show, the value of a result, and by how much it may be off if that is not nothing.
Result = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor | float]


class Launch(msgspec.Struct, frozen=True):
    """One call: what is bound, the grid, and what each result should be, by its buffer.

    What is bound is memory, numbers, which take the type of the argument, or the numbers of a struct by its fields; a
    kernel without the argument ignores it.
    A result without memory gets some that no value was written to.
    """

    bound: Mapping[str, Any]
    #: The extents of the grid; of a grid with one extent the number.
    threads: int | Sequence[int]
    expected: Mapping[str, Result]
    #: The extents of a threadgroup, in the same way.
    group: int | Sequence[int] = 1
    #: Memory that a threadgroup gets from the host, in bytes, by the argument's name.
    shared: Mapping[str, int] = {}
    #: Results that are computed from the kernel's output, by a name of their own: the kernel may choose signs.
    derived: Mapping[str, Callable[[Mapping[str, Tensor]], Tensor]] = {}


class KernelCall:
    """A kernel of a family, the words of its name by the groups of the family's pattern, and its arguments."""

    def __init__(self, match: re.Match[str] | None, kernel: Kernel) -> None:
        self._match, self.kernel = match, kernel
        self.name, self.buffers = kernel.name, kernel.buffers
        self.types = {argument.name: argument.type for argument in kernel.buffers}

    def __getitem__(self, group: str) -> str:
        return (self._match[group] if self._match else "") or ""

    def dtype(self, name: str) -> torch.dtype:
        """Return the dtype of an argument."""
        return dtype_named(self.types[name])

    def fields(self, name: str) -> tuple[air.Field, ...]:
        """Return the fields of a struct argument; none if the kernel lacks it."""
        return next((a.fields for a in self.buffers if a.name == name), ())

    def struct(self, name: str, **numbers: Any) -> Tensor:
        """Return a struct argument in memory, by the names of its fields; the others are zero.

        Raises:
            Unfit: the kernel has no such argument, or it lacks a field.
        """
        argument = next((a for a in self.buffers if a.name == name), None)
        if argument is None or not argument.fields:
            raise Unfit(f"the kernel has no struct {name}")
        if lacking := numbers.keys() - {field.name for field in argument.fields}:
            raise Unfit(f"{name} has no {', '.join(sorted(lacking))}")
        return pack_struct(argument, numbers)

    def fit(self, name: str, **numbers: Any) -> Tensor:
        """Return a struct argument as ``struct`` does, without the fields that this release's kernel lacks."""
        fields = {field.name for field in self.fields(name)}
        return self.struct(name, **{key: value for key, value in numbers.items() if key in fields})


def describe(**tensors: Tensor) -> dict[str, Sequence[int]]:
    """Return the sizes and the strides of tensors as fields of a struct."""
    sizes = {f"{name}_sizes": tensor.shape for name, tensor in tensors.items()}
    return {**sizes, **{f"{name}_strides": tensor.stride() for name, tensor in tensors.items()}}


def pack_struct(argument: air.KernelParameter, numbers: Mapping[str, Any]) -> Tensor:
    """Return a struct argument in memory, by the names of its fields; the others are zero, unknown names ignored."""
    memory = torch.zeros(argument.size, dtype=torch.uint8)
    for field in argument.fields:
        value = numbers.get(field.name, ())
        listed = list(value) if isinstance(value, (list, tuple, torch.Size)) else [value]
        # The size of a plain array is that of one element, the size of a metal::array that of all.
        element = _NUMBERS.get(field.type)
        width = element.itemsize if element else field.size // max(field.length, 1)
        for place, item in enumerate(listed):
            at = field.offset + place * width
            memory[at : at + width] = pack(field.type, (), width, (item,))[:width]
    return memory


Launches = Iterator[Launch]
Family = Callable[..., Launches]
#: The patterns of names, each with the function that calls such kernels.
FAMILIES: list[tuple[re.Pattern[str], Family]] = []


#: Groups of the patterns: `a` and `b` are dtypes.
_GROUPS = {
    "{any}": "(?P<a>[a-z0-9]+)", "{word}": "(?P<a>[a-z]+)", "{float}": "(?P<a>float|half|bfloat)",
    "{wide}": "(?P<a>float|float2)", "{whole}": "(?P<a>int|long)", "{index}": "(?P<b>int|long)",
}  # fmt: skip


def family(pattern: str) -> Callable[[Family], Family]:
    """Register a function that calls the kernels whose names match the pattern in full.

    A pattern may have groups of the table above by their names.
    The function takes a KernelCall, and the dtypes of the groups `a` and `b` if it has parameters for them.
    """

    def add(function: Family) -> Family:
        whole = re.sub("|".join(_GROUPS), lambda name: _GROUPS[name[0]], pattern)
        FAMILIES.append((re.compile(whole), function))
        return function

    return add


def is_driven(name: str) -> bool:
    """Return whether a function here calls kernels of this name."""
    short = kernel_names.shorten(name)
    return any(pattern.fullmatch(short) for pattern, _ in FAMILIES)


def judge(name: str, kernel: Kernel) -> judging.Judged:
    """Run a kernel over the inputs of its family, and compare.

    Raises:
        Unfit: no family is known for its name, or for its arguments.
        KernelError: it cannot be run.
    """
    return _judge_launches(kernel, launches(name, kernel))


def launches(name: str, kernel: Kernel) -> Launches:
    """Return the calls of a kernel of this name.

    Raises:
        Unfit: no family is known for its name.
    """
    for pattern, function in FAMILIES:
        match = pattern.fullmatch(kernel_names.shorten(name))
        if match:
            groups = "ab"[: len(inspect.signature(function).parameters) - 1]
            dtypes = (dtype_named(match[group]) for group in groups)
            return function(KernelCall(match, kernel), *dtypes)
    raise Unfit("its family is not driven")


def _element(argument: air.KernelParameter) -> str:
    """Return the type of an argument, or of the elements of a metal::array."""
    is_array = argument.type == "metal::array"
    return (argument.fields[0].type if is_array else argument.type).rpartition(":")[2]


def _memory(argument: air.KernelParameter, launch: Launch) -> Tensor | None:
    """Return the memory of an argument in a launch; None if the launch has none."""
    if argument.name.startswith("error_buf"):
        return torch.zeros(_ERRORS, dtype=torch.uint8)
    if argument.name in launch.shared:
        return torch.full((launch.shared[argument.name],), 255, dtype=torch.uint8)
    content = launch.bound.get(argument.name)
    if isinstance(content, Tensor):
        return content
    if isinstance(content, Mapping):
        return pack_struct(argument, content)
    if content is not None:
        return torch.tensor(content, dtype=_NUMBERS[_element(argument).rstrip("1234")])
    if argument.name in launch.expected:
        first, value, *_ = launch.expected[argument.name]
        dtype = first.dtype if argument.type == "void" else dtype_named(_element(argument))
        return fill_untouched(value.shape, dtype)
    return None


def bind(kernel: Kernel, launch: Launch) -> dict[str, Tensor]:
    """Return the memory of the buffers that a launch has, by name."""
    memory = {argument.name: _memory(argument, launch) for argument in kernel.buffers}
    return {name: tensor for name, tensor in memory.items() if tensor is not None}


def run(kernel: Kernel, launch: Launch) -> dict[str, Any]:
    """Run one call of a kernel; return what is bound, by name, with the memory of the results.

    Raises:
        KernelError: it cannot be run.
    """
    tensors = bind(kernel, launch)
    grid, group = launch.threads, launch.group
    kernel.run(
        {name: address(tensor) for name, tensor in tensors.items()},
        (grid,) if isinstance(grid, int) else grid, (group,) if isinstance(group, int) else group,
    )  # fmt: skip
    return {**launch.bound, **tensors}


def _judge_launches(kernel: Kernel, launches: Launches) -> judging.Judged:
    compared = wrong = 0
    ulps, smallest, worst = 0.0, None, None
    for launch in launches:
        bound = run(kernel, launch)
        for name, (first, value, *slack) in launch.expected.items():
            derive = launch.derived.get(name)
            got = (derive(bound) if derive else bound[name]).flatten()
            off = torch.as_tensor(slack[0] if slack else 0.0, dtype=torch.float64)
            off = off.expand(value.shape).flatten()
            off = off + _FLUSHED * kernel.flushed
            # For the record: the index of each result, and the first value of its input.
            count = value.numel()
            inputs = torch.arange(count), first.flatten()[:1].expand(count)
            # The rounding of the result, and fused steps.
            allowed = 4.0 if got.dtype == torch.float32 else 2.0
            judged = judging.judge(judging.Expected(inputs, value.flatten(), off), got, allowed)
            compared, wrong = compared + judged.compared, wrong + judged.wrong
            ulps, smallest = max(ulps, judged.ulps), smallest or judged.smallest
            worst = worst or judged.worst
    return judging.Judged(compared=compared, wrong=wrong, ulps=ulps, smallest=smallest, worst=worst)
