"""Calls the kernels of attention that share the work of a query: by blocks of queries, and in two passes.

The host functions are in Attention.mm; the kernels in PrefillAttention.h and DecodeAttention.h.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opcheck.kernels.judging import EPS, rounding
from opcheck.kernels.launch import KernelCall, Launch, Launches, family
from opcheck.kernels.pointwise import dtype_named
from opcheck.kernels.values import random

#: Of the blocks that the first of two passes makes of the keys; the second reads one a lane.
_BLOCKS = 32
#: Keys that a threadgroup of the first pass has at once: one a simdgroup.
_AT_ONCE = 8
#: The largest score of a block with no unmasked key.
_NO_KEY = -1e9


class AttentionProblem(NamedTuple):
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
        weights = self.scores.softmax(-1).nan_to_num(0.0)
        return weights @ self.v.double().repeat_interleave(shared, 1)


def problem(
    dtype: torch.dtype, shape: tuple[int, int, int, int], sizes: tuple[int, int], *, mask: str, causal: bool
) -> AttentionProblem:
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
    case = torch.zeros(8, dtype=dtype)
    if mask != "none":
        case = random(shape, dtype_named(mask), 4)
        # The last query sees no key, as the padded rows of transformers do: zeros by a mask of bool, else the mean.
        if case.dtype == torch.bool:
            case[..., 0] = True
            case[..., -1, :] = False
            scores = scores.masked_fill(~case, -torch.inf)
        else:
            case[..., -1, :] = torch.finfo(case.dtype).min
            scores = scores + case.double()
    return AttentionProblem(q, k, v, case, scores)


def _slack(case: AttentionProblem, value: Tensor) -> Tensor:
    """Return what rounding scores and probabilities in float32 may change, and the result to its dtype."""
    return case.v.double().abs().amax() * _score_slack(case) + value.abs() * 2 * rounding(case.q.dtype)


def _score_slack(case: AttentionProblem) -> Tensor:
    """Return by how much rounding in float32 moves the scores of each query, and so its exponentials."""
    size = case.scores.abs().nan_to_num(0.0, 0.0, 0.0).amax(-1, keepdim=True)
    # The lowest float32 absorbs a score, so no rounding of it remains.
    return torch.where(size * EPS < 1, 64 + 2 * size, 64.0) * EPS


_DTYPES = {"float16": "half", "bfloat16": "bfloat", "float32": "float", "bool_": "bool"}


@family(
    r"prefill_attention_(?P<a>\w+?)_bq(?P<bq>\d+)_bk(?P<bk>\d+)_bd(?P<d>\d+)_wm(?P<wm>\d+)_wn(?P<wn>\d+)"
    r"_hm(?P<masked>[01])_dc(?P<causal>[01])_mask(?P<mask>\w+)"
)
def _prefill(call: KernelCall) -> Launches:
    """Call with a threadgroup for each block of queries, of each head and batch."""
    dtype, size, block = dtype_named(_DTYPES[call["a"]]), int(call["d"]), int(call["bq"])
    mask = _DTYPES[call["mask"]] if call["masked"] == "1" else "none"
    for shape in ((1, 4, block + 5, 45), (2, 2, 7, 64)):
        batch, heads, queries, keys = shape
        case = problem(dtype, shape, (size, size), mask=mask, causal=call["causal"] == "1")
        value = case.result
        params = call.struct("params", B=batch, H=heads, D=size, qL=queries, kL=keys, gqa_factor=2, scale=size**-0.5,
            softcapping=1.0, Q_strides=case.q.stride()[:3], K_strides=case.k.stride()[:3],
            V_strides=case.v.stride()[:3], O_strides=value.stride()[:3])  # fmt: skip
        threads = 32 * int(call["wm"]) * int(call["wn"])
        yield Launch({
            "Q": case.q, "K": case.k, "V": case.v, "params": params, "mask": case.mask,
            "mask_params": call.struct("mask_params", M_strides=case.mask.stride() if mask != "none" else ())
        }, (-(-queries // block) * threads, heads, batch),
            {"O": (case.q, value, _slack(case, value) + case.v.abs().max().double() * 2 * rounding(dtype))},
            group=(threads, 1, 1))  # fmt: skip


_FORM = r"_(?P<a>float|half|bfloat)_(?P<d>\d+)_(?P<v>\d+)(?:_mask(?P<mask>none|bool|float|half|bfloat))?"


def _problems(call: KernelCall, keys: int) -> Iterator[tuple[AttentionProblem, str]]:
    """Yield the problems of a kernel of few queries; up to 2.12 an argument tells the kernel of a mask."""
    sizes = int(call["d"]), int(call["v"])
    names_mask = "has_mask" in call.types
    for mask in ("none", "bool") if names_mask else (call["mask"] or "none",):
        shape = 1, 4, 2, keys
        yield (problem(dtype_named(call["a"]), shape, sizes, mask=mask, causal=bool(call["causal"])), mask)


def _bind_few_queries(case: AttentionProblem, mask: str) -> dict[str, Any]:
    """Return the buffers of the kernels of few queries; strides are of heads, of positions, of batches."""
    tensors = case.q, case.k, case.v
    return {
        "queries": case.q, "keys": case.k, "values": case.v, "mask": case.mask, "gqa_factor": 2,
        "N": case.k.shape[2], "scale": torch.tensor(case.q.shape[-1] ** -0.5), "has_mask": mask != "none",
        "qkv_head_strides": (*(t.stride(1) for t in tensors), 0),
        "qkv_seq_strides": (*(t.stride(2) for t in tensors), 0),
        "qkv_batch_strides_heads": (*(t.stride(0) for t in tensors), case.q.shape[1]),
        "k_head_seq_stride": case.k.stride()[1:3], "v_head_seq_stride": case.v.stride()[1:3],
        "mask_strides": case.mask.stride()[::-1] if mask != "none" else (0, 0, 0, 0)
    }  # fmt: skip


@family(rf"sdpa_vector{_FORM}(?P<causal>_causal)?")
def _few_queries(call: KernelCall) -> Launches:
    for case, mask in _problems(call, 40):
        value = case.result
        bound = _bind_few_queries(case, mask)
        if mask != "none" and "qkv_batch_strides_heads" not in call.types:
            _, head, query, key = case.mask.stride()
            bound["mask_strides"] = (head, key, query, 0)  # the order up to 2.11
        expected = {"out": (case.q, value, _slack(case, value))}
        yield Launch(bound, (4 * 1024, value.shape[2], 1), expected, group=(1024, 1, 1))


@family(rf"sdpa_vector_2pass_1{_FORM}(?P<causal>_causal)?")
def _first_pass(call: KernelCall) -> Launches:
    """Call the first pass: the largest score, the sum of exponentials and the values of each block of keys."""
    keys = 300
    blocks = [[place for place in range(keys) if place // _AT_ONCE % _BLOCKS == block] for block in range(_BLOCKS)]
    for case, mask in _problems(call, keys):
        largest = torch.stack([case.scores[..., block].amax(-1) for block in blocks], -1)
        weights = [
            (case.scores[..., block] - largest[..., place : place + 1]).exp().nan_to_num(0.0)
            for place, block in enumerate(blocks)
        ]
        largest = largest.masked_fill(largest == -torch.inf, _NO_KEY)
        sums = torch.stack([weight.sum(-1) for weight in weights], -1)
        wide = case.v.double().repeat_interleave(2, 1)
        values = torch.stack([weight @ wide[:, :, block] for weight, block in zip(weights, blocks, strict=True)], -2)
        moved = _score_slack(case).expand_as(largest)
        value_slack = (sums * moved)[..., None] * wide.abs().amax() + 1e-4
        value_slack = value_slack + values.abs() * rounding(case.q.dtype)
        yield Launch(
            _bind_few_queries(case, mask), (4 * 256, case.q.shape[2], _BLOCKS), {"maxs": (case.q, largest, moved),
            "sums": (case.q, sums, sums * moved), "out": (case.q, values, value_slack)}, group=(256, 1, 1)
        )  # fmt: skip


@family(r"sdpa_vector_2pass_2_{float}_(?P<v>\d+)")
def _second_pass(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call the second pass: the blocks of the first one become the result."""
    size = int(call["v"])
    heads, queries = 3, 2
    partials = random((heads, queries, _BLOCKS, size), call.dtype("partials"), 1)
    largest = random((heads, queries, _BLOCKS), call.dtype("maxs"), 2) * 3
    sums = random((heads, queries, _BLOCKS), call.dtype("sums"), 3).abs() + 0.5
    largest[0, 0, 5], sums[0, 0, 5], partials[0, 0, 5] = -torch.inf, 0, 0  # a block without keys
    factors = (largest.double() - largest.double().amax(-1, keepdim=True)).exp()
    value = (partials.double() * factors[..., None]).sum(-2) / (sums * factors).sum(-1, keepdim=True)
    bound = {"partials": partials, "sums": sums, "maxs": largest}
    expected = {"out": (partials, value, 64 * EPS + value.abs() * rounding(dtype))}
    yield Launch(bound, (heads * 1024, queries, 1), expected, group=(1024, 1, 1))
