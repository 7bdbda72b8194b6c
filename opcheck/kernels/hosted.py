"""Kernels of whole families called as PyTorch's host side calls them: one function a family.

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
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor

from opcheck.kernels import judging, values
from opcheck.kernels.judging import Expected, Judged
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import DTYPES, Unfit, address, numbers, packed

#: What stands in a result's memory before the kernel runs.
_UNTOUCHED = 77
#: c10/metal/error.h, ErrorMessages: a count and 30 messages.
_ERRORS = 32 << 10
#: Extents that are tried: one, odd, around the simdgroup's width, more than a threadgroup.
_LENGTHS = (1, 7, 33, 100, 1025)
_EPS = 2.0**-23


class Launch(msgspec.Struct, frozen=True):
    """One call: what is bound, the grid, and what each result should be, by its buffer."""

    bound: Mapping[str, Tensor]
    threads: Sequence[int]
    group: Sequence[int]
    expected: Mapping[str, tuple[Tensor, Tensor, Tensor | float]]
    #: Memory that a threadgroup gets from the host, in bytes, by the argument's name.
    shared: Mapping[str, int] = {}


Family = Callable[[re.Match[str], Kernel], Iterator[Launch]]
_FAMILIES: list[tuple[re.Pattern[str], Family]] = []


def _family(pattern: str) -> Callable[[Family], Family]:
    def add(function: Family) -> Family:
        _FAMILIES.append((re.compile(pattern), function))
        return function

    return add


def is_driven(name: str) -> bool:
    """Return whether a function here calls kernels of this name."""
    return any(pattern.fullmatch(name) for pattern, _ in _FAMILIES)


def judge(name: str, kernel: Kernel) -> Judged:
    """Run a kernel over the inputs of its family, and compare.

    Raises:
        Unfit: no family is known for its name, or for its arguments.
        KernelError: it cannot be run.
    """
    for pattern, function in _FAMILIES:
        match = pattern.fullmatch(name)
        if match:
            return _judged(kernel, function(match, kernel))
    raise Unfit("its family is not driven")


def _judged(kernel: Kernel, launches: Iterator[Launch]) -> Judged:
    compared = wrong = 0
    ulps, smallest = 0.0, None
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
            got = bound[name].flatten()
            off = torch.as_tensor(slack, dtype=torch.float64).expand(value.shape).flatten()
            expected = Expected(_inputs(given, value.numel()), value.flatten(), off)
            judged = judging.judge(expected, got, _allowed(got.dtype))
            compared, wrong = compared + judged.compared, wrong + judged.wrong
            ulps, smallest = max(ulps, judged.ulps), smallest or judged.smallest
    return Judged(compared=compared, wrong=wrong, ulps=ulps, smallest=smallest)


def _allowed(dtype: torch.dtype) -> float:
    return 4.0 if dtype == torch.float32 else 2.0  # the rounding of the result, and fused steps


def _inputs(given: Tensor, count: int) -> tuple[Tensor, ...]:
    """Return the index of each result and the first value of its input, for the record."""
    return (torch.arange(count), given.flatten()[:1].expand(count))


def _struct(kernel: Kernel, name: str, **given: Any) -> Tensor:
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
        width = field.size // max(field.length, 1)
        for place, item in enumerate(listed):
            element = msgspec.structs.replace(field, offset=0, size=width, length=0)
            raw = packed(element.type, (), width, (item,))[:width]
            at = field.offset + place * width
            memory[at : at + width] = raw
    return memory


def _dtype(word: str) -> torch.dtype:
    if word not in DTYPES:
        raise Unfit(f"a dtype that is not driven: {word}")
    return DTYPES[word]


def _random(shape: Sequence[int], dtype: torch.dtype, salt: int = 0) -> Tensor:
    """Return moderate random values, so that a reduction of them does not overflow."""
    generator = values.generator(salt)
    if dtype.is_complex:
        real = torch.float32 if dtype == torch.complex64 else torch.float16
        drawn = torch.randn(*shape, 2, generator=generator, dtype=torch.float64)
        return torch.view_as_complex(drawn.to(real))
    if dtype.is_floating_point:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(*shape, generator=generator) < 0.5
    low = 0 if torch.iinfo(dtype).min == 0 else -9
    return torch.randint(low, 10, tuple(shape), generator=generator).to(dtype)


def _wide(tensor: Tensor) -> Tensor:
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def _empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.full(tuple(shape), 1 if dtype == torch.bool else _UNTOUCHED, dtype=dtype)


# The reductions are called by aten/src/ATen/native/mps/operations/ReduceOps.mm.

_REDUCED: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "nansum": lambda x: x.nansum(-1),
    "prod": lambda x: x.prod(-1),
    "max": lambda x: x.amax(-1),
    "min": lambda x: x.amin(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "any": lambda x: x.bool().any(-1),
    "all": lambda x: x.bool().all(-1),
    "count_nonzero": lambda x: (x != 0).sum(-1),
    "var": lambda x: x.var(-1, correction=1),
    "std": lambda x: x.std(-1, correction=1),
    "norm_l0": lambda x: (x != 0).sum(-1).double(),
    "norm_l1": lambda x: x.abs().sum(-1),
    "norm_l2": lambda x: x.square().sum(-1).sqrt(),
    "norm_l2_combine": lambda x: x.sum(-1).sqrt(),
    "norm_inf": lambda x: x.abs().amax(-1),
    "norm_neginf": lambda x: x.abs().amin(-1),
}


def _reduction_slack(operation: str, given: Tensor, value: Tensor) -> Tensor:
    """Return what another order of summation may change."""
    if value.dtype in {torch.int64, torch.bool} or operation in {"max", "min"}:
        return torch.zeros(value.shape, dtype=torch.float64)
    wide = given.abs().double()
    return wide.sum(-1) * 8 * _EPS + (value.abs().double() * given.shape[-1] * _EPS)


@_family(r"(?P<op>\w+?)_reduction_(?P<a>[a-z0-9]+)_(?P<b>[a-z0-9]+)")
def _reductions(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    operation, source, target = match["op"], _dtype(match["a"]), _dtype(match["b"])
    if operation not in _REDUCED:
        raise Unfit(f"no reference for the reduction {operation}")
    for length in _LENGTHS:
        if operation in {"var", "std"} and length == 1:
            continue
        rows = 5
        given = _random((rows, length), source, length)
        if operation == "prod":
            given = given.sign() if not source.is_complex else given / 3
            given = torch.where(given == 0, torch.ones_like(given), given)
        value = _REDUCED[operation](_wide(given))
        params = _struct(
            kernel, "params", p=1.0, reduction_size=length, ndim=2,
            input_sizes=(rows, length), input_strides=(length, 1),
            output_sizes=(rows, 1), output_strides=(1, 1),
        )  # fmt: skip
        group = min(1024, -(-length // 32) * 32)
        out = _empty((rows,), target)
        yield Launch(
            {"input": given, "output": out, "params": params},
            (rows * group,), (group,),
            {"output": (given, value, _reduction_slack(operation, given, value))},
        )  # fmt: skip


class _Form(msgspec.Struct, frozen=True):
    """One way in which the reductions are launched; the kernels' code says what each number means."""

    #: The extents of the reduced dimension that the form takes.
    lengths: tuple[int, ...]
    #: Where the reduced dimension stands in memory.
    last: bool
    #: Sizes, strides, grid and threadgroup, by (batch, width, length) of the results and the reduction.
    sizes: Callable[[int, int, int], tuple[int, ...]]
    strides: Callable[[int, int, int], tuple[int, ...]]
    threads: Callable[[int, int], tuple[int, ...]]
    group: tuple[int, ...]


def _outer_form(group: tuple[int, ...]) -> _Form:
    """Return the form of a reduction over an outer dimension: 32 columns a threadgroup."""
    return _Form(
        lengths=(1, 7, 33, 100),
        last=False,
        sizes=lambda _batch, width, length: (length, width, 1, 0),
        strides=lambda _batch, width, length: (width, 1, length * width, 0),
        threads=lambda batch, width: (-(-width // 32) * 32, group[1], batch),
        group=group,
    )


_FORMS = {
    "flat": _Form(
        lengths=(4, 128, 1028),
        last=True,
        sizes=lambda batch, width, length: (batch * width * length, length),
        strides=lambda *_: (),
        threads=lambda batch, width: (batch * width * 256,),
        group=(256,),
    ),
    # One threadgroup reduces all rows.
    "flat_strided": _Form(
        lengths=(1, 7, 33, 1025),
        last=True,
        sizes=lambda _batch, _width, length: (1, length, 1, 0),
        strides=lambda _batch, _width, length: (length, 1, 0, 0),
        threads=lambda _batch, _width: (256,),
        group=(256,),
    ),
    # A simdgroup a row (2.15.0).  Sums read two of the sizes; argmax has the number of parts and of a row's elements, too.
    "innermost": _Form(
        lengths=_LENGTHS[1:],
        last=True,
        sizes=lambda batch, width, length: (batch * width, length, 1, length),
        strides=lambda *_: (),
        threads=lambda batch, width: (batch * width * 32,),
        group=(32,),
    ),
    # Eight lanes a row, so that a simdgroup has four rows.
    "innermost_chunk": _Form(
        lengths=_LENGTHS,
        last=True,
        sizes=lambda batch, width, length: (batch * width, length, 8, 1),
        strides=lambda *_: (),
        threads=lambda batch, width: (-(-batch * width // 4) * 32,),
        group=(32,),
    ),
    "narrow": _Form(
        lengths=_LENGTHS,
        last=False,
        sizes=lambda _batch, width, length: (length, width, 1, 0),
        strides=lambda *_: (),
        threads=lambda batch, _width: (256, 1, batch),
        group=(256, 1, 1),
    ),
    "outer": _outer_form((32, 32, 1)),
    "outer_small_dim": _outer_form((32, 1, 1)),
}  # fmt: skip
#: Batches and width of the results of one launch; else 2 and 3.  The outer forms have batches since 2.14.  Threads of a partly filled threadgroup would
#: return before its barrier, so that the outer forms get whole ones.
_EXTENTS = {"flat_strided": (1, 1), "narrow": (1, 3), "outer": (1, 64), "outer_small_dim": (1, 64)}
#: The flat forms have no parameter and leave the last step to a second kernel: no correction, no root.
_FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "norm_l2": lambda x: x.square().sum(-1),
    "norm_l2_combine": lambda x: x.sum(-1),
    "var": lambda x: x.var(-1, correction=0),
    "std": lambda x: x.std(-1, correction=0),
}


@_family(
    r"(?P<op>\w+?)_reduction_(?P<form>flat_strided|flat|innermost_chunk|innermost|narrow|outer_small_dim|outer)"
    r"_(?P<a>[a-z0-9]+)_(?P<b>[a-z0-9]+)"
)
def _reduction_forms(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    operation, form = match["op"], _FORMS[match["form"]]
    partial = match["a"] == "p1"  # the first of two passes: a value and its place for each part
    source, target = _dtype(match["b" if partial else "a"]), _dtype(match["b"])
    names = {argument.name for argument in kernel.buffers}
    references = _REDUCED | _FLAT if match["form"].startswith("flat") else _REDUCED
    if operation not in references or not {"input", "val_out" if partial else "output"} <= names:
        raise Unfit(f"no reference for the reduction {operation}")
    batch, width = _EXTENTS.get(match["form"], (2, 3))
    for length in form.lengths:
        if operation in {"var", "std"} and length == 1:
            continue
        given = _random((batch, width, length), source, length)
        if operation == "prod":
            given = torch.where(given == 0, torch.ones_like(given), given)
            given = given.sign() if not source.is_complex else (_wide(given) / 3).to(source)
        if operation.endswith("combine"):
            given = given.abs()  # sums of squares
        value = references[operation](_wide(given))
        numbers_of = (batch, width, length)
        bound = {
            "input": given if form.last else given.transpose(1, 2).contiguous(),
            "output": _empty((batch * width,), target),
            "sizes": numbers(*form.sizes(*numbers_of)),
            "params": numbers(*form.sizes(*numbers_of)),
            "strides": numbers(*form.strides(*numbers_of)),
            "param": torch.tensor(1.0),
            "divisor": torch.tensor(1.0),  # before 2.15.0
            "val_out": _empty((batch * width,), source),
            "idx_out": _empty((batch * width,), torch.int32),
            "idx_in": torch.arange(given.numel(), dtype=torch.int32),
        }
        expected = {"output": (given, value, _reduction_slack(operation, given, value))}
        if partial:
            largest = (given.amax if operation == "argmax" else given.amin)(-1)
            expected = {"val_out": (given, _wide(largest), 0.0), "idx_out": (given, value, 0.0)}
        yield Launch(
            {name: tensor for name, tensor in bound.items() if name in names},
            form.threads(batch, width), form.group, expected,
        )  # fmt: skip


# The scans are called by aten/src/ATen/native/mps/operations/ScanKernel.mm.

_SCANNED: dict[str, Callable[[Tensor, int], Any]] = {
    "cumsum": torch.cumsum,
    "cumprod": torch.cumprod,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
    "logcumsumexp": torch.logcumsumexp,
}


@_family(r"(?P<op>cumsum|cumprod|cummax|cummin|logcumsumexp)_innermost_(?P<a>[a-z0-9]+)")
def _scans(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    operation, dtype = match["op"], _dtype(match["a"])
    names = [argument.name for argument in kernel.buffers]
    for length in _LENGTHS:
        rows = 3
        given = _random((rows, length), dtype, length)
        if operation == "cumprod":
            given = torch.where(given == 0, torch.ones_like(given), given)
            given = given.sign() if not dtype.is_complex else given / given.abs().clamp(min=1e-3)
        scanned = _SCANNED[operation](_wide(given), -1)
        value, places = (
            (scanned.values, scanned.indices)
            if operation in {"cummax", "cummin"}
            else (scanned, None)
        )
        slack: Tensor | float = 0.0
        if dtype.is_floating_point or dtype.is_complex:
            slack = given.abs().double().cumsum(-1) * 4 * _EPS + value.abs() * length * _EPS
        bound = {"in": given, "axis_size": numbers(length, size=8)}
        out = _empty((rows, length), dtype)
        expected = {}
        if places is None:
            bound["out"], expected["out"] = out, (given, value, slack)
        elif "out_values" in names:
            bound |= {"out_values": out, "out_indices": _empty((rows, length), torch.int64)}
            expected = {"out_values": (given, value, 0.0)}
            if dtype.is_floating_point:
                expected["out_indices"] = (given, places, 0.0)
        group = min(1024, -(-length // (4 * 32)) * 32)
        yield Launch(bound, (group, rows, 1), (group, 1, 1), expected)


# Softmax and norms are called by SoftMax.mm, LayerNorm.mm and RMSNorm.mm there.


@_family(r"(?P<log>log_)?softmax_row_(?P<a>[a-z0-9]+)_u32")
def _softmax(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    for length in _LENGTHS:
        given = _random((4, length), dtype, length) * 3
        given[0, 0] = -100.0
        function = torch.log_softmax if match["log"] else torch.softmax
        value = function(given.double(), -1)
        params = _struct(
            kernel, "params", dim_size=length, num_rows=4, inner_size=1, chunk_size=length,
            n_chunks=1, ndim=2, dim=1, sizes=(4, length), strides=(length, 1),
        )  # fmt: skip
        group = min(256, -(-length // 32) * 32)
        slack = (value.abs() + 1) * 8 * _EPS if match["log"] else value * 8 * _EPS
        yield Launch(
            {"input": given, "output": _empty((4, length), dtype), "params": params},
            (4 * group,), (group,), {"output": (given, value, slack)},
        )  # fmt: skip


@_family(r"layer_norm_(?P<how>single_row|looped)(_i32)?_(?P<a>[a-z0-9]+)")
def _layer_norm(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    flags = {a.name: a for a in kernel.buffers}
    for length in (8, 33, 100, 1000):
        given = _random((3, length), dtype, length)
        weight, bias = _random((length,), dtype, 1), _random((length,), dtype, 2)
        wide = given.double()
        value = F.layer_norm(wide, (length,), weight.double(), bias.double(), 1e-5)
        mean, rstd = wide.mean(-1), (wide.var(-1, correction=0) + 1e-5).rsqrt()
        slack = 64 * _EPS * (1 + weight.double().abs() * 4)
        bound = {
            "input": given, "output": _empty((3, length), dtype), "meanOut": _empty((3,), dtype),
            "rstdTensor": _empty((3,), dtype), "axis_size": numbers(length),
            "epsilon": torch.tensor(1e-5), "weight": weight, "bias": bias,
        }  # fmt: skip
        for extra in flags.keys() - bound.keys():
            if flags[extra].type not in {"bool", "int", "uint"}:
                raise Unfit(f"nothing is known of the argument {extra}")
            bound[extra] = numbers(1, 1)
        group = min(1024, -(-length // (4 * 32)) * 32)
        yield Launch(
            bound, (3 * group,), (group,),
            {
                "output": (given, value, slack),
                "meanOut": (given, mean, 1e-6),
                "rstdTensor": (given, rstd, rstd * 16 * _EPS),
            },
        )  # fmt: skip


@_family(r"rms_norm(?P<how>_looped)?_(?P<a>float|half|bfloat)")
def _rms_norm(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    for length in (8, 33, 100, 1000):
        given, weight = _random((3, length), dtype, length), _random((length,), dtype, 1)
        wide = given.double()
        value = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()
        group = min(1024, -(-length // (4 * 32)) * 32)
        yield Launch(
            {
                "x": given, "w": weight, "out": _empty((3, length), dtype), "eps": torch.tensor(1e-5),
                "axis_size": numbers(length), "w_stride": numbers(1),
            },
            (3 * group,), (group,),
            {"out": (given, value, value.abs() * (_half_step(dtype) + 16 * _EPS))},
        )  # fmt: skip


def _half_step(dtype: torch.dtype) -> float:
    """Return what rounding an intermediate value to the dtype may change."""
    return torch.finfo(dtype).eps


# Sorting and searching: Sort.mm, Bucketization.mm


@_family(r"sort_block_(?P<a>[a-z0-9]+)_tptg(?P<t>\d+)(?P<stable>_stable)?")
def _sort(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, threads = _dtype(match["a"]), int(match["t"])
    if not {"inp", "out_vals", "out_idx", "size", "strides", "desc"} <= {
        a.name for a in kernel.buffers
    }:
        raise Unfit("other arguments than sort_block had in 2.13")
    for length, down in ((1, 0), (33, 0), (100, 1), (4 * threads, 0)):
        given = _random((2, length), dtype, length)
        value = torch.sort(given, dim=-1, descending=bool(down), stable=True)
        expected: dict[str, Any] = {"out_vals": (given, _wide(value.values), 0.0)}
        if match["stable"]:
            expected["out_idx"] = (given, value.indices, 0.0)
        yield Launch(
            {
                "inp": given, "out_vals": _empty((2, length), dtype),
                "out_idx": _empty((2, length), torch.int64), "size": numbers(length),
                "strides": numbers(1, length, size=8), "desc": torch.tensor([bool(down)]),
            },
            (threads, 2, 1), (threads, 1, 1), expected,
        )  # fmt: skip


@_family(r"searchsorted_(?P<a>[a-z0-9]+)_(?P<b>int|long)(?P<sorter>_sorter)?")
def _search(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype, target = _dtype(match["a"]), _dtype(match["b"])
    for right in (0, 1):
        bounds = torch.unique(_random((40,), dtype, 1))
        given = torch.cat([_random((61,), dtype, 2), bounds[:5]])
        bound = {
            "data_in": given, "data_bd": bounds, "data_out": _empty((len(given),), target),
            "idim_in": numbers(len(given), size=8), "idim_bd": numbers(len(bounds), size=8),
            "numel_in": numbers(len(given), size=8), "right": numbers(right, size=8),
            "is_1d_boundaries": numbers(1, size=8),
        }  # fmt: skip
        if match["sorter"]:
            order = torch.randperm(len(bounds), generator=values.generator(1))
            bound["data_sort"] = torch.argsort(order)
            bound["data_bd"] = bounds[order]
        value = torch.searchsorted(bounds.double(), given.double(), right=bool(right))
        yield Launch(bound, (len(given), 1), (32, 1), {"data_out": (given, value, 0.0)})


# Gather, scatter, indexing: ScatterGather.mm, Indexing.mm


def _scattered(operation: str, given: Tensor, index: Tensor, source: Tensor) -> Tensor:
    """Return what scattering along the last dimension gives.

    Raises:
        Unfit: nothing to compare with.
    """
    wide, reduce = _wide(given), operation.removeprefix("scatter_")
    if reduce == "set":
        return wide.scatter(1, index, _wide(source))
    if given.dtype.is_complex and reduce == "add":
        return wide.scatter_add(1, index, _wide(source))
    if given.dtype.is_complex or given.dtype == torch.bool:
        raise Unfit("no reference for reductions of the dtype")
    if given.dtype == torch.int64 and reduce in {"amax", "amin"}:
        raise Unfit("the host flips the sign bits first (scatter_signbit_xor)")
    return wide.scatter_reduce(1, index, _wide(source), "sum" if reduce == "add" else reduce)


@_family(
    r"(?P<op>gather|scatter_(?:set|add|amax|amin|prod))_strided_(?P<a>[a-z0-9]+)_(?P<b>int|long)"
)
def _gather(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    operation, dtype, index_dtype = match["op"], _dtype(match["a"]), _dtype(match["b"])
    rows, columns, picked = 5, 9, 6
    order = torch.rand(rows, columns, generator=values.generator(0))
    index = order.argsort(1)[:, :picked].contiguous()
    given, source = _random((rows, columns), dtype, 1), _random((rows, picked), dtype, 2)
    # Innermost first, as TensorIterator has dimensions.
    bound = {
        "index": index.to(index_dtype), "ndim_dim": numbers(2, 0, 0, 0),
        "tid_offset": numbers(0, size=8), "sizes": numbers(picked, rows, size=8),
        "index_sizes": numbers(picked, rows, size=8), "input": given, "src": source,
        "dim_size": numbers(columns, size=8), "input_dim_size": numbers(columns, size=8),
    }  # fmt: skip
    if operation == "gather":
        value, width = _wide(given).gather(1, index), picked
        bound["output"] = _empty((rows, picked), dtype)
    else:
        value, width = _scattered(operation, given, index, source), columns
        bound["output"] = given.clone()
    for name, extent in {"output": width, "input": columns, "src": picked, "index": picked}.items():
        bound[f"{name}_strides"] = numbers(1, extent, size=8)
    wanted = {argument.name for argument in kernel.buffers}
    yield Launch(
        {name: tensor for name, tensor in bound.items() if name in wanted},
        (rows * picked,), (32,), {"output": (given, value, value.abs().double() * 4 * _EPS)},
    )  # fmt: skip


# Attention and quantized products: Attention.mm, Quantized.mm


@_family(r"sdpa_vector_(?P<a>float|half|bfloat)_(?P<d>\d+)_(?P<v>\d+)_masknone(?P<causal>_causal)?")
def _attention(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, size, last = _dtype(match["a"]), int(match["d"]), int(match["v"])
    heads, queries, keys = 2, 3, 40
    q, k = _random((heads, queries, size), dtype, 1), _random((heads, keys, size), dtype, 2)
    v = _random((heads, keys, last), dtype, 3)
    scale = size**-0.5
    scores = q.double() @ k.double().transpose(1, 2) * scale
    if match["causal"]:
        allowed = torch.arange(keys)[None] <= torch.arange(queries)[:, None]
        scores = scores.masked_fill(~allowed, -torch.inf)
    value = scores.softmax(-1) @ v.double()
    bound = {
        "queries": q, "keys": k, "values": v, "out": _empty((heads, queries, last), dtype),
        "gqa_factor": numbers(1), "N": numbers(keys), "scale": torch.tensor(scale),
        "qkv_head_strides": numbers(queries * size, keys * size, keys * last, 0),
        "qkv_seq_strides": numbers(size, size, last, 0), "mask": torch.zeros(8, dtype=dtype),
        "mask_strides": numbers(0, 0, 0, 0),
        "qkv_batch_strides_heads": numbers(heads * queries * size, heads * keys * size, heads * keys * last, heads),
    }  # fmt: skip
    bound = {
        name: tensor for name, tensor in bound.items() if name in {a.name for a in kernel.buffers}
    }
    yield Launch(
        bound, (heads * 1024, queries, 1), (1024, 1, 1),
        {"out": (q, value, v.double().abs().amax() * 64 * _EPS + value.abs() * _half_step(dtype))},
    )  # fmt: skip


@_family(r"int8pack_mv_(?P<a>float|half|bfloat)")
def _int8(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    rows, depth, columns = 3, 64, 16
    given, scales = _random((rows, depth), dtype, 1), _random((columns,), dtype, 2)
    weight = torch.randint(-128, 128, (columns, depth), generator=values.generator(1)).to(
        torch.int8
    )
    value = given.double() @ weight.double().T * scales.double()
    size = given.double().abs() @ weight.double().abs().T * scales.double().abs()
    yield Launch(
        {
            "A": given, "B": weight, "scalesAndZeros": scales,
            "outputData": _empty((rows, columns), dtype), "sizes": numbers(rows, depth, columns, 0),
        },
        (columns // 8 * 64, rows, 1), (64, 1, 1),
        {"outputData": (given, value, size * 16 * _EPS + value.abs() * _half_step(dtype))},
        {"shared_memory": 64},
    )  # fmt: skip


# Pooling and upsampling: Pooling.mm, UpSample.mm, GridSampler.mm


@_family(r"(?P<op>max|avg)_pool_(?P<a>[a-z0-9]+)")
def _pooling(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    for size, stride, padding in (((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 2), (1, 1))):
        given = _random((2, 3, 7, 8), dtype, 1)
        kinds = {"kernel_size": size, "stride": stride, "padding": padding}
        wide = given.double()
        if match["op"] == "max":
            value, places = F.max_pool2d(wide, size, stride, padding, return_indices=True)
            more = {
                "dilation": (1, 1), "return_indices": 1, "indices_sizes": value.shape,
                "indices_strides": value.stride(),
            }  # fmt: skip
        else:
            value, more = F.avg_pool2d(wide, size, stride, padding), {"count_include_pad": 1}
            if not dtype.is_floating_point:
                raise Unfit("no reference for means of integers")
        params = _struct(
            kernel, "params", dims=4, pooling_dims=2, input_sizes=given.shape,
            input_strides=given.stride(), output_sizes=value.shape, output_strides=value.stride(),
            **kinds, **more,
        )  # fmt: skip
        bound = {"input": given, "output": _empty(value.shape, dtype), "params": params}
        expected: dict[str, Any] = {"output": (given, value, value.abs() * 4 * _EPS)}
        if match["op"] == "max":
            bound["indices"] = _empty(value.shape, torch.int64)
            if dtype.is_floating_point:
                expected["indices"] = (given, places, 0.0)
        expected["output"] = (given, value, _terms(wide, 9))
        yield Launch(bound, (value.numel(),), (32,), expected)


def _terms(given: Tensor, count: int) -> float:
    """Return what summing so many of the values in another order may change."""
    return float(given.abs().amax()) * count * _EPS


_MODES = {
    "nearest1d": ("nearest", 1), "nearest2d": ("nearest", 2), "nearest_3d": ("nearest", 3),
    "nearest_exact1d": ("nearest-exact", 1), "nearest_exact2d": ("nearest-exact", 2),
    "nearest_exact_3d": ("nearest-exact", 3), "linear1d": ("linear", 1),
    "bilinear2d": ("bilinear", 2), "bicubic2d": ("bicubic", 2), "trilinear": ("trilinear", 3),
    "bilinear2d_aa": ("bilinear", 2), "bicubic2d_aa": ("bicubic", 2),
}  # fmt: skip


@_family(r"upsample_(?P<mode>\w+?)_(?P<a>float|half|bfloat|uchar|char|int|short|long|bool)")
def _upsample(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    if match["mode"] not in _MODES:
        raise Unfit(f"the mode {match['mode']} is not driven")
    mode, dims = _MODES[match["mode"]]
    for shape, target, corners in (
        ((5, 4, 6)[:dims], (7, 9, 11)[:dims], False),
        ((6, 7, 5)[:dims], (3, 4, 9)[:dims], True),
    ):
        if corners and (mode.startswith("nearest") or "_aa" in match["mode"]):
            corners = False  # noqa: PLW2901  (those modes know none)
        given = _random((2, 3, *shape), dtype, 1)
        flags = {} if mode.startswith("nearest") else {"align_corners": corners}
        if match["mode"].endswith("_aa"):
            flags["antialias"] = True
        value = F.interpolate(given.double(), target, mode=mode, **flags)
        if not dtype.is_floating_point and not mode.startswith("nearest"):
            raise Unfit("no reference for interpolated integers")
        scales = [
            (s - 1) / (t - 1) if corners and t > 1 else s / t
            for s, t in zip(shape, target, strict=True)
        ]
        params = _struct(
            kernel, "params", input_strides=given.stride(), input_sizes=given.shape,
            output_strides=value.stride(), output_sizes=value.shape,
            scales=list(reversed(scales)), align_corners=int(corners),
        )  # fmt: skip
        yield Launch(
            {"inputData": given, "outputData": _empty(value.shape, dtype), "params": params},
            (value[0, 0].numel(),), (32,), {"outputData": (given, value, 2e-5)},
        )  # fmt: skip


@_family(
    r"grid_sampler_2d_(?P<mode>bilinear|nearest|bicubic)_(?P<pad>zeros|border|reflection)_i32_(?P<a>float|half|bfloat)"
)
def _grid_sampler(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    for corners in (False, True):
        given = _random((2, 3, 5, 6), dtype, 1)
        grid = _random((2, 4, 7, 2), dtype, 2)
        value = F.grid_sample(
            given.double(), grid.double(), match["mode"], match["pad"], align_corners=corners
        )
        params = _struct(
            kernel, "params", sampler_dims=2, output_sizes=value.shape, output_strides=value.stride(),
            input_sizes=given.shape, input_strides=given.stride(), grid_sizes=grid.shape,
            grid_strides=grid.stride(), align_corners=int(corners),
        )  # fmt: skip
        slack = 1e-4 if dtype == torch.float32 else 64 * _half_step(dtype)
        yield Launch(
            {"output": _empty(value.shape, dtype), "input": given, "grid": grid, "params": params},
            (value.numel() // value.shape[1],), (32,), {"output": (given, value, slack)},
        )  # fmt: skip


# Linear algebra: LinearAlgebra.mm


@_family(r"triangular_solve_(?P<a>float|float2)")
def _triangular(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    size, columns = 5, 3
    for upper in (0, 1):
        given = _random((2, size, size), dtype, 1) / 4
        given = (given.triu(1) if upper else given.tril(-1)) + 2 * torch.eye(size, dtype=dtype)
        right = _random((2, size, columns), dtype, 2)
        value = torch.linalg.solve_triangular(_wide(given), _wide(right), upper=bool(upper))
        params = _struct(kernel, "p", nbatch=2, n=size, k=columns, upper=upper)
        group = 32
        yield Launch(
            {"A": given, "B": right, "X": _empty(right.shape, dtype), "p": params},
            (2 * columns * group,), (group,), {"X": (given, value, 1e-5)},
            {"xs": 4096, "red": 4096},
        )  # fmt: skip


@_family(r"naive_bmm_(?P<a>[a-z0-9]+)")
def _bmm(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    dtype = _dtype(match["a"])
    batch, m, k, n = 2, 19, 33, 17
    left, right = _random((batch, m, k), dtype, 1), _random((batch, k, n), dtype, 2)
    value = _wide(left) @ _wide(right)
    size = _wide(left).abs().double() @ _wide(right).abs().double()
    strides = numbers(*(s for t in (left, right, value) for s in reversed(t.stride())), size=8)
    yield Launch(
        {
            "mat1Data": left, "mat2Data": right, "outputData": _empty(value.shape, dtype),
            "strides": strides, "sizes": numbers(m, k, n, batch),
        },
        (-(-n // 16) * 16, -(-m // 16) * 16, batch), (16, 16, 1),
        {"outputData": (left, value, size * 8 * _EPS)},
    )  # fmt: skip
