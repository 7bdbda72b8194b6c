"""Families of kernels, by their names, and the tasks of a run: the kernels of an operation."""

import re
from collections import defaultdict
from collections.abc import Iterable

from opcheck.kernels import kernel_names
from opcheck.kernels.kernel_records import Task

_LINEAR = (
    r"svd|eigh|factor|applyTRSM|applySYRK|applyP|lu[A-Z]|laswp|trsm|triangular|geqrf|orgqr"
    r"|householder|unpack_pivots|transposeInPlaceLU|gemm\w+LU"
)
_RANDOM = (
    r"bernoulli|cauchy|exponential|geometric|log_normal|normal_|poisson|random|uniform"
    r"|standard_|dropout|dirichlet|randperm"
)
#: The first that matches the beginning of a kernel's name is its family.
_PATTERNS = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"\w+_reduction(_|$)|count_nonzero_prefix|median|histc|histogram", "reductions"),
        (r"cumsum|cumprod|cummin|cummax|logcumsumexp", "scans"),
        (r"(log_)?softmax_sparse|spmm|coalesce|flatten_indices|build_\w+ptr|fused_gather_mul", "sparse"),
        (r"(log_)?softmax", "softmax"),
        (r"layer_norm|rms_norm|group_norm|renorm", "norms"),
        (r"gather|scatter", "gather and scatter"),
        (r"index_|flip|masked_fill|where_|repeat_interleave|tri[ul]_|eye", "indexing"),
        (r"sort_|mb_|radix_|unique|mark_|topk", "sort and topk"),
        (r"searchsorted", "bucketize"),
        (r"embedding", "embedding"),
        (r"(max|avg)_(un)?pool", "pooling"),
        (r"upsample", "upsampling"),
        (r"grid_sampler", "grid sampling"),
        (r"int4pack|int8pack|large_m_int8|weight_to_int4|scaled_mm", "quantized matmul"),
        (r"sdpa|prefill_attention", "attention"),
        (r"gemv|naive_|addmm|matmul|\w+_mm_|grouped_mm|compute_linear_comb", "matmul"),
        (_LINEAR, "linear algebra"),
        (r"conv|im2col|col2im|unfold|nchw", "convolution"),
        (r"reflection_pad|replication_pad|constant_pad|cat_", "padding and cat"),
        (_RANDOM, "random"),
        (r"fused_(adam|sgd)|amp", "optimizers"),
        (r"ctc_loss|nllnd", "losses"),
        (r"arange|linspace|logspace|fill_scalar", "ranges"),
    )
)
_TERNARY = frozenset(["addcmul", "addcdiv", "lerp", "clamp", "where"])
#: The families whose results each depend on a single place of the operands.
POINTWISE = ("unary", "binary", "ternary")
NAMES = (*POINTWISE, *dict.fromkeys(family for _, family in _PATTERNS), "other")


def family_of(name: str, forms: Iterable[str]) -> str:
    """Return the family of a kernel.

    Args:
        name: its name.
        forms: those of all kernels of its operation.
    """
    for pattern, family in _PATTERNS:
        if pattern.match(name):
            return family
    operation = kernel_names.parse(name).operation
    forms = tuple(forms)
    if operation in _TERNARY:
        return "ternary"
    if not any(forms):
        return "other"
    return "binary" if any("broadcast" in form for form in forms) else "unary"


def tasks(kernels: Iterable[str]) -> tuple[Task, ...]:
    """Return the kernels of a release by operation."""
    operations: dict[str, list[str]] = defaultdict(list)
    for name in sorted(kernels):
        operations[kernel_names.parse(name).operation].append(name)
    tasks = []
    for operation, members in operations.items():
        forms = [kernel_names.parse(name).form for name in members]
        by_family: dict[str, list[str]] = defaultdict(list)
        for name in members:
            by_family[family_of(name, forms)].append(name)
        tasks += [
            Task(family=family, operation=operation, kernels=tuple(listed)) for family, listed in by_family.items()
        ]
    return tuple(tasks)
