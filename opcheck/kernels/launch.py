"""Calls kernels of whole families as PyTorch's host side calls them: the registry, and what its functions share.

The functions stand in the folder drivers, one a family.

What a buffer holds is known by the argument's name, and a struct's layout by the kernel's metadata
(the structs are in aten/src/ATen/native/mps/kernels/*.h, which the wheel ships).  Grids and
threadgroups are those of the host functions beside the kernels
(aten/src/ATen/native/mps/operations/*.mm).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from opcheck.kernels import judging, names, values
from opcheck.kernels.judging import Expected, Judged
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import DTYPES, Unfit, address, packed

#: What stands in a result's memory before the kernel runs.
_UNTOUCHED = 77
#: c10/metal/error.h, ErrorMessages: a count and 30 messages.
_ERRORS = 32 << 10
#: Extents that are tried: one, odd, around the simdgroup's width, more than a threadgroup.
LENGTHS = (1, 7, 33, 100, 1025)
EPS = 2.0**-23
#: More than a result of moderate numbers moves where denormal ones among them become zero.
_FLUSHED = 2.0**-116


#: Bytes of the types that structs have arrays of.
_WIDTHS = {"long": 8, "ulong": 8, "int": 4, "uint": 4, "float": 4}


class Launch(msgspec.Struct, frozen=True):
    """One call: what is bound, the grid, and what each result should be, by its buffer."""

    bound: Mapping[str, Tensor]
    threads: Sequence[int]
    group: Sequence[int]
    expected: Mapping[str, tuple[Tensor, Tensor, Tensor | float]]
    #: Memory that a threadgroup gets from the host, in bytes, by the argument's name.
    shared: Mapping[str, int] = {}
    #: Results that are computed of what the kernel wrote, by a name of their own: what has signs of its choice.
    made: Mapping[str, Callable[[Mapping[str, Tensor]], Tensor]] = {}


Family = Callable[[re.Match[str], Kernel], Iterator[Launch]]
#: The patterns of names, each with the function that calls such kernels.
FAMILIES: list[tuple[re.Pattern[str], Family]] = []


def family(pattern: str) -> Callable[[Family], Family]:
    """Register a function that calls the kernels whose names match the pattern in full."""

    def add(function: Family) -> Family:
        FAMILIES.append((re.compile(pattern), function))
        return function

    return add


def is_driven(name: str) -> bool:
    """Return whether a function here calls kernels of this name."""
    short = names.shortened(name)
    return any(pattern.fullmatch(short) for pattern, _ in FAMILIES)


def judge(name: str, kernel: Kernel) -> Judged:
    """Run a kernel over the inputs of its family, and compare.

    Raises:
        Unfit: no family is known for its name, or for its arguments.
        KernelError: it cannot be run.
    """
    for pattern, function in FAMILIES:
        match = pattern.fullmatch(names.shortened(name))
        if match:
            return _judged(kernel, function(match, kernel))
    raise Unfit("its family is not driven")


def _judged(kernel: Kernel, launches: Iterator[Launch]) -> Judged:
    compared = wrong = 0
    ulps, smallest, worst = 0.0, None, None
    for launch in launches:
        bound = dict(launch.bound)
        for argument in kernel.buffers:
            if argument.name.startswith("error_buf"):
                bound[argument.name] = torch.zeros(_ERRORS, dtype=torch.uint8)
            elif argument.name in launch.shared:
                bound[argument.name] = torch.full(
                    (launch.shared[argument.name],), 255, dtype=torch.uint8
                )
        kernel.run(
            {name: address(tensor) for name, tensor in bound.items()}, launch.threads, launch.group
        )
        for name, (given, value, slack) in launch.expected.items():
            made = launch.made.get(name)
            got = (made(bound) if made else bound[name]).flatten()
            off = torch.as_tensor(slack, dtype=torch.float64).expand(value.shape).flatten()
            off = off + _FLUSHED * kernel.flushed
            expected = Expected(_inputs(given, value.numel()), value.flatten(), off)
            judged = judging.judge(expected, got, _allowed(got.dtype))
            compared, wrong = compared + judged.compared, wrong + judged.wrong
            ulps, smallest = max(ulps, judged.ulps), smallest or judged.smallest
            worst = worst or judged.worst
    return Judged(compared=compared, wrong=wrong, ulps=ulps, smallest=smallest, worst=worst)


def _allowed(dtype: torch.dtype) -> float:
    return 4.0 if dtype == torch.float32 else 2.0  # the rounding of the result, and fused steps


def _inputs(given: Tensor, count: int) -> tuple[Tensor, ...]:
    """Return the index of each result and the first value of its input, for the record."""
    return (torch.arange(count), given.flatten()[:1].expand(count))


def struct(kernel: Kernel, name: str, **given: Any) -> Tensor:
    """Return a struct argument in memory, by the names of its fields; what is not given is zero.

    Raises:
        Unfit: the kernel has no such argument, or it lacks a field.
    """
    argument = next((a for a in kernel.buffers if a.name == name), None)
    if argument is None or not argument.fields:
        raise Unfit(f"the kernel has no struct {name}")
    fields = {field.name: field for field in argument.fields}
    lacking = given.keys() - fields.keys()
    if lacking:
        raise Unfit(f"{name} has no {', '.join(sorted(lacking))}")
    memory = torch.zeros(argument.size, dtype=torch.uint8)
    for key, value in given.items():
        field = fields[key]
        listed = list(value) if isinstance(value, (list, tuple, torch.Size)) else [value]
        # The size of a plain array is that of one element, the size of a metal::array that of all.
        width = _WIDTHS.get(field.type) or field.size // max(field.length, 1)
        for place, item in enumerate(listed):
            element = msgspec.structs.replace(field, offset=0, size=width, length=0)
            raw = packed(element.type, (), width, (item,))[:width]
            at = field.offset + place * width
            memory[at : at + width] = raw
    return memory


def dtype_named(word: str) -> torch.dtype:
    """Return the dtype of a word in a kernel's name.

    Raises:
        Unfit: the dtype is not driven.
    """
    dtype = torch.float8_e4m3fn if word == "float8" else DTYPES.get(word)
    if dtype is None:
        raise Unfit(f"a dtype that is not driven: {word}")
    return dtype


def random(shape: Sequence[int], dtype: torch.dtype, salt: int = 0) -> Tensor:
    """Return moderate random values, so that a reduction of them does not overflow.

    Among those of float32 and its halves are ties, zeros of both signs and denormal numbers.
    """
    generator = values.generator(salt)
    if dtype.is_complex:
        real = torch.float32 if dtype == torch.complex64 else torch.float16
        drawn = torch.randn(*shape, 2, generator=generator, dtype=torch.float64)
        return torch.view_as_complex(drawn.to(real))
    if dtype.is_floating_point:
        drawn = torch.randn(*shape, generator=generator, dtype=torch.float64)
        if dtype in values.FLOATS:
            flat = drawn.view(-1)
            flat[3::5] = (flat[3::5] * 4).round() / 4
            flat[7::13] = flat[7::13].sign() * torch.finfo(dtype).smallest_normal * 0.75
        return drawn.to(dtype)
    if dtype == torch.bool:
        return torch.rand(*shape, generator=generator) < 0.5
    low = 0 if torch.iinfo(dtype).min == 0 else -9
    return torch.randint(low, 10, tuple(shape), generator=generator).to(dtype)


def widened(tensor: Tensor) -> Tensor:
    """Return a tensor in double, complex double or int64."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def untouched(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return memory for a result, with a value by which an untouched element is known."""
    return torch.full(tuple(shape), 1 if dtype == torch.bool else _UNTOUCHED, dtype=dtype)


def bound_to(kernel: Kernel, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what the kernel takes of the buffers that its family has."""
    wanted = {argument.name for argument in kernel.buffers}
    return {name: tensor for name, tensor in named.items() if name in wanted}
