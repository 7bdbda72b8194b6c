"""Calls the kernels of matrix products: plain and batched, by groups, of packed integers, matrix times vector."""

import torch
from torch import Tensor

from opcheck.kernels import judging, values
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


def _rounded_up(extent: int, to: int) -> int:
    return -(-extent // to) * to


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
        yield Launch(bound, (_rounded_up(n, _TILE), _rounded_up(m, _TILE)), expected, group=(_TILE, _TILE))


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
    }, (_rounded_up(n, _TILE), _rounded_up(m, _TILE), 1 if summed else batch),
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
