"""Calls the kernels of linear algebra: LU, Cholesky and QR by their steps, triangular systems, Jacobi's methods.

The host functions are in LinearAlgebra.mm; each step of a blocked factorization is called and judged alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from opcheck.kernels.drivers.products import taken
from opcheck.kernels.launch import (
    Launch,
    dtype_named,
    family,
    random,
    struct,
    untouched,
    widened,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import numbers

_DTYPES = r"(?P<a>float|float2)"
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


def _factored(matrix: Tensor, start: int, width: int) -> tuple[Tensor, Tensor]:
    """Return a matrix with some of its columns factored from a diagonal element on, and the pivots of them."""
    matrix, pivots = matrix.clone(), []
    for column in range(start, start + width):
        pivot = column + int(_size(matrix[column:, column]).argmax())
        pivots.append(pivot + 1)
        rows = matrix[[pivot, column], start : start + width]
        matrix[[column, pivot], start : start + width] = rows
        factors = matrix[column + 1 :, column] / matrix[column, column]
        matrix[column + 1 :, column] = factors
        right = slice(column + 1, start + width)
        matrix[column + 1 :, right] -= factors[:, None] * matrix[column, right]
    return matrix, torch.tensor(pivots, dtype=torch.int32)


@family(rf"factorPanelLU_{_DTYPES}_(?P<rows>\d+)_(?P<width>\d+)")
def _lu_panel(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call for columns that begin in the middle; each thread has one, two or four rows."""
    dtype, rows, width = dtype_named(match["a"]), int(match["rows"]), int(match["width"])
    for (m, n), start in (((75, 60), 16), ((70, 45), 45 - width // 2)):
        given = random((_BATCH, m, n), dtype, m)
        taken_columns = min(width, n - start)
        steps = [_factored(widened(matrix), start, taken_columns) for matrix in given]
        pivots = torch.zeros((_BATCH, n), dtype=torch.int32)
        placed = pivots.clone()
        placed[:, start : start + taken_columns] = torch.stack([pivot for _, pivot in steps])
        value = torch.stack([matrix for matrix, _ in steps])
        threads = math.ceil((m - start) / rows / 32) * 32
        bound = {
            "A": _whole(given), "pivots": pivots, "info": torch.zeros(_BATCH, dtype=torch.int32),
            "dims": numbers(m, n), "params": numbers(start, 0, 0, 0),
        }  # fmt: skip
        yield Launch(
            taken(kernel, bound), (_BATCH * threads, 1, 1), (threads, 1, 1),
            {"A": (given, value, _SLACK), "pivots": (given, placed, 0.0), "info": (given, torch.zeros(_BATCH), 0.0)},
        )  # fmt: skip


@family(rf"laswpGatherLU_{_DTYPES}")
def _lu_swaps(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call for two ranges of columns beside the factored ones; the host begins at multiples of four."""
    dtype, (m, n), start, count = dtype_named(match["a"]), (80, 90), 8, 20
    given = random((_BATCH, m, n), dtype, 1)
    pivots = torch.zeros((_BATCH, m), dtype=torch.int32)
    picked = torch.randint(
        0, m - start - count, (_BATCH, count), generator=torch.Generator().manual_seed(1)
    )
    pivots[:, start : start + count] = picked + torch.arange(count) + start + 1
    value = given.clone()
    ranges = [*range(start), *range(start + count, n)]
    for matrix, order in zip(value, pivots, strict=True):
        for place in range(start, start + count):
            other = int(order[place]) - 1
            rows = matrix[[other, place]][:, ranges]
            matrix[place, ranges], matrix[other, ranges] = rows[0], rows[1]
    bound = {
        "A": _whole(given), "pivots": pivots, "dims": numbers(m, n), "params": numbers(start, count, 0, 0),
        "w": numbers(0, start, start + count, n),
    }  # fmt: skip
    width = 32 if dtype.is_complex else 64  # columns of a threadgroup
    yield Launch(
        taken(kernel, bound), (-(-len(ranges) // width) * 256, _BATCH, 1), (256, 1, 1),
        {"A": (given, widened(value), 0.0)},
    )  # fmt: skip


@family(rf"trsmPanelLU_{_DTYPES}_(?P<size>\d+)")
def _lu_triangle(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a block that is as large as it may be, and with a smaller one."""
    dtype, size = dtype_named(match["a"]), int(match["size"])
    for count, n in ((size, 180), (size - 3, 77)):
        yield _solved_block(kernel, dtype, n, count, lower=True, unit=True)


@family(rf"trsmDiagSolveLU_{_DTYPES}_(?P<side>lower|upper)_(?P<unit>unit|nonunit)")
def _lu_solve(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for count, n in ((32, 180), (21, 77)):
        yield _solved_block(
            kernel, dtype, n, count, lower=match["side"] == "lower", unit=match["unit"] == "unit"
        )


def _solved_block(
    kernel: Kernel, dtype: torch.dtype, n: int, count: int, *, lower: bool, unit: bool
) -> Launch:
    """Solve a triangular block on the diagonal for the columns to its right."""
    m, start = 60, 4
    given = random((_BATCH, m, n), dtype, 1) / 4
    block = slice(start, start + count)
    given[:, range(start, start + count), range(start, start + count)] += 2
    columns = slice(start + count, n - 1)
    wide = widened(given)
    value = wide.clone()
    value[:, block, columns] = torch.linalg.solve_triangular(
        wide[:, block, block].tril() if lower else wide[:, block, block].triu(),
        wide[:, block, columns], upper=not lower, unitriangular=unit,
    )  # fmt: skip
    bound = {
        "A": _whole(given), "dims": numbers(m, n),
        "params": numbers(start, columns.start, columns.stop, count),
    }  # fmt: skip
    groups = -(-(columns.stop - columns.start) // 128)
    return Launch(
        taken(kernel, bound), (_BATCH * 128, groups, 1), (128, 1, 1),
        {"A": (given, value, _SLACK * (1 + value.abs()))},
    )  # fmt: skip


@family(r"gemm(?:SimdLU|TiledLU_(?P<a>float|float2))")
def _lu_update(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call the update of what is left: its product of the columns and rows that were factored goes off."""
    simd = match["a"] is None
    dtype, (m, n) = dtype_named(match["a"] or "float"), (75, 150)
    given = random((_BATCH, m, n), dtype, 1)
    rows, columns, inner = slice(21, 72), slice(30, 145), slice(3, 21)
    wide = widened(given)
    value = wide.clone()
    value[:, rows, columns] -= wide[:, rows, inner] @ wide[:, inner, columns]
    window = numbers(rows.start, rows.stop, columns.start, columns.stop)
    inside = numbers(inner.start, inner.stop - inner.start, 0, 0)
    bound = {
        "A": _whole(given), "dims": numbers(m, n), "win": window, "kwin": inside, "params": window, "w": inside
    }  # fmt: skip
    height, width = rows.stop - rows.start, columns.stop - columns.start
    grid = (-(-width // 64) * 128, -(-height // 32), _BATCH)
    group: tuple[int, ...] = (128, 1, 1)
    if not simd:
        grid, group = (-(-width // 16) * 16, -(-height // 16) * 16, _BATCH), (16, 16, 1)
    yield Launch(taken(kernel, bound), grid, group, {"A": (given, value, _SLACK)})


@family(rf"transposeInPlaceLU_{_DTYPES}")
def _lu_transpose(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    size = 75
    given = random((_BATCH, size, size), dtype_named(match["a"]), 1)
    bound = {"A": _whole(given), "dims": numbers(size, size)}
    tiles = -(-size // 32)
    yield Launch(
        taken(kernel, bound), (tiles * 32, tiles * 8, _BATCH), (32, 8, 1),
        {"A": (given, widened(given.transpose(1, 2).contiguous()), 0.0)},
    )  # fmt: skip


@family(rf"luApplyPivotsRHS_{_DTYPES}")
def _lu_right_side(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with the right side behind the factors, for its solution and that of the adjoint."""
    dtype, size, columns = dtype_named(match["a"]), 40, 7
    given = random((_BATCH, size, size + columns), dtype, 1)
    pivots = torch.randint(1, size + 1, (_BATCH, size), generator=torch.Generator().manual_seed(2))
    for backwards in (0, 1):
        value = given.clone()
        for matrix, order in zip(value, pivots, strict=True):
            for place in reversed(range(size)) if backwards else range(size):
                other = int(order[place]) - 1
                matrix[[place, other], size:] = matrix[[other, place], size:]
        bound = {
            "A": _whole(given), "pivots": pivots.int(), "dims": numbers(size, size + columns),
            "params": numbers(size, columns, size, backwards),
        }  # fmt: skip
        yield Launch(
            taken(kernel, bound), (_BATCH * columns, 1, 1), (columns, 1, 1),
            {"A": (given, widened(value), 0.0)},
        )  # fmt: skip


#: Threads of the kernels that factor a tall panel a column at a time, and simdgroups of a threadgroup.
_STREAM, _STREAM_SIMDGROUPS = 256, 8


@family(rf"luStream(?P<step>Update|Pivot)_{_DTYPES}")
def _lu_stream(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call a column's update with the search for the next pivot, or the choice of the pivot and its row's swap."""
    dtype, (m, n), start, column = dtype_named(match["a"]), (150, 60), 8, 5
    given = random((_BATCH, m, n), dtype, 1)
    panel = slice(start, start + 32)
    per_group, searched = _STREAM_SIMDGROUPS * 2, start + column + 1
    groups = -(-(m - searched) // per_group)
    bound = {
        "A": _whole(given), "pivots": torch.zeros((_BATCH, n), dtype=torch.int32), "dims": numbers(m, n),
        "info": torch.zeros(_BATCH, dtype=torch.int32),
    }  # fmt: skip
    wide = widened(given)
    width = given.element_size() // (2 if dtype.is_complex else 1) * (2 if dtype.is_complex else 1)
    row_of = [matrix[start + column, panel] for matrix in given]
    if match["step"] == "Update":
        value = wide.clone()
        factors = (
            value[:, searched:, start + column] / value[:, start + column, start + column, None]
        )
        value[:, searched:, start + column] = factors
        right = slice(start + column + 1, start + 32)
        value[:, searched:, right] -= factors[..., None] * value[:, start + column, None, right]
        bound["scratch"] = _scratch([torch.zeros(0)] * _BATCH, [[]] * _BATCH, row_of, width)
        bound["params"] = numbers(start, column, 2, 0)
        yield Launch(
            taken(kernel, bound), (groups * _STREAM, _BATCH, 1), (_STREAM, 1, 1),
            {"A": (given, value, _SLACK * (1 + value.abs()))},
        )  # fmt: skip
        return
    sizes = _size(wide[:, start + column :, start + column])
    chosen = sizes.argmax(1) + column
    parts = [part.split(20) for part in sizes]
    largest = [torch.stack([part.amax() for part in each]).float() for each in parts]
    places = [
        [int(part.argmax()) + 20 * i + column for i, part in enumerate(each)] for each in parts
    ]
    value = wide.clone()
    for matrix, place in zip(value, chosen.tolist(), strict=True):
        matrix[[start + column, start + place], panel] = matrix[
            [start + place, start + column], panel
        ]
    pivots = bound["pivots"].clone()
    pivots[:, start + column] = (start + chosen + 1).int()
    bound["scratch"] = _scratch(largest, places, [torch.zeros(32).to(dtype)] * _BATCH, width)
    bound["params"] = numbers(start, column, len(places[0]), 0)
    yield Launch(
        taken(kernel, bound), (_BATCH * _STREAM, 1, 1), (_STREAM, 1, 1),
        {"A": (given, value, 0.0), "pivots": (given, pivots, 0.0)},
    )  # fmt: skip


def _scratch(
    largest: list[Tensor], places: list[list[int]], rows: list[Tensor], width: int
) -> Tensor:
    """Return LUStreamScratch of each matrix: the largest of each part, where it is, the pivot's row."""
    size = _STREAM * 8 + 32 * width
    memory = torch.zeros((len(rows), size), dtype=torch.uint8)
    for area, values, indices, row in zip(memory, largest, places, rows, strict=True):
        area[: values.numel() * 4] = values.float().view(torch.uint8)
        listed = torch.tensor(indices, dtype=torch.int32).view(torch.uint8)
        area[_STREAM * 4 : _STREAM * 4 + listed.numel()] = listed
        area[_STREAM * 8 :] = _whole(row).view(torch.uint8)
    return memory


@family(r"luInvSmall_(?P<size>\d)")
def _small_inverse(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    size, count = int(match["size"]), 9
    given = random((count, size, size), torch.float32, 1) + 2 * torch.eye(size)
    value = torch.linalg.inv(given.double())
    strides = dict(
        zip(
            (f"{name}_{kind}stride" for name in "AX" for kind in "brc"),
            given.stride() * 2,
            strict=True,
        )
    )
    bound = {
        "A": given, "X": untouched(given.shape, torch.float32), "info": torch.ones(count, dtype=torch.int32),
        "params": struct(kernel, kernel.buffers[-1].name, **strides),
    }  # fmt: skip
    bound[kernel.buffers[-1].name] = bound["params"]
    yield Launch(
        taken(kernel, bound), (count,), (1,),
        {"X": (given, value, value.abs().amax() * 1e-4), "info": (given, torch.zeros(count), 0.0)},
    )  # fmt: skip


@family(r"unpack_pivots_(?P<a>int|long)_(?P<b>int|long)")
def _unpacked(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    size = 12
    pivots = torch.randint(1, size + 1, (3, size), generator=torch.Generator().manual_seed(3))
    value = torch.arange(size).repeat(3, 1)
    for matrix, order in zip(value, pivots, strict=True):
        for place in range(size):
            other = int(order[place]) - 1
            matrix[[place, other]] = matrix[[other, place]]
    params = struct(
        kernel, "params", perm_batch_stride=size, pivots_batch_stride=size, dim_size=size
    )
    bound = {
        "perm": torch.arange(size).repeat(3, 1).to(dtype_named(match["a"])),
        "pivots": pivots.to(dtype_named(match["b"])), "params": params,
    }  # fmt: skip
    yield Launch(bound, (3,), (1,), {"perm": (pivots, value, 0.0)})


@family("applyPivots")
def _permutation(_match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    """Call on unit matrices, whose rows are swapped from the last pivot back; these pivots count from zero."""
    rows, count = 9, 6
    pivots = torch.randint(0, rows, (_BATCH, count), generator=torch.Generator().manual_seed(4))
    value = torch.eye(rows).repeat(_BATCH, 1, 1)
    for matrix, order in zip(value, pivots, strict=True):
        for place in reversed(range(count)):
            other = int(order[place])
            matrix[[place, other]] = matrix[[other, place]]
    bound = {
        "P": torch.eye(rows).repeat(_BATCH, 1, 1), "pivots": pivots.int(), "R": numbers(rows), "K": numbers(count)
    }  # fmt: skip
    yield Launch(bound, (_BATCH * 32, 1, 1), (32, 1, 1), {"P": (value, value, 0.0)})


# Triangular systems of small size


@family(r"triangular_solve_small_(?P<general>general_)?(?P<size>\d+)")
def _small_triangle(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a matrix of just the size: the general form takes any triangle, the other one a unit lower one."""
    n, columns = int(match["size"]), 24
    general = [(1, 0, 0, 0), (0, 1, 1, 1), (0, 0, 0, 1)]
    for upper, transpose, unit, by_column in general if match["general"] else [(0, 0, 1, 0)]:
        given = random((_BATCH, n, n), torch.float32, n) / n + 2 * torch.eye(n)
        given = given.triu() if upper else given.tril()
        right = random((_BATCH, n, columns), torch.float32, 2)
        wide = given.double()
        value = torch.linalg.solve_triangular(
            wide.transpose(1, 2) if transpose else wide, right.double(),
            upper=bool(upper) != bool(transpose), unitriangular=bool(unit),
        )  # fmt: skip
        if by_column:
            right, value = (t.transpose(1, 2).contiguous() for t in (right, value))
        params = struct(
            kernel, "p", nbatch=_BATCH, n=n, k=columns, upper=upper, transpose=transpose, unit=unit,
            b_col_major=by_column, x_col_major=by_column,
        )  # fmt: skip
        threads = 4 * n
        yield Launch(
            {"a": given, "b": right, "x": untouched(value.shape, torch.float32), "p": params},
            (_BATCH * threads,), (threads,), {"x": (given, value, _SLACK)},
        )  # fmt: skip


# Cholesky: blocks of 32 by threadgroups of 32 by 8, panels of 96.  `L` is stored by columns.


def _definite(dtype: torch.dtype, size: int) -> Tensor:
    drawn = widened(random((_BATCH, size, size), dtype, size)) / size**0.5
    product: Tensor = drawn @ drawn.mH
    return product + torch.eye(size)


def _stored(matrix: Tensor, form: str, dtype: torch.dtype) -> Tensor:
    """Return a lower triangular or symmetric matrix as the kernels of the form have it."""
    return _whole(matrix.transpose(1, 2) if form == "L" else matrix).to(dtype)


def _cholesky(
    kernel: Kernel, match: re.Match[str], given: Tensor, value: Tensor, block: int, step: int,
    groups: tuple[int, ...], threads: tuple[int, int, int],
) -> Launch:  # fmt: skip
    """Call a step of a factorization, and compare the lower triangles."""
    dtype, form, size = (
        dtype_named(match.groupdict().get("a") or "float"),
        match["form"],
        given.shape[-1],
    )

    def lower(bound: Mapping[str, Tensor]) -> Tensor:
        result = bound["A"].transpose(1, 2) if form == "L" else bound["A"]
        return _whole(result.tril())

    bound = {
        "A": _stored(given, form, dtype), "info": torch.zeros(_BATCH, dtype=torch.int32),
        "N": numbers(size), "NB": numbers(block), "k": numbers(step),
    }  # fmt: skip
    counts = (*groups, 1)[:2]
    grid = tuple(count * extent for count, extent in zip(counts, threads, strict=False))
    return Launch(
        taken(kernel, bound), grid, threads,
        {"lower": (given, value.tril(), _SLACK)}, made={"lower": lower},
    )  # fmt: skip


@family(rf"factorDiagonal(?P<how>Block|Panel)(?P<form>[LU])(?:_{_DTYPES})?")
def _diagonal(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"] or "float")
    block = 32 if match["how"] == "Block" else 96
    for size, step in ((block * 2 + 6, 1), (block * 2 + 6, 2), (block - 5, 0)):
        given = _definite(dtype, size)
        value = given.clone()
        part = slice(step * block, min(size, (step + 1) * block))
        value[:, part, part] = torch.linalg.cholesky(given[:, part, part])
        threads = (32, 8, 1) if match["how"] == "Block" else (96, 1, 1)
        yield _cholesky(kernel, match, given, value, block, step, (_BATCH,), threads)


@family(rf"apply(?P<how>|Panel)TRSM(?P<form>[LU])(?:_{_DTYPES})?")
def _below_diagonal(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"] or "float")
    block = 96 if match["how"] else 32
    for size in (block * 2 + 6, block + 32):
        given = _definite(dtype, size)
        top, rest = slice(0, block), slice(block, size)
        given[:, top, top] = torch.linalg.cholesky(given[:, top, top])
        value = given.clone()
        value[:, rest, top] = torch.linalg.solve_triangular(
            given[:, top, top].mH, given[:, rest, top], upper=True, left=False
        )
        groups, threads = (_BATCH, -(-(size - block) // 32)), (128, 1, 1)
        yield _cholesky(
            kernel, match, given, value, block, 0, groups, threads if match["how"] else (32, 8, 1)
        )


@family(rf"applySYRK(?P<form>[LU])_{_DTYPES}")
def _trailing(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, block, size = dtype_named(match["a"]), 32, 102
    given = _definite(dtype, size)
    top, rest = slice(0, block), slice(block, size)
    value = given.clone()
    value[:, rest, rest] -= given[:, rest, top] @ given[:, rest, top].mH
    blocks = -(-(size - block) // block)
    groups = (_BATCH, blocks * (blocks + 1) // 2)
    yield _cholesky(kernel, match, given, value, block, 0, groups, (32, 8, 1))


# QR


def _reflector_params(kernel: Kernel, given: Tensor, tau: Tensor) -> Tensor:
    return struct(
        kernel, "params", num_batch_dims=1, A_sizes=given.shape, A_strides=given.stride(), tau_strides=tau.stride()
    )  # fmt: skip


@family(r"geqrf_(?:(?P<a>float)|panel_(?P<width>\d+))")
def _reflectors(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a simdgroup for each column of a panel, or with any number of threads a matrix."""
    width = int(match["width"] or 0)
    for rows, columns in ((45, width or 20), (width + 3 if width else 20, width or 33)):
        given = random((_BATCH, rows, columns), torch.float32, rows)
        value, tau = torch.geqrf(given.double())
        result = untouched(tau.shape, torch.float32)
        memory = _whole(given)
        bound = {
            "R": memory, "A": memory, "tau": result, "params": _reflector_params(kernel, given, result),
            "v_work": torch.zeros(_BATCH * rows * columns),
        }  # fmt: skip
        threads = 32 * (width or 8)
        yield Launch(
            taken(kernel, bound), (_BATCH * threads,), (threads,),
            {"A" if width else "R": (given, value, _SLACK), "tau": (given, tau, _SLACK)},
        )  # fmt: skip


@family(rf"householder_block_{_DTYPES}")
def _reflector_block(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call for both factors of a product of reflectors, 1 - W V^H, which lie by columns."""
    dtype, (rows, columns) = dtype_named(match["a"]), (45, 12)
    factored, tau = torch.geqrf(random((_BATCH, rows, columns), dtype, 1))
    factored = factored.contiguous()
    v = widened(factored).tril(-1) + torch.eye(rows, columns, dtype=widened(factored).dtype)
    w = v * widened(tau)[:, None]
    for column in range(1, columns):
        for before in reversed(range(column)):
            reflector = v[:, :, before, None]
            product = reflector.mH @ w[:, :, column, None]
            w[:, :, column] -= (widened(tau)[:, before, None, None] * reflector @ product)[..., 0]
    bound = {
        "A": factored, "tau": tau, "V": torch.zeros((_BATCH, columns, rows), dtype=dtype),
        "W": torch.zeros((_BATCH, columns, rows), dtype=dtype), "params": _reflector_params(kernel, factored, tau),
    }  # fmt: skip
    yield Launch(
        bound, (_BATCH * columns * 64,), (64,),
        {name: (factored, _whole(t.transpose(1, 2)), _SLACK) for name, t in (("V", v), ("W", w))},
    )  # fmt: skip


@family(r"orgqr_(?P<a>[a-z0-9]+)")
def _orthogonal(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, (m, n, k) = dtype_named(match["a"]), (9, 7, 5)
    single = torch.complex64 if dtype.is_complex else torch.float32
    factored, tau = torch.geqrf(random((_BATCH, m, n), single, 1))
    factored, tau = factored.contiguous().to(dtype), tau[:, :k].contiguous().to(dtype)
    value = torch.linalg.householder_product(widened(factored), widened(tau))
    square = torch.zeros((_BATCH, m, m), dtype=dtype)
    # From 2.11 on the square of m comes with it.
    names = {field.name for argument in kernel.buffers for field in argument.fields}
    more = {"m2": m * m} if "m2" in names else {}
    params = struct(
        kernel, "params", num_batch_dims=1, m=m, n=n, k=k, **more, A_strides=factored.stride(),
        tau_strides=tau.stride(), H_strides=square.stride(), H_sizes=square.shape,
    )  # fmt: skip
    bound = {
        "A": _whole(factored), "tau": tau, "H": square, "H_prod": square.clone(), "H_prod_work": square.clone(),
        "params": params,
    }  # fmt: skip
    precise = dtype in {torch.float32, torch.complex64}
    slack = _SLACK if precise else 0.02 if dtype != torch.bfloat16 else 0.1
    yield Launch(bound, (_BATCH * m * m,), (m * m,), {"A": (factored, value, slack)})


# Jacobi's methods: a threadgroup a matrix, a simdgroup a pair of columns


def _threads(size: int) -> int:
    return 32 * max(1, min(32, (size + 1) // 2))


@family(rf"svd_jacobi_{_DTYPES}")
def _singular(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with tall matrices, and with one whose adjoint is tall; its vectors have signs of their own."""
    dtype = dtype_named(match["a"])
    for (m, n), transposed, staged in (((12, 7), 0, 1), ((9, 9), 0, 0), ((11, 6), 1, 1)):
        given = random((_BATCH, m, n), dtype, m)
        values = torch.linalg.svdvals(widened(given))
        left, right = ((n, n), (n, m)) if transposed else ((m, n), (n, n))
        u, v = (torch.zeros((_BATCH, *reversed(shape)), dtype=dtype) for shape in (left, right))
        params = struct(
            kernel, "params", m=m, n=n, max_sweeps=30, tol=1e-6, u_ld=left[0], u_bstride=left[0] * left[1],
            v_ld=right[0], v_bstride=right[0] * right[1], compute_uv=1, transposed=transposed, stage_v=staged,
        )  # fmt: skip

        def product(bound: Mapping[str, Tensor]) -> Tensor:
            u, v = (widened(bound[name]).transpose(1, 2) for name in "UV")
            return ((u * bound["S"].double()[:, None]) @ v).to(bound["U"].dtype)

        bound = {
            "A": given, "U": u, "S": torch.zeros((_BATCH, n)), "V": v, "Vacc": torch.zeros((_BATCH, n, n), dtype=dtype),
            "info": torch.ones(_BATCH, dtype=torch.int32), "params": params,
        }  # fmt: skip
        whole = widened(given.mH if transposed else given)
        threads, width = _threads(n), given.element_size()
        yield Launch(
            bound, (_BATCH * threads,), (threads,),
            {
                "S": (given, values, _SLACK), "product": (given, whole, _SLACK),
                "info": (given, torch.zeros(_BATCH), 0.0),
            },
            {"Atg": m * n * width, "Vtg": n * n * width},
            {"product": product},
        )  # fmt: skip


@family(rf"eigh_jacobi_{_DTYPES}")
def _eigenvalues(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype = dtype_named(match["a"])
    for size, upper in ((8, 0), (13, 1)):
        drawn = random((_BATCH, size, size), dtype, size)
        given = (drawn + drawn.mH) / 2
        values = torch.linalg.eigvalsh(widened(given))
        params = struct(kernel, "params", n=size, max_sweeps=80, tol=1e-6, compute_v=1, upper=upper)

        def product(bound: Mapping[str, Tensor]) -> Tensor:
            q = widened(bound["Q"]).transpose(1, 2)
            return ((q * bound["W"].double()[:, None]) @ q.mH).to(bound["Q"].dtype)

        bound = {
            "A": _whole(given.transpose(1, 2)), "W": torch.zeros((_BATCH, size)),
            "Q": torch.zeros((_BATCH, size, size), dtype=dtype), "params": params,
            "info": torch.ones(_BATCH, dtype=torch.int32),
        }  # fmt: skip
        threads, width = _threads(size), given.element_size()
        yield Launch(
            bound, (_BATCH * threads,), (threads,),
            {
                "W": (given, values, _SLACK), "product": (given, widened(given), _SLACK),
                "info": (given, torch.zeros(_BATCH), 0.0),
            },
            {"Atg": size * size * width, "Qtg": size * size * width},
            {"product": product},
        )  # fmt: skip
