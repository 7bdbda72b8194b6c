"""Calls the kernels of reductions and scans."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch
from torch import Tensor

from opcheck.kernels.launch import (
    EPS,
    LENGTHS,
    Launch,
    bound_to,
    dtype_named,
    family,
    random,
    struct,
    untouched,
    widened,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import Unfit, numbers

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
    return wide.sum(-1) * 8 * EPS + (value.abs().double() * given.shape[-1] * EPS)


#: The state of a variance between two passes: the mean, the squares' sum about it, and the count, in 16 bytes.
_STATE = "float3"


def _state(given: Tensor) -> Tensor:
    """Return the states of a variance of the last dimension, in double."""
    count = torch.full(given.shape[:-1], given.shape[-1], dtype=torch.float64)
    squares = given.double().var(-1, correction=0) * count
    return torch.stack([given.double().mean(-1), squares, count, torch.zeros_like(count)], -1)


def _operand(word: str, operation: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the numbers that are reduced along the last dimension, and the memory that holds them."""
    if word == _STATE:
        drawn = random((*shape, 3), torch.float32, shape[-1])
        return drawn.flatten(-2), _state(drawn).float()
    dtype = dtype_named(word)
    given = random(shape, dtype, shape[-1])
    if operation == "prod":
        if dtype.is_complex:
            given = (widened(given) / 3).to(dtype)
        given = torch.where(widened(given) == 0, torch.ones_like(given), given)
        given = given if dtype.is_complex else given.sign()
    return given, given


def _result(word: str, given: Tensor, value: Tensor, slack: Tensor) -> dict[str, Any]:
    """Return the results' memory, and what a launch says of it."""
    if word != _STATE:
        out = untouched(value.shape, dtype_named(word))
        return {"out": out, "expected": {"output": (given, value, slack)}, "made": {}}
    state = _state(given)[..., :3]
    wide = given.double()
    off = (wide.abs().sum(-1) + wide.square().sum(-1))[..., None] * 8 * EPS
    return {
        "out": untouched((*value.shape, 4), torch.float32),
        "expected": {"output": (given, state, off.expand(state.shape))},
        "made": {"output": lambda bound: bound["output"][..., :3]},
    }


@family(r"(?P<op>argmax|argmin)_reduction_combine_(?P<a>[a-z0-9]+)")
def _combined_places(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the second of two passes over the extreme value of each part and its place: a simdgroup a row."""
    dtype, rows = dtype_named(match["a"]), 3
    for parts in (1, 7, 33, 100):
        given = random((rows, parts), dtype, parts)
        places = torch.arange(rows * parts, dtype=torch.int32).view(rows, parts) * 5 + 2
        wide = widened(given)
        extreme = (wide.amax if match["op"] == "argmax" else wide.amin)(-1, keepdim=True)
        value = torch.where(wide == extreme, places, 2**31 - 1).amin(-1).long()
        bound = {
            "input": given, "idx_in": places, "output": untouched((rows,), torch.int64),
            "sizes": numbers(rows, parts, 1, parts), "val_out": untouched((rows,), dtype),
            "idx_out": untouched((rows,), torch.int32),
        }  # fmt: skip
        yield Launch(bound_to(kernel, bound), (rows * 32,), (32,), {"output": (given, value, 0.0)})


@family(r"(?P<op>\w+?)_reduction_(?P<a>[a-z0-9]+)_(?P<b>[a-z0-9]+)")
def _reductions(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    operation, rows = match["op"], 5
    if operation not in _REDUCED:
        raise Unfit(f"no reference for the reduction {operation}")
    for length in LENGTHS:
        if operation in {"var", "std"} and length == 1:
            continue
        given, memory = _operand(match["a"], operation, (rows, length))
        value = _REDUCED[operation](widened(given))
        result = _result(match["b"], given, value, _reduction_slack(operation, given, value))
        params = struct(
            kernel, "params", p=1.0, reduction_size=length, ndim=2,
            input_sizes=(rows, length), input_strides=(length, 1),
            output_sizes=(rows, 1), output_strides=(1, 1),
        )  # fmt: skip
        group = min(1024, -(-length // 32) * 32)
        yield Launch(
            {"input": memory, "output": result["out"], "params": params},
            (rows * group,), (group,), result["expected"], made=result["made"],
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
    # A simdgroup a row (2.15.0).  Sums read two of the sizes; argmax also the parts and elements of a row.
    "innermost": _Form(
        lengths=LENGTHS[1:],
        last=True,
        sizes=lambda batch, width, length: (batch * width, length, 1, length),
        strides=lambda *_: (),
        threads=lambda batch, width: (batch * width * 32,),
        group=(32,),
    ),
    # Eight lanes a row, so that a simdgroup has four rows.
    "innermost_chunk": _Form(
        lengths=LENGTHS,
        last=True,
        sizes=lambda batch, width, length: (batch * width, length, 8, 1),
        strides=lambda *_: (),
        threads=lambda batch, width: (-(-batch * width // 4) * 32,),
        group=(32,),
    ),
    "narrow": _Form(
        lengths=LENGTHS,
        last=False,
        sizes=lambda _batch, width, length: (length, width, 1, 0),
        strides=lambda *_: (),
        threads=lambda batch, _width: (256, 1, batch),
        group=(256, 1, 1),
    ),
    "outer": _outer_form((32, 32, 1)),
    "outer_small_dim": _outer_form((32, 1, 1)),
}  # fmt: skip
#: Of 2.14; later kernels pass their strides in the sizes.
_FORMS["narrow_strided"] = msgspec.structs.replace(
    _FORMS["narrow"], strides=lambda _batch, width, length: (width, 1, length * width, 0)
)
#: Batches and width of the results of one launch; else 2 and 3.  The outer forms have batches since 2.14.
#: Threads of a partly filled threadgroup would return before its barrier, so that the outer forms get whole ones.
_EXTENTS = {
    "flat_strided": (1, 1),
    "narrow": (1, 3),
    "narrow_strided": (1, 3),
    "outer": (1, 64),
    "outer_small_dim": (1, 64),
}
#: The flat forms have no parameter and leave the last step to a second kernel: no correction, no root.
_FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "norm_l2": lambda x: x.square().sum(-1),
    "norm_l2_combine": lambda x: x.sum(-1),
    "var": lambda x: x.var(-1, correction=0),
    "std": lambda x: x.std(-1, correction=0),
}


@family(
    r"(?P<op>\w+?)_reduction_(?P<form>flat_strided|flat|inner(?:most)?_chunk|inner(?:most)?|narrow(?:_strided)?"
    r"|outer_small_dim|outer)"
    r"_(?P<a>[a-z0-9]+)_(?P<b>[a-z0-9]+)"
)
def _reduction_forms(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    # 2.14 wrote `inner` of what is innermost since.
    named = re.sub("^inner(?!most)", "innermost", match["form"])
    operation, form = match["op"], _FORMS[named]
    partial = match["a"] == "p1"  # the first of two passes: a value and its place for each part
    source = match["b" if partial else "a"]
    names = {argument.name for argument in kernel.buffers}
    references = _REDUCED | _FLAT if match["form"].startswith("flat") else _REDUCED
    if operation not in references or not {"input", "val_out" if partial else "output"} <= names:
        raise Unfit(f"no reference for the reduction {operation}")
    batch, width = _EXTENTS.get(named, (2, 3))
    for length in form.lengths:
        if operation in {"var", "std"} and length == 1:
            continue
        given, memory = _operand(source, operation, (batch, width, length))
        if operation.endswith("combine"):
            given = memory = given.abs()  # sums of squares
        value = references[operation](widened(given))
        numbers_of = (batch, width, length)
        result = _result(match["b"], given, value, _reduction_slack(operation, given, value))
        bound = {
            "input": memory if form.last else memory.transpose(1, 2).contiguous(),
            "output": result["out"],
            "sizes": numbers(*form.sizes(*numbers_of)),
            "params": numbers(*form.sizes(*numbers_of)),
            "strides": numbers(*form.strides(*numbers_of)),
            "param": torch.tensor(1.0),
            "divisor": torch.tensor(1.0),  # before 2.15.0
            "idx_in": torch.arange(given.numel(), dtype=torch.int32),
            "val_out": untouched((batch * width,), given.dtype),
            "idx_out": untouched((batch * width,), torch.int32),
        }
        expected = result["expected"]
        if partial:
            largest = (given.amax if operation == "argmax" else given.amin)(-1)
            expected = {"val_out": (given, widened(largest), 0.0), "idx_out": (given, value, 0.0)}
        yield Launch(
            bound_to(kernel, bound), form.threads(batch, width), form.group, expected, made=result["made"]
        )  # fmt: skip
