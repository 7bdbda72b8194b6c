"""Calls the kernels of linear algebra: LU, Cholesky and QR by their steps, triangular systems, Jacobi's methods.

The host functions are in LinearAlgebra.mm; each step of a blocked factorization is called and judged alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from opcheck.kernels.launch import KernelCall, Launch, Launches, Result, family
from opcheck.kernels.pointwise import dtype_named
from opcheck.kernels.values import fill_untouched, random, widen

#: What the error of a step on matrices of moderate values may be.
_SLACK = 2e-4
_BATCH = 2


def _whole(tensor: Tensor) -> Tensor:
    """Return memory of its own, so that a kernel may write into it."""
    return tensor.clone(memory_format=torch.contiguous_format)


# LU: a row-major matrix in place, pivots that count from one


def _size(values: Tensor) -> Tensor:
    """Return what the pivots are chosen by: of complex numbers the sum of both parts' sizes, as LAPACK does."""
    return torch.view_as_real(values).abs().sum(-1) if values.is_complex() else values.abs()


def _swap_rows(matrices: Tensor, pivots: Tensor, columns: Sequence[int] | slice, *, backwards: bool = False) -> Tensor:
    """Return matrices with pairs of rows swapped in some columns, by pivots that count from zero."""
    swapped = matrices.clone()
    for matrix, order in zip(swapped, pivots.tolist(), strict=True):
        steps = list(enumerate(order))
        for place, other in reversed(steps) if backwards else steps:
            rows = matrix[[other, place]]
            matrix[place, columns], matrix[other, columns] = rows[0, columns], rows[1, columns]
    return swapped


def _step(result: Result, params: Sequence[int], grid: Sequence[int], group: Sequence[int], **bound: Any) -> Launch:
    """Return the launch of a step that changes the matrices ``result`` shows, with the other arguments bound."""
    bound |= {"A": _whole(result[0]), "dims": result[0].shape[1:], "params": params}
    return Launch(bound, grid, {"A": result}, group=group)


def _draw_pivots(low: int, high: int, count: int) -> Tensor:
    return torch.randint(low, high, (_BATCH, count), generator=torch.Generator().manual_seed(count))


@family(r"factorPanelLU_{wide}_(?P<rows>\d+)_(?P<width>\d+)")
def _lu_panel(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for columns that begin in the middle; each thread has 1, 2 or 4 rows."""
    rows, width = int(call["rows"]), int(call["width"])
    for (m, n), start in (((75, 60), 16), ((70, 45), 45 - width // 2)):
        operand = random((_BATCH, m, n), dtype, m)
        columns = slice(start, min(start + width, n))
        value, placed = widen(operand), torch.zeros((_BATCH, n), dtype=torch.int32)
        # Complex pivots have the largest sum of both parts' sizes, as LAPACK chooses them.
        value[:, start:, columns], order = torch.linalg.lu_factor(value[:, start:, columns])
        placed[:, columns] = order + start
        threads, none = math.ceil((m - start) / rows / 32) * 32, torch.zeros(_BATCH)
        bound = {"pivots": torch.zeros_like(placed), "info": none.int()}
        launch = _step((operand, value, _SLACK), (start, 0, 0, 0), (_BATCH * threads, 1, 1), (threads, 1, 1), **bound)
        expected = {**launch.expected, "pivots": (operand, placed), "info": (operand, none)}
        yield msgspec.structs.replace(launch, expected=expected)


@family(r"laswpGatherLU_{wide}")
def _lu_swaps(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for two ranges of columns around the factored columns; the host begins at multiples of four."""
    (m, n), start, count = (80, 90), 8, 20
    operand = random((_BATCH, m, n), dtype, 1)
    ranges = [*range(start), *range(start + count, n)]
    order = torch.arange(m).repeat(_BATCH, 1)
    order[:, start : start + count] = _draw_pivots(0, m - start - count, count) + torch.arange(count) + start
    value = widen(_swap_rows(operand, order, ranges))
    grid = (-(-len(ranges) // (32 if dtype.is_complex else 64)) * 256, _BATCH, 1)  # so many columns a threadgroup
    around = (0, start, start + count, n)
    yield _step((operand, value), (start, count, 0, 0), grid, (256, 1, 1), pivots=(order + 1).int(), w=around)


@family(r"trsm(?:Panel|DiagSolve)LU_{wide}_(?:(?P<size>\d+)|(?P<side>lower|upper)_(?P<unit>unit|nonunit))")
def _lu_triangle(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Solve a triangular block on the diagonal, of the largest and of a smaller size, for the columns to its right."""
    size, lower, m, start = int(call["size"] or 32), call["side"] != "upper", 60, 4
    for count, n in ((size, 180), (size - 3, 77)):
        operand = random((_BATCH, m, n), dtype, 1) / 4
        block, columns = slice(start, start + count), slice(start + count, n - 1)
        operand[:, block, block] += 2
        value = widen(operand)
        triangle, right = value[:, block, block], value[:, block, columns]
        triangle, unit = triangle.tril() if lower else triangle.triu(), call["unit"] != "nonunit"
        value[:, block, columns] = torch.linalg.solve_triangular(triangle, right, upper=not lower, unitriangular=unit)
        grid = (_BATCH * 128, -(-(columns.stop - columns.start) // 128))
        result = operand, value, _SLACK * (1 + value.abs())
        yield _step(result, (start, columns.start, columns.stop, count), grid, (128, 1))


@family(r"gemm(?:SimdLU|TiledLU_{wide})")
def _lu_update(call: KernelCall) -> Launches:
    """Call the update of the rest, which subtracts the product of the factored columns and rows."""
    operand = random((_BATCH, 75, 150), dtype_named(call["a"] or "float"), 1)
    rows, columns, inner = slice(21, 72), slice(30, 145), slice(3, 21)
    wide, value = widen(operand), widen(operand)
    value[:, rows, columns] -= wide[:, rows, inner] @ wide[:, inner, columns]
    window = (rows.start, rows.stop, columns.start, columns.stop)
    inside = (inner.start, inner.stop - inner.start, 0, 0)
    height, width = rows.stop - rows.start, columns.stop - columns.start
    grid, group = (-(-width // 64) * 128, -(-height // 32), _BATCH), (128, 1, 1)
    if call["a"]:
        grid, group = (-(-width // 16) * 16, -(-height // 16) * 16, _BATCH), (16, 16, 1)
    yield _step((operand, value, _SLACK), window, grid, group, win=window, kwin=inside, w=inside)


@family(r"transposeInPlaceLU_{wide}")
def _lu_transpose(_call: KernelCall, dtype: torch.dtype) -> Launches:
    operand, tiles = random((_BATCH, 75, 75), dtype, 1), -(-75 // 32)
    result = operand, widen(operand.transpose(1, 2).contiguous())
    yield _step(result, (), (tiles * 32, tiles * 8, _BATCH), (32, 8, 1))


@family(r"luApplyPivotsRHS_{wide}")
def _lu_right_side(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with the right side behind the factors, for its solution and that of the adjoint."""
    size, columns = 40, 7
    operand, pivots = random((_BATCH, size, size + columns), dtype, 1), _draw_pivots(1, size + 1, size)
    for backwards in (0, 1):
        value = widen(_swap_rows(operand, pivots - 1, slice(size, None), backwards=bool(backwards)))
        params, grid = (size, columns, size, backwards), (_BATCH * columns, 1, 1)
        yield _step((operand, value), params, grid, (columns, 1, 1), pivots=pivots.int())


#: Threads of the kernels that factor a tall panel a column at a time, and simdgroups of a threadgroup.
_STREAM, _STREAM_SIMDGROUPS = 256, 8


@family(r"luStreamUpdate_{wide}")
def _lu_stream_update(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call a column's update with the search for the next pivot."""
    (m, n), start, column = (150, 60), 8, 5
    operand, pivot = random((_BATCH, m, n), dtype, 1), start + column
    value = widen(operand)
    factors = value[:, pivot + 1 :, pivot] / value[:, pivot, pivot, None]
    value[:, pivot + 1 :, pivot] = factors
    value[:, pivot + 1 :, pivot + 1 : start + 32] -= factors[..., None] * value[:, pivot, None, pivot + 1 : start + 32]
    rows = [matrix[pivot, start : start + 32] for matrix in operand]
    scratch = _scratch([torch.zeros(0)] * _BATCH, [[]] * _BATCH, rows)
    groups, none = -(-(m - pivot - 1) // (_STREAM_SIMDGROUPS * 2)), torch.zeros((_BATCH, n), dtype=torch.int32)
    grid, rest = (groups * _STREAM, _BATCH, 1), {"scratch": scratch, "pivots": none, "info": none[:, 0].clone()}
    result = operand, value, _SLACK * (1 + value.abs())
    yield _step(result, (start, column, 2, 0), grid, (_STREAM, 1, 1), **rest)


@family(r"luStreamPivot_{wide}")
def _lu_stream_pivot(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call the choice of a column's pivot and its row's swap."""
    (m, n), start, column = (150, 60), 8, 5
    operand, pivot = random((_BATCH, m, n), dtype, 1), start + column
    wide = widen(operand)
    sizes = _size(wide[:, pivot:, pivot])
    chosen = sizes.argmax(1) + column
    parts = [part.split(20) for part in sizes]
    largest = [torch.stack([part.amax() for part in each]).float() for each in parts]
    places = [[int(part.argmax()) + 20 * i + column for i, part in enumerate(each)] for each in parts]
    order = torch.arange(m).repeat(_BATCH, 1)
    order[:, pivot] = start + chosen
    value, pivots = _swap_rows(wide, order, slice(start, start + 32)), torch.zeros((_BATCH, n), dtype=torch.int32)
    pivots[:, pivot] = (start + chosen + 1).int()
    bound = {
        "A": _whole(operand), "pivots": torch.zeros_like(pivots), "dims": (m, n),
        "params": (start, column, len(places[0]), 0), "info": torch.zeros(_BATCH, dtype=torch.int32),
        "scratch": _scratch(largest, places, [torch.zeros(32).to(dtype)] * _BATCH),
    }  # fmt: skip
    expected = {"A": (operand, value), "pivots": (operand, pivots)}
    yield Launch(bound, (_BATCH * _STREAM, 1, 1), expected, group=(_STREAM, 1, 1))


def _scratch(largest: list[Tensor], places: list[list[int]], rows: list[Tensor]) -> Tensor:
    """Return LUStreamScratch of each matrix: the largest of each part, where it is, the pivot's row."""
    memory = torch.zeros((len(rows), _STREAM * 8 + 32 * rows[0].element_size()), dtype=torch.uint8)
    for area, values, indices, row in zip(memory, largest, places, rows, strict=True):
        area[: values.numel() * 4] = values.float().view(torch.uint8)
        listed = torch.tensor(indices, dtype=torch.int32).view(torch.uint8)
        area[_STREAM * 4 : _STREAM * 4 + listed.numel()] = listed
        area[_STREAM * 8 :] = _whole(row).view(torch.uint8)
    return memory


@family(r"luInvSmall_(?P<size>\d)")
def _small_inverse(call: KernelCall) -> Launches:
    size, count = int(call["size"]), 9
    operand = random((count, size, size), torch.float32, 1) + 2 * torch.eye(size)
    value, named = torch.linalg.inv(operand.double()), call.buffers[-1].name
    names = (f"{name}_{kind}stride" for name in "AX" for kind in "brc")
    strides = call.struct(named, **dict(zip(names, operand.stride() * 2, strict=True)))
    bound = {"A": operand, "info": torch.ones(count, dtype=torch.int32), named: strides}
    slack, none = value.abs().amax() * 1e-4, torch.zeros(count)
    yield Launch(bound, count, {"X": (operand, value, slack), "info": (operand, none)})


@family(r"unpack_pivots_{whole}_{index}")
def _unpack_pivots(call: KernelCall, dtype: torch.dtype, of_pivots: torch.dtype) -> Launches:
    size = 12
    pivots = _draw_pivots(1, size + 1, size)
    value = _swap_rows(torch.arange(size).expand(_BATCH, size)[..., None], pivots - 1, [0])[..., 0]
    params = call.struct("params", perm_batch_stride=size, pivots_batch_stride=size, dim_size=size)
    bound = {"perm": torch.arange(size).repeat(_BATCH, 1).to(dtype), "pivots": pivots.to(of_pivots), "params": params}
    yield Launch(bound, _BATCH, {"perm": (pivots, value)})


@family("applyPivots")
def _permutation(_call: KernelCall) -> Launches:
    """Call on unit matrices, whose rows are swapped from the last pivot back; these pivots count from zero."""
    rows, count = 9, 6
    pivots, unit = _draw_pivots(0, rows, count), torch.eye(rows).repeat(_BATCH, 1, 1)
    value = _swap_rows(unit, pivots, slice(None), backwards=True)
    bound = {"P": unit, "pivots": pivots.int(), "R": rows, "K": count}
    yield Launch(bound, (_BATCH * 32, 1, 1), {"P": (value, value)}, group=(32, 1, 1))


# Triangular systems of small size


@family(r"triangular_solve_(?:small_(?P<general>general_)?(?P<size>\d+)|{wide})")
def _triangular(call: KernelCall) -> Launches:
    """Call with a matrix of just the size: the general form takes any triangle, the small one a unit lower one."""
    dtype, columns = dtype_named(call["a"] or "float"), 24
    n = int(call["size"] or 5)
    ways = [(1, 0, 0, 0), (0, 0, 0, 0)] if call["a"] else [(0, 0, 1, 0)]
    if call["general"]:
        ways = [(1, 0, 0, 0), (0, 1, 1, 1), (0, 0, 0, 1)]
    for upper, transpose, unit, by_column in ways:
        operand = random((_BATCH, n, n), dtype, n) / n + 2 * torch.eye(n)
        operand = operand.triu() if upper else operand.tril()
        right, wide = random((_BATCH, n, columns), dtype, 2), widen(operand)
        value = torch.linalg.solve_triangular(
            wide.transpose(1, 2) if transpose else wide, widen(right),
            upper=bool(upper) != bool(transpose), unitriangular=bool(unit),
        )  # fmt: skip
        if by_column:
            right, value = (t.transpose(1, 2).contiguous() for t in (right, value))
        params = call.fit("p", nbatch=_BATCH, n=n, k=columns, upper=upper, transpose=transpose, unit=unit,
            b_col_major=by_column, x_col_major=by_column)  # fmt: skip
        # The other kernels have a simdgroup for each column.
        threads, group = (_BATCH * columns * 32, 32) if call["a"] else (_BATCH * 4 * n, 4 * n)
        bound = {"a": operand, "b": right, "A": operand, "B": right, "p": params}
        expected = {"X" if call["a"] else "x": (operand, value, 1e-5 if call["a"] else _SLACK)}
        yield Launch(bound, threads, expected, group=group, shared={"xs": 4096, "red": 4096})


# Cholesky: blocks of 32 by threadgroups of 32 by 8, panels of 96.  `L` is stored by columns.


def _definite(dtype: torch.dtype, size: int) -> Tensor:
    drawn = widen(random((_BATCH, size, size), dtype, size)) / size**0.5
    product: Tensor = drawn @ drawn.mH
    return product + torch.eye(size)


def _cholesky(
    call: KernelCall, operand: Tensor, value: Tensor, block: int, step: int, groups: int, threads: tuple[int, int, int]
) -> Launch:
    """Call a step of a factorization with so many groups a matrix, and compare the lower triangles."""
    is_lower = call["form"] == "L"

    def turn(matrix: Tensor) -> Tensor:
        return matrix.transpose(1, 2) if is_lower else matrix

    matrix = _whole(turn(operand)).to(dtype_named(call["a"] or "float"))
    info = torch.zeros(_BATCH, dtype=torch.int32)
    bound = {"A": matrix, "info": info, "N": operand.shape[-1], "NB": block, "k": step}
    expected = {"lower": (operand, value.tril(), _SLACK)}
    grid, derived = (_BATCH * threads[0], groups * threads[1]), {"lower": lambda bound: _whole(turn(bound["A"]).tril())}
    return Launch(bound, grid, expected, group=threads, derived=derived)


@family(r"factorDiagonal(?P<how>Block|Panel)(?P<form>[LU])(?:_{wide})?")
def _diagonal(call: KernelCall) -> Launches:
    dtype = dtype_named(call["a"] or "float")
    block, threads = (32, (32, 8, 1)) if call["how"] == "Block" else (96, (96, 1, 1))
    for size, step in ((block * 2 + 6, 1), (block * 2 + 6, 2), (block - 5, 0)):
        operand = _definite(dtype, size)
        value = operand.clone()
        part = slice(step * block, min(size, (step + 1) * block))
        value[:, part, part] = torch.linalg.cholesky(operand[:, part, part])
        yield _cholesky(call, operand, value, block, step, 1, threads)


@family(r"apply(?P<how>|Panel)TRSM(?P<form>[LU])(?:_{wide})?")
def _below_diagonal(call: KernelCall) -> Launches:
    dtype = dtype_named(call["a"] or "float")
    block, threads = (96, (128, 1, 1)) if call["how"] else (32, (32, 8, 1))
    for size in (block * 2 + 6, block + 32):
        operand = _definite(dtype, size)
        top, rest = slice(0, block), slice(block, size)
        operand[:, top, top] = torch.linalg.cholesky(operand[:, top, top])
        value = operand.clone()
        value[:, rest, top] = torch.linalg.solve_triangular(
            operand[:, top, top].mH, operand[:, rest, top], upper=True, left=False
        )
        yield _cholesky(call, operand, value, block, 0, -(-(size - block) // 32), threads)


@family(r"applySYRK(?P<form>[LU])_{wide}")
def _trailing(call: KernelCall, dtype: torch.dtype) -> Launches:
    block, size = 32, 102
    operand = _definite(dtype, size)
    top, rest = slice(0, block), slice(block, size)
    value = operand.clone()
    value[:, rest, rest] -= operand[:, rest, top] @ operand[:, rest, top].mH
    blocks = -(-(size - block) // block)
    yield _cholesky(call, operand, value, block, 0, blocks * (blocks + 1) // 2, (32, 8, 1))


# QR


def _reflector_params(call: KernelCall, operand: Tensor, tau: Tensor) -> Tensor:
    return call.struct(
        "params", num_batch_dims=1, A_sizes=operand.shape, A_strides=operand.stride(), tau_strides=tau.stride()
    )


@family(r"geqrf_(?:(?P<a>float)|panel_(?P<width>\d+))")
def _reflectors(call: KernelCall) -> Launches:
    """Call with a simdgroup for each column of a panel, or with any number of threads a matrix."""
    width = int(call["width"] or 0)
    for rows, columns in ((45, width or 20), (width + 3 if width else 20, width or 33)):
        operand = random((_BATCH, rows, columns), torch.float32, rows)
        value, tau = torch.geqrf(operand.double())
        result = fill_untouched(tau.shape, torch.float32)
        memory = _whole(operand)
        threads = 32 * (width or 8)
        yield Launch({
            "R": memory, "A": memory, "tau": result, "params": _reflector_params(call, operand, result),
            "v_work": torch.zeros(_BATCH * rows * columns)
        }, _BATCH * threads, {"A" if width else "R": (operand, value, _SLACK), "tau": (operand, tau, _SLACK)},
            group=threads)  # fmt: skip


@family(r"householder_block_{wide}")
def _reflector_block(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for both factors of a product of reflectors, 1 - W V^H, which lie by columns."""
    (rows, columns) = (45, 12)
    factored, tau = torch.geqrf(random((_BATCH, rows, columns), dtype, 1))
    factored = factored.contiguous()
    v = widen(factored).tril(-1) + torch.eye(rows, columns, dtype=widen(factored).dtype)
    w = v * widen(tau)[:, None]
    for column in range(1, columns):
        for before in reversed(range(column)):
            reflector = v[:, :, before, None]
            product = reflector.mH @ w[:, :, column, None]
            w[:, :, column] -= (widen(tau)[:, before, None, None] * reflector @ product)[..., 0]
    bound = {
        "A": factored, "tau": tau, "V": torch.zeros((_BATCH, columns, rows), dtype=dtype),
        "W": torch.zeros((_BATCH, columns, rows), dtype=dtype), "params": _reflector_params(call, factored, tau),
    }  # fmt: skip
    yield Launch(
        bound, _BATCH * columns * 64,
        {name: (factored, _whole(t.transpose(1, 2)), _SLACK) for name, t in (("V", v), ("W", w))}, group=64
    )  # fmt: skip


@family(r"orgqr_{any}")
def _orthogonal(call: KernelCall, dtype: torch.dtype) -> Launches:
    (m, n, k) = (9, 7, 5)
    single = torch.complex64 if dtype.is_complex else torch.float32
    factored, tau = torch.geqrf(random((_BATCH, m, n), single, 1))
    factored, tau = factored.contiguous().to(dtype), tau[:, :k].contiguous().to(dtype)
    value = torch.linalg.householder_product(widen(factored), widen(tau))
    square = torch.zeros((_BATCH, m, m), dtype=dtype)
    # From 2.11 on the square of m comes with it.
    params = call.fit("params", num_batch_dims=1, m=m, n=n, k=k, m2=m * m, A_strides=factored.stride(),
        tau_strides=tau.stride(), H_strides=square.stride(), H_sizes=square.shape)  # fmt: skip
    precise = dtype in {torch.float32, torch.complex64}
    slack = _SLACK if precise else 0.02 if dtype != torch.bfloat16 else 0.1
    yield Launch({
        "A": _whole(factored), "tau": tau, "H": square, "H_prod": square.clone(), "H_prod_work": square.clone(),
        "params": params
    }, _BATCH * m * m, {"A": (factored, value, slack)}, group=m * m)  # fmt: skip


# Jacobi's methods: a threadgroup a matrix, a simdgroup a pair of columns


def _jacobi(
    name: str, values: Tensor, whole: Tensor, bound: dict[str, Any], product: Callable[[Mapping[str, Tensor]], Tensor]
) -> Launch:
    """Return the launch for the values of that name, whose product with the vectors is a whole matrix."""
    operand, none = bound["A"], torch.zeros(_BATCH)
    m, n = operand.shape[1:]
    threads, width = 32 * max(1, min(32, (n + 1) // 2)), operand.element_size()
    bound |= {name: torch.zeros((_BATCH, n)), "info": torch.ones(_BATCH, dtype=torch.int32)}
    expected: dict[str, Result] = {name: (operand, values, _SLACK), "product": (operand, whole, _SLACK)}
    expected["info"] = (operand, none)
    shared = {"Atg": m * n * width, "Vtg": n * n * width, "Qtg": n * n * width}
    return Launch(bound, _BATCH * threads, expected, threads, shared, {"product": product})


@family(r"svd_jacobi_{wide}")
def _singular(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with tall matrices, and with one whose adjoint is tall; its vectors have signs of their own."""
    for (m, n), transposed, staged in (((12, 7), 0, 1), ((9, 9), 0, 0), ((11, 6), 1, 1)):
        operand = random((_BATCH, m, n), dtype, m)
        left, right = ((n, n), (n, m)) if transposed else ((m, n), (n, n))
        u, v = (torch.zeros((_BATCH, *reversed(shape)), dtype=dtype) for shape in (left, right))
        params = call.struct("params", m=m, n=n, max_sweeps=30, tol=1e-6, u_ld=left[0], u_bstride=left[0] * left[1],
            v_ld=right[0], v_bstride=right[0] * right[1], compute_uv=1, transposed=transposed,
            stage_v=staged)  # fmt: skip

        def product(bound: Mapping[str, Tensor]) -> Tensor:
            u, v = (widen(bound[name]).transpose(1, 2) for name in "UV")
            return ((u * bound["S"].double()[:, None]) @ v).to(bound["U"].dtype)

        whole = widen(operand.mH if transposed else operand)
        bound = {"A": operand, "U": u, "V": v, "Vacc": torch.zeros((_BATCH, n, n), dtype=dtype), "params": params}
        yield _jacobi("S", torch.linalg.svdvals(widen(operand)), whole, bound, product)


@family(r"eigh_jacobi_{wide}")
def _eigenvalues(call: KernelCall, dtype: torch.dtype) -> Launches:
    for size, upper in ((8, 0), (13, 1)):
        drawn = random((_BATCH, size, size), dtype, size)
        operand = (drawn + drawn.mH) / 2
        params = call.struct("params", n=size, max_sweeps=80, tol=1e-6, compute_v=1, upper=upper)

        def product(bound: Mapping[str, Tensor]) -> Tensor:
            q = widen(bound["Q"]).transpose(1, 2)
            return ((q * bound["W"].double()[:, None]) @ q.mH).to(bound["Q"].dtype)

        bound = {"A": _whole(operand.transpose(1, 2)), "Q": torch.zeros_like(operand), "params": params}
        yield _jacobi("W", torch.linalg.eigvalsh(widen(operand)), widen(operand), bound, product)
