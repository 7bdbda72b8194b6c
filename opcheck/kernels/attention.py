"""Calls the kernels of attention that share the work of a query: by blocks of queries, and in two passes.

The host functions are in Attention.mm; the kernels in PrefillAttention.h and DecodeAttention.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from opcheck.kernels.launch import EPS, Launch, dtype_named, family, random, struct, untouched
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import numbers
from opcheck.kernels.products import rounding, taken

#: Of the blocks that the first of two passes makes of the keys; the second reads one a lane.
_BLOCKS = 32
#: Keys that a threadgroup of the first pass has at once: one a simdgroup.
_AT_ONCE = 8
#: The largest score of a block all of whose keys are masked.
_NO_KEY = -1e9


class Problem(NamedTuple):
    """Queries, keys and values as (batch, heads, length, size), and the scores of each query by key."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor
    scores: Tensor

    @property
    def result(self) -> Tensor:
        """Softmax of the scores, times the values."""
        shared = self.q.shape[1] // self.v.shape[1]
        return self.scores.softmax(-1) @ self.v.double().repeat_interleave(shared, 1)


def problem(
    dtype: torch.dtype,
    shape: tuple[int, int, int, int],
    sizes: tuple[int, int],
    *,
    mask: str,
    causal: bool,
) -> Problem:
    """Make queries, keys and values; two heads of queries share those of keys and values.

    Args:
        dtype: of all but the mask.
        shape: how many batches, heads, queries a head and keys a head there are.
        sizes: of a key, and of a value.
        mask: a dtype, or `none`.
        causal: whether no query sees later keys than its own; the first of both belong together.
    """
    batch, heads, queries, keys = shape
    q = random((batch, heads, queries, sizes[0]), dtype, 1)
    k = random((batch, heads // 2, keys, sizes[0]), dtype, 2)
    v = random((batch, heads // 2, keys, sizes[1]), dtype, 3)
    scores = q.double() @ k.double().repeat_interleave(2, 1).transpose(2, 3) * sizes[0] ** -0.5
    if causal:
        allowed = torch.arange(keys)[None] <= torch.arange(queries)[:, None]
        scores = scores.masked_fill(~allowed, -torch.inf)
    given = torch.zeros(8, dtype=dtype)
    if mask != "none":
        given = random(shape, dtype_named(mask), 4)
        if given.dtype == torch.bool:
            given[..., 0] = True  # no query without a key
            scores = scores.masked_fill(~given, -torch.inf)
        else:
            scores = scores + given.double()
    return Problem(q, k, v, given, scores)


def _slack(given: Problem, value: Tensor) -> Tensor:
    """Return what rounding scores and probabilities in float32 may change, and the result to its dtype."""
    dtype = given.q.dtype
    return given.v.double().abs().amax() * 64 * EPS + value.abs() * 2 * rounding(dtype)


_DTYPES = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "bool_": "bool"}


@family(
    r"prefill_attention_(?P<a>\w+?)_bq(?P<bq>\d+)_bk(?P<bk>\d+)_bd(?P<d>\d+)_wm(?P<wm>\d+)_wn(?P<wn>\d+)"
    r"_hm(?P<masked>[01])_dc(?P<causal>[01])_mask(?P<mask>\w+)"
)
def _prefill(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a threadgroup for each block of queries, of each head and batch."""
    dtype, size, block = dtype_named(_DTYPES[match["a"]]), int(match["d"]), int(match["bq"])
    mask = _DTYPES[match["mask"]] if match["masked"] == "1" else "none"
    for shape in ((1, 4, block + 5, 45), (2, 2, 7, 64)):
        batch, heads, queries, keys = shape
        given = problem(dtype, shape, (size, size), mask=mask, causal=match["causal"] == "1")
        value = given.result
        params = struct(
            kernel, "params", B=batch, H=heads, D=size, qL=queries, kL=keys, gqa_factor=2, scale=size**-0.5,
            softcapping=1.0, Q_strides=given.q.stride()[:3], K_strides=given.k.stride()[:3],
            V_strides=given.v.stride()[:3], O_strides=value.stride()[:3],
        )  # fmt: skip
        bound = {
            "Q": given.q, "K": given.k, "V": given.v, "O": untouched(value.shape, dtype), "params": params,
            "mask": given.mask,
            "mask_params": struct(kernel, "mask_params", M_strides=given.mask.stride() if mask != "none" else ()),
        }  # fmt: skip
        threads = 32 * int(match["wm"]) * int(match["wn"])
        yield Launch(
            taken(kernel, bound), (-(-queries // block) * threads, heads, batch), (threads, 1, 1),
            {"O": (given.q, value, _slack(given, value) + given.v.abs().max().double() * 2 * rounding(dtype))},
        )  # fmt: skip


@family(
    r"sdpa_vector_2pass_1_(?P<a>float|half|bfloat)_(?P<d>\d+)_(?P<v>\d+)"
    r"(?:_mask(?P<mask>none|bool|float|half|bfloat))?(?P<causal>_causal)?"
)
def _first_pass(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the first pass: the largest score, the sum of exponentials and the values of each block of keys."""
    dtype, sizes = dtype_named(match["a"]), (int(match["d"]), int(match["v"]))
    shape = batch, heads, queries, keys = 1, 4, 2, 300
    mask = match["mask"] or "none"
    given = problem(dtype, shape, sizes, mask=mask, causal=bool(match["causal"]))
    blocks = [
        [place for place in range(keys) if place // _AT_ONCE % _BLOCKS == block]
        for block in range(_BLOCKS)
    ]
    largest = torch.stack([given.scores[..., block].amax(-1) for block in blocks], -1)
    weights = [
        (given.scores[..., block] - largest[..., place : place + 1]).exp().nan_to_num(0.0)
        for place, block in enumerate(blocks)
    ]
    largest = largest.masked_fill(largest == -torch.inf, _NO_KEY)
    sums = torch.stack([weight.sum(-1) for weight in weights], -1)
    wide = given.v.double().repeat_interleave(2, 1)
    values = torch.stack(
        [weight @ wide[:, :, block] for weight, block in zip(weights, blocks, strict=True)], -2
    )
    strides = [numbers(*(t.stride(d) for t in (given.q, given.k, given.v)), 0) for d in (1, 2)]
    bound = {
        "queries": given.q, "keys": given.k, "values": given.v, "mask": given.mask,
        "out": untouched(values.shape, _type(kernel, "out")), "sums": untouched(sums.shape, _type(kernel, "sums")),
        "maxs": untouched(sums.shape, _type(kernel, "maxs")), "gqa_factor": numbers(2), "N": numbers(keys),
        "scale": torch.tensor(sizes[0] ** -0.5), "qkv_head_strides": strides[0], "qkv_seq_strides": strides[1],
        "mask_strides": numbers(*_mask_strides(given, mask)),
        "qkv_batch_strides_heads": numbers(given.q.stride(0), given.k.stride(0), given.v.stride(0), heads),
    }  # fmt: skip
    yield Launch(
        taken(kernel, bound), (batch * heads * 256, queries, _BLOCKS), (256, 1, 1),
        {
            "maxs": (given.q, largest, 64 * EPS),
            "sums": (given.q, sums, sums * 64 * EPS),
            "out": (given.q, values, values.abs() * rounding(dtype) + 1e-4),
        },
    )  # fmt: skip


def _type(kernel: Kernel, name: str) -> torch.dtype:
    return dtype_named(next(a.type for a in kernel.buffers if a.name == name))


def _mask_strides(given: Problem, mask: str) -> tuple[int, ...]:
    """Return the mask's strides as the kernel takes them: of keys, queries, heads and batches."""
    return tuple(reversed(given.mask.stride())) if mask != "none" else (0, 0, 0, 0)


@family(r"sdpa_vector_2pass_2_(?P<a>float|half|bfloat)_(?P<v>\d+)")
def _second_pass(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the second pass: the blocks of the first one become the result."""
    dtype, size = dtype_named(match["a"]), int(match["v"])
    heads, queries = 3, 2
    partials = random((heads, queries, _BLOCKS, size), _type(kernel, "partials"), 1)
    largest = random((heads, queries, _BLOCKS), _type(kernel, "maxs"), 2) * 3
    sums = random((heads, queries, _BLOCKS), _type(kernel, "sums"), 3).abs() + 0.5
    largest[0, 0, 5], sums[0, 0, 5], partials[0, 0, 5] = -torch.inf, 0, 0  # a block without keys
    factors = (largest.double() - largest.double().amax(-1, keepdim=True)).exp()
    value = (partials.double() * factors[..., None]).sum(-2) / (sums * factors).sum(
        -1, keepdim=True
    )
    bound = {
        "partials": partials, "sums": sums, "maxs": largest, "out": untouched(value.shape, dtype)
    }  # fmt: skip
    yield Launch(
        bound, (heads * 1024, queries, 1), (1024, 1, 1),
        {"out": (partials, value, 64 * EPS + value.abs() * rounding(dtype))},
    )  # fmt: skip
