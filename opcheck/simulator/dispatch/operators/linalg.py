"""Products of matrices, decompositions and what is made of them."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators import operator
from opcheck.simulator.dispatch.operators.operator import Calls, Given, Results, fact
from opcheck.simulator.dispatch.tensor_meta import contiguous, spec_of
from opcheck.simulator.dispatch.unbacked_values import Guess
from opcheck.simulator.errors import NotSimulatedError
from opcheck.simulator.target_reads import TargetQueries
from opcheck.tracing.torch_private import dispatch

aten = torch.ops.aten
Tensor = torch.Tensor


# -- products -----------------------------------------------------------------------------------------------


@fact("metadata", "aten::linear")
def _linear_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # mps/operations/Linear.mm (2.13): the last dimension becomes out_features.
    x, weight, bias = arguments["input"], arguments["weight"], arguments.get("bias")
    if x.shape[-1:] == weight.shape[-1:]:
        return (contiguous((*x.shape[:-1], *weight.shape[:-1]), x.dtype),)
    # Raises as the CPU does, by way of the composite.
    return (spec_of(torch.nn.functional.linear(*(x.meta(), weight.meta(), None if bias is None else bias.meta()))),)


@fact("text", "aten::linear")
def _linear_text(tensors: Any) -> str | None:
    # mps/operations/Linear.mm, ``_mps_linear``: in this order.
    for name, tensor in zip(("input", "weight", "bias"), tensors, strict=False):
        if operator.is_on_cpu(tensor):
            return f"Tensor for argument {name} is on cpu but expected on mps"
    return None


@fact("emulate", "aten::linear_backward")
def _emulate_linear_backward(x: Tensor, grad: Tensor, weight: Tensor, mask: Sequence[bool]) -> Any:
    if not mask[2]:
        return (*operator.gradients(torch.nn.functional.linear, (x, weight), mask[:2], grad), None)
    return tuple(
        operator.gradients(torch.nn.functional.linear, (x, weight, grad.new_zeros(grad.shape[-1:])), mask, grad)
    )


@fact("metadata", "aten::_grouped_mm")
def _grouped_mm_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # GroupedMMUtils.h (2.9 to 2.15).  The meta kernel takes bfloat16 alone, as CUDA's kernel did;
    # the composite and MPS's kernel take float32 and float16 too.
    first, a, b = arguments["self"], arguments["self"].shape, arguments["mat2"].shape
    dtype = arguments.get("out_dtype") or first.dtype
    if len(a) == len(b) == 2:
        return (contiguous((arguments["offs"].shape[0], a[0], b[1]), dtype),)
    lead = a[:2] if len(a) == len(b) else (a[-2],)
    return (contiguous((*lead, b[-1]), dtype),)


@fact("body", "aten::_grouped_mm")
def _grouped_mm_body(arguments: Given, _ask: TargetQueries) -> Calls:
    # GroupedMMUtils.h, ``_grouped_mm_fallback`` (2.9 to 2.13): one product for each group, or one
    # batched product.
    batched = arguments["self"].dim() == 3 and arguments["mat2"].dim() == 3
    return ("aten::empty_strided", "aten::bmm.out" if batched else "aten::mm.out")


@fact("branch", "aten::tensordot")
def _tensordot(_context: DispatchContext, a: Tensor, b: Tensor, dims_a: list[int], dims_b: list[int]) -> Tensor:
    # native/Linear.cpp: elsewhere a full contraction becomes a dot product; on MPS it is always mm.
    dims_a = [d % a.dim() for d in dims_a] if a.dim() else list(dims_a)
    dims_b = [d % b.dim() for d in dims_b] if b.dim() else list(dims_b)
    for i, j in zip(dims_a, dims_b, strict=True):
        if a.shape[i] == b.shape[j]:
            continue
        if a.shape[i] == 1:
            b = b.sum(j, keepdim=True)
        elif b.shape[j] == 1:
            a = a.sum(i, keepdim=True)
        else:
            return operator.composite(aten.tensordot.default, a, b, dims_a, dims_b)
    free_a = [d for d in range(a.dim()) if d not in dims_a]
    free_b = [d for d in range(b.dim()) if d not in dims_b]
    shared = math.prod(a.shape[d] for d in dims_a)
    shape_a, shape_b = [a.shape[d] for d in free_a], [b.shape[d] for d in free_b]
    rows = -1 if free_a and a.numel() else math.prod(shape_a)
    columns = -1 if free_b and b.numel() else math.prod(shape_b)
    left = a.permute([*free_a, *dims_a]).reshape([rows, shared])
    right = b.permute([*dims_b, *free_b]).reshape([shared, columns])
    return aten.mm.default(left, right).reshape(shape_a + shape_b)


# -- decompositions -----------------------------------------------------------------------------------------


@fact("branch", "aten::linalg_eigvals")
def _eigvals(_context: DispatchContext, x: Tensor) -> Tensor:
    return aten.linalg_eig.default(x)[0] if operator.needs_grad(x) else aten._linalg_eigvals.default(x)


@fact("python_kernel", "aten::linalg_lu_solve")
def _lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, **options: Any) -> Any:
    # torch/_refs/linalg/__init__.py of 2.10 to 2.13 registers it for the form with ``out=``.
    if (kernel := dispatch.lu_solve_in_python) is None:
        raise NotSimulatedError("this torch does not have the Python kernel of linalg_lu_solve for MPS")
    out = torch.empty_like(b)
    kernel(lu, pivots, b, **{"left": True, "adjoint": False, **options}, out=out)
    return out


@fact("metadata", "aten::geqrf")
def _geqrf_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # BatchLinearAlgebra.cpp, geqrf: the factors, column-major, and tau
    *batch, rows, columns = arguments["self"].shape
    flipped = contiguous((*batch, columns, rows), arguments["self"].dtype).meta()
    return (spec_of(flipped.transpose(-2, -1)), contiguous((*batch, min(rows, columns)), arguments["self"].dtype))


@fact("metadata", "aten::_compute_linear_combination")
def _linear_combination_metadata(arguments: Given, _ask: TargetQueries) -> Results:
    # LinearAlgebra.cpp, _compute_linear_combination
    x = arguments["input"]
    return (contiguous((arguments["coefficients"].shape[0], *x.shape[1:]), x.dtype),)


@fact("unbacked", "aten::linalg_lstsq")
def _guess_least_squares(arguments: Given, _keep: int) -> Guess:
    # BatchLinearAlgebra.cpp, linalg_lstsq_out: residuals are there if the rank is full and m > n.
    a, b = arguments["self"], arguments["b"]
    lead, (rows, columns) = a.shape[:-2], a.shape[-2:]
    is_vector = b.dim() == 1 or tuple(b.shape) == tuple(a.shape[:-1])
    tail = () if is_vector else (b.shape[-1],)
    real = torch.empty(0, dtype=a.dtype).abs().dtype
    results = (
        contiguous((*lead, columns, *tail), a.dtype),
        contiguous((*lead, *(tail or (1,))) if rows > columns else (0,), real),
        contiguous(tuple(lead), torch.int64),
        contiguous((*lead, min(rows, columns)), real),
    )
    return Guess(results, "as if the matrix had full rank")


fact("text", "aten::mm")(operator.checked_by_linear_algebra("mm", "mat1", "mat2"))
fact("text", "aten::addmm")(operator.checked_by_linear_algebra("addmm_out_mps_impl", "self", "mat1", "mat2"))
