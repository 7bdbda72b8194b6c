"""Calls the kernels of matrix products: plain and batched, by groups, of packed integers, of vectors, of attention."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opcheck.kernels import judging, values
from opcheck.kernels.host.host_call import round_up
from opcheck.kernels.host.layer_calls import bind_few_queries
from opcheck.kernels.judging import EPS, rounding, summed_slack
from opcheck.kernels.launch import KernelCall, Launch, Launches, family
from opcheck.kernels.pointwise import dtype_named
from opcheck.kernels.values import random, widen


def _product(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the product of two matrices, and that of their absolute values, which bounds the rounding of sums."""
    first, second = widen(left), widen(right)
    return first @ second, first.abs().double() @ second.abs().double()


def _scaled_sum(product: tuple[Tensor, Tensor], bias: Tensor, beta: float = 3) -> tuple[Tensor, Tensor]:
    """Return two times a product plus a multiple of the bias, and the same of the absolute values."""
    value, size = product
    return 2 * value + beta * widen(bias), 2 * size + beta * widen(bias).abs()


# Quantized products: Quantized.mm


@family(r"(?P<large>large_m_)?int8pack_m[mv]_{float}")
def _int8(call: KernelCall, dtype: torch.dtype) -> Launches:
    rows, depth, columns = (35, 64, 128) if call["large"] else (3, 64, 16)
    operand, scales = random((rows, depth), dtype, 1), random((columns,), dtype, 2)
    weight = torch.randint(-128, 128, (columns, depth), generator=values.generator(1)).char()
    value, size = (part * scale for part, scale in zip(
        _product(operand, weight.double().T), (scales.double(), scales.double().abs()), strict=True
    ))  # fmt: skip
    # A denormal scale may be flushed, and takes the whole column with it.
    slack = summed_slack(size, value, dtype) + value.abs() * judging.is_denormal(scales)
    grid, group, shared = (-(-rows // 32) * 128, -(-columns // 64), 1), 128, 12288
    if not call["large"]:
        grid, group, shared = (columns // 8 * 64, rows, 1), 64, 64
    bound = {"A": operand, "B": weight, "scalesAndZeros": scales, "sizes": (rows, depth, columns, 0)}
    expected = {"outputData": (operand, value, slack)}
    yield Launch(bound, grid, expected, group=(group, 1, 1), shared={"shared_memory": shared})


#: The side of the tiles that a threadgroup multiplies (LinearAlgebra.metal, TILE_DIM).
_TILE = 16


def _scales(call: KernelCall, dtype: torch.dtype, alpha: float, beta: float) -> Tensor:
    """Return alpha and beta in the type of the accumulator, which is wider for half types and integers."""
    kinds = [dtype_named(field.type) for field in call.fields("alpha_beta")]
    return torch.tensor([alpha, beta]).to(kinds[0] if kinds else dtype)


@family(r"(?P<op>matmul|addmm|int_mm)_{any}")
def _matmul(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with the left matrix transposed: strides are in elements, of rows and columns."""
    result = torch.int32 if call["op"] == "int_mm" else dtype
    for m, k, n in ((19, 33, 17), (1, 5, 40)):
        left = random((k, m), dtype, 1).T
        right = random((k, n), torch.int8 if call["op"] == "int_mm" else dtype, 2)
        if dtype.is_floating_point and m > 1:
            left[0, 0], right[0] = torch.inf, 1.0  # which the zeros around a tile must not meet
        bias = random((m, n), dtype, 3)
        value, size = _product(left, right)
        tensors = [left, right, value]
        if call["op"] == "addmm":
            value, size = _scaled_sum((value, size), bias)
            tensors.append(bias)
        bound = {
            "mat1Data": left, "mat2Data": right, "biasData": bias, "sizes": (m, k, n, 0),
            "strides": [stride for t in tensors for stride in t.stride()]
        }  # fmt: skip
        if call["op"] == "addmm":
            bound["alpha_beta"] = _scales(call, dtype, 2, 3)
        expected = {"outputData": (left, value, summed_slack(size, value, result))}
        yield Launch(bound, (round_up(n, _TILE), round_up(m, _TILE)), expected, group=(_TILE, _TILE))


@family(r"naive_(?P<op>bmm|addbmm|baddbmm)_{any}")
def _batched_product(call: KernelCall, dtype: torch.dtype) -> Launches:
    summed, plain = call["op"] == "addbmm", call["op"] == "bmm"
    batch, m, k, n = 3, 19, 33, 17
    left, right = random((batch, m, k), dtype, 1), random((batch, k, n), dtype, 2)
    if dtype.is_floating_point:
        left[0, 0, 0], right[0, 0] = torch.inf, 1.0
    bias = random((m, n) if summed else (batch, m, n), dtype, 3)
    value, size = _product(left, right)
    if summed:
        value, size = value.sum(0), size.sum(0)
    if not plain:
        value, size = _scaled_sum((value, size), bias)
    # Innermost first; the missing batch dimension has a stride of 0.
    tensors = (left, right, value) if plain else (left, right, value, bias)
    strides = [stride for t in tensors for stride in (*reversed(t.stride()), 0)[:3]]
    yield Launch({
        "mat1Data": left, "mat2Data": right, "biasData": bias, "alpha_beta": _scales(call, dtype, 2, 3),
        "strides": strides, "sizes": (m, k, n, batch)
    }, (round_up(n, _TILE), round_up(m, _TILE), 1 if summed else batch),
        {"outputData": (left, value, summed_slack(size, value, dtype))}, group=(_TILE, _TILE, 1))  # fmt: skip


@family(
    r"gemv_(?P<how>nt|t|t2d)_{any}_(?P<simd>\d+)_(?P<vector>\d+)_(?P<end>ab|none)(?:_(?P<x>xs|xc))?"
    r"(?P<strided>_strided)?(_i64)?"
)
def _matrix_times_vector(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a simdgroup for each row of the matrix, or for a share of the depth of 32 columns or more.

    The vector's stride is 1 in the forms `xc`.
    """
    simdgroups, by_row = int(call["simd"]), call["how"] == "nt"
    step = 2 if call["strided"] and not by_row else 1
    places, beta = (11, 0.5) if by_row else (72, 3)
    covered = {"nt": simdgroups, "t2d": 32, "t": 32 * int(call["vector"])}[call["how"]]
    for depth in (1, 37, 300):
        matrix = random((places, depth, step) if by_row else (depth, places, step), dtype, 1)
        vector = random((depth, 1 if call["x"] == "xc" else 2), dtype, 2)
        if dtype.is_floating_point and not by_row:
            matrix[0, 0, 0] = torch.inf
        bias = random((places,), dtype, 3)
        rows = matrix[..., 0] if by_row else matrix[..., 0].T
        value, size = _product(rows, vector[:, 0])
        if call["end"] == "ab":
            value, size = _scaled_sum((value, size), bias, beta)
        dims = call.struct("gP", n=places, K=depth, ld=matrix.stride(0), ms=step, xs=vector.stride(0), bias_r=1,
            bias_c=1)  # fmt: skip
        yield Launch({
            "A": matrix, "B": matrix, "x": vector, "gP": dims, "bias": bias, "alpha_beta": _scales(call, dtype, 2, beta)
        }, -(-places // covered) * simdgroups * 32, {"y": (matrix, value, summed_slack(size, value, dtype))},
            group=simdgroups * 32)  # fmt: skip


@family(r"compute_linear_combination_{any}_u(?:32|64)")
def _linear_combination(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call it for the Taylor polynomials of matrix_exp: it adds to the output; strides are in bytes."""
    rows, terms, inner = 4, 5, 7
    # Complex matrices have real coefficients.
    operand = random((terms, inner), dtype, 1)
    weights = random((rows, terms), torch.float32 if dtype.is_complex else dtype, 2)
    start = random((rows, inner), dtype, 3)
    value = widen(start) + widen(weights).to(widen(start).dtype) @ widen(operand)
    size = widen(start).abs() + widen(weights).abs() @ widen(operand).abs()
    width = operand.element_size()
    yield Launch({
        "out_ptr": start.clone(), "in_ptr": operand, "coeff_ptr": weights, "sizes": (inner, rows),
        "out_strides": (width, inner * width), "in_strides": (width, 0),
        "coeff_strides": (0, weights[0].numel() * weights.element_size()), "params": (inner, 1, terms, 2)
    }, rows * inner, {"out_ptr": (operand, value, summed_slack(size, value, dtype) * 4)}, group=32)  # fmt: skip


# Matrices by groups of rows: GroupedMM.mm


@family(r"grouped_mm_(?P<mode>few_rows|rows|k)_{float}(?:_bm(?P<bm>\d+))?_u(?:32|64)")
def _grouped_product(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with one empty group; an output tile has 64 columns."""
    mode, rows = call["mode"], int(call["bm"] or 1)
    n, k = 70, 40
    ends = [2, 2, 5, 6] if mode == "few_rows" else [20, 20, 37, 90]
    groups = len(ends)
    slices = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    if mode == "k":
        m, k = 21, ends[-1]
        left, right = random((m, k), dtype, 1), random((k, n), dtype, 2)
        pairs = [(left[:, part], right[part]) for part in slices]
        join = torch.stack
        grid = (-(-n // 64), -(-m // rows), groups)
    else:
        m = ends[-1]
        left, right = random((m, k), dtype, 1), random((groups, n, k), dtype, 2).transpose(1, 2)
        pairs = [(left[part], right[group]) for group, part in enumerate(slices)]
        join = torch.cat
        grid = (-(-n // 64), -(-m // rows) + groups, 1)
    value, size = (join(parts) for parts in zip(*[_product(a, b) for a, b in pairs], strict=True))
    simdgroups = 16 if mode == "few_rows" else 2 if rows == 16 else 4
    if mode == "few_rows":
        grid = (-(-n // simdgroups), m, 1)
    batched = value if mode == "k" else right
    params = call.struct("params", m=m, n=n, k=k, groups=groups, a_stride_m=left.stride(0), a_stride_k=1,
        b_stride_k=right.stride(-2), b_stride_n=right.stride(-1), out_stride_m=n, out_stride_n=1,
        batch_stride=batched.stride(0))  # fmt: skip
    bound = {"mat_a": left, "mat_b": right, "offsets": torch.tensor(ends, dtype=torch.int32), "params": params}
    expected = {"output": (left, value, summed_slack(size, value, dtype))}
    yield Launch(bound, (grid[0] * simdgroups * 32, *grid[1:]), expected, group=(simdgroups * 32, 1, 1))


# Packed integers: Quantized.mm


@family(r"int4pack_mm_(?P<group>\d+)_{float}")
def _int4(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with packed weights; the lower half of each byte comes first, each group has a scale and a zero."""
    group = int(call["group"])
    rows, depth, columns = 3, 512, 8
    operand = random((rows, depth), dtype, 1)
    scales = random((depth // group, columns, 2), dtype, 2)
    weight = torch.randint(0, 16, (columns, depth), generator=values.generator(1))
    scale, zero = (scales[..., place].double().T.repeat_interleave(group, 1) for place in (0, 1))
    wide = (weight - 8) * scale + zero
    value, size = (operand.double() @ wide.T, operand.double().abs() @ ((weight + 8) * scale.abs() + zero.abs()).T)
    packed = (weight[:, ::2] | weight[:, 1::2] << 4).to(torch.uint8)
    yield Launch({
        "A": operand, "B": packed, "scales_and_zeros": scales, "sizes": (rows, depth, columns, 0)
    }, (columns // 4 * 32, 1, rows),
        {"output_data": (operand, value, size * (16 * EPS + 2 * (rounding(dtype) if dtype != torch.float32 else 0)))},
        group=(32, 1, 1))  # fmt: skip


@family("weight_to_int4pack")
def _int4_weight(_call: KernelCall) -> Launches:
    """Call with eight values a number, the first in its lowest byte's upper half; they are swapped by pairs."""
    weight = torch.randint(-(2**31), 2**31, (5, 6), generator=values.generator(1)).to(torch.int32)
    operand = weight.view(torch.uint8).long()
    value = operand % 16 * 16 + operand // 16
    yield Launch({"W": weight, "sizes": (5, 6)}, (5, 6), {"outputData": (operand, value)})


@family(r"scaled_mm_(?:few_rows_(?P<rows>\d)_)?(?P<a>float|half|bfloat|float8)")
def _scaled_product(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with scales of the whole matrices and of rows and columns; the second matrix is stored transposed."""
    few = call["rows"]
    m, k, n = (int(few) if few else 35), 80, 40
    for each_row, bias_dtype in ((0, torch.float16), (1, torch.bfloat16), (1, None)):
        left = random((m, k), torch.float8_e4m3fn, 1)
        right = random((n, k), torch.float8_e4m3fn, 2).T
        scale_left = random((m if each_row else 1,), torch.float32, 3)
        scale_right = random((n if each_row else 1,), torch.float32, 4)
        bias = random((n,), bias_dtype or torch.float16, 5)
        scale = scale_left.double()[:, None] * scale_right.double()
        added = bias.double() if bias_dtype else 0.0
        value = left.double() @ right.double() * scale + added
        size = left.double().abs() @ right.double().abs() * scale.abs() + bias.double().abs()
        params = call.struct("p", m=m, n=n, k=k, a_row_stride=k, a_col_stride=1, b_row_stride=1, b_col_stride=k,
            out_row_stride=n, out_col_stride=1, rowwise=each_row, has_bias=int(bias_dtype is not None),
            bias_bfloat16=int(bias_dtype == torch.bfloat16))  # fmt: skip
        grid = (n // 4 * 128,) if few else (-(-n // 32) * 128, -(-m // 32))
        yield Launch({
            "a": left, "b": right, "out": torch.zeros((m, n)).to(dtype), "scale_a": scale_left, "scale_b": scale_right,
            "bias": bias, "p": params
        }, grid, {"out": (left.float(), value, summed_slack(size, value, dtype))}, group=(128, 1))  # fmt: skip


# Attention that shares the work of a query: by blocks of queries, and in two passes.  The host functions are in
# Attention.mm; the kernels in PrefillAttention.h and DecodeAttention.h.

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


def _bind(case: AttentionProblem, mask: str) -> dict[str, Any]:
    """Return the buffers of the kernels of few queries, without a mask with memory that is not read."""
    of_case, scale = None if mask == "none" else case.mask, case.q.shape[-1] ** -0.5
    return bind_few_queries(case.q, case.k, case.v, of_case, scale) | {"mask": case.mask}


@family(rf"sdpa_vector{_FORM}(?P<causal>_causal)?")
def _few_queries(call: KernelCall) -> Launches:
    for case, mask in _problems(call, 40):
        value = case.result
        bound = _bind(case, mask)
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
            _bind(case, mask), (4 * 256, case.q.shape[2], _BLOCKS), {"maxs": (case.q, largest, moved),
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
