"""Kernels of a released wheel, by family: each that runs agrees with the CPU."""

from __future__ import annotations

import collections
import functools
import re

import pytest

pytest.importorskip("llvmlite")

from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import drive, kernel_names, library
from opcheck.kernels.kernel_machine import KernelMachine
from opcheck.kernels.kernel_records import KernelOutcome, Task

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.filterwarnings("ignore:ComplexHalf"),
    pytest.mark.filterwarnings("ignore:index_reduce"),
]

#: Kernels of torch 2.15, by pattern, and how many the pattern has at least.
DRIVEN = {
    "sum_reduction_*float_float": 8,
    "arg*_reduction_outer_*": 32,
    "var_reduction_innermost_chunk_half_half": 1,
    "cumsum_outer_*": 5,
    "cumsum_*block_*_float": 24,
    "cumprod_*decoupled_*_half": 4,
    "cumsum_tiny_*": 6,
    "radix_*_char_4bit*": 12,
    "unique_*": 30,
    "bernoulli_*": 18,
    "random_int_*": 12,
    "standard_*_float": 4,
    "embedding_*": 34,
    "nllnd_loss_*": 6,
    "fused_sgd_*": 6,
    "fused_adam*_float_float": 4,
    "histc_*": 16,
    "softmax_*_float_u32": 3,
    "mb_merge*_half_tptg64": 3,
    "sort_block_topk_int_tptg*": 6,
    "scatter_add_dense_*_long": 10,
    "index_copy_*_int_32": 22,
    "reflection_pad2d_*_i32": 15,
    "constant_pad_nd_*_u32": 10,
    "cat_int32_t_half_*": 3,
    "linspace_*_i32": 4,
    "gemv_nt_float_4_2_*": 8,
    "group_norm_*half*": 20,
    "sdpa_vector_*_mask*": 12,
    "sdpa_vector_2pass_?_half_64*": 4,
    "prefill_attention_*_bd96_*": 18,
    "matmul_*": 10,
    "addmm_*": 10,
    "naive_*addbmm_*": 20,
    "int_mm_*": 2,
    "gemv_t_half_*": 22,
    "gemv_t2d_*": 6,
    "grouped_mm_*_u32": 21,
    "compute_linear_combination_*": 8,
    "int4pack_mm_*": 12,
    "weight_to_int4pack": 1,
    "scaled_mm_*": 20,
    "factor*": 12,
    "apply*": 11,
    "lu*": 10,
    "laswpGatherLU_*": 2,
    "trsm*": 14,
    "gemm*LU*": 2,
    "transposeInPlaceLU_*": 2,
    "triangular_solve_*": 8,
    "unpack_pivots_*": 4,
    "geqrf_*": 4,
    "householder_block_*": 2,
    "orgqr_*": 5,
    "svd_jacobi_*": 2,
    "eigh_jacobi_*": 2,
    "conv2d_*": 12,
    "conv1d_depthwise_*": 6,
    "conv3d_simd_*": 9,
    "conv_weight_to_dhwio_*": 3,
    "nchw_to_nhwc_*": 24,
    "im2col_*": 12,
    "col2im_*": 8,
    "unfold_backward_*": 4,
    "*_pool_backward_*": 6,
    "max_unpool_*": 9,
    "replication_pad1d_*": 16,
    "grid_sampler_2d_*_i64_half": 18,
    "grid_sampler_3d_*_i32_*": 21,
    "upsample_*_backward_*": 33,
    "upsample_*_uchar": 6,
    "std_reduction_*float3*": 48,
    "arg*_reduction_combine_*": 16,
    "softmax_strided_*": 12,
    "l*space_strided_*": 19,
    "linspace_integral_*": 6,
    "pow_*_bool_bool": 14,
    "silu_*_int": 8,
    "*_float8_e4m3fn": 60,
    "cross_*": 20,
    "frexp_*": 6,
    "glu_backward_*": 6,
    "*nonzero_*_uint": 22,
    "prefix_sum_blocks_*": 2,
    "tri?_indices_*": 4,
    "histogramdd_*": 6,
    "spmm_*float*": 4,
    "coalesce_with_positions_*": 11,
    "fused_gather_mul_*": 9,
    "softmax_sparse_*": 6,
    "index_put_*": 19,
    "index_select_*": 20,
    "assert_async_?": 4,
    "inner_contiguous_*": 3,
    "scatter_am??_*_long_*": 8,
    "median_select_pick_*": 8,
    "randperm_*": 4,
    "cdist_backward_*": 18,
    "ctc_loss_*": 36,
}


@pytest.fixture(scope="module")
def machine() -> KernelMachine:
    return KernelMachine(default_cache().parent / "kernels")


read = functools.cache(library.read)


def ran(machine: KernelMachine, release: str, section: str, pattern: str) -> list[KernelOutcome]:
    """The outcomes of the kernels of a pattern, run in this process: starting another takes longer than they do."""
    functions = read(release, section=section).functions
    operations: dict[str, drive.Drivers] = collections.defaultdict(drive.Drivers)
    task = Task(family="", operation="", kernels=())
    return [
        operations[kernel_names.parse(name).operation].outcome(machine, functions[name], task)
        for name in kernel_names.matching(functions, pattern)
    ]


#: The kernels that depart from the CPU, as an expression, with their verdict and its cause: a statement, or the inputs.
DEPARTURES = {
    r"unique_mark_boundaries_b?float": ("depends on flushing", "the inputs hold a denormal and zero"),
    r"(count_nonzero_prefix_sum|scatter_nonzero_indices)_b?float_u(int|long)": (
        "depends on flushing",
        "a denormal is no zero",
    ),
    r"cdist_backward_b?float_p0_tg(32|128)": (
        "depends on flushing",
        "a difference of 0 or of a denormal has other signs",
    ),
    r"histc_atomic_(global|threadgroup)_b?float": ("depends on flushing", "a denormal is no zero"),
    r"sdpa_vector_2pass_1_(float_\d+_\d+_maskfloat|bfloat_\d+_\d+_maskbfloat)": ("wrong", "sdpa-two-passes-low-mask"),
    r"prefill_attention_(bfloat16|float32)_.*_hm1_dc._mask\1": ("wrong", "sdpa-blocks-lowest-mask"),
    r"norm_b?float_b?float": ("depends on flushing", "a denormal is no zero"),
    # Of the releases before 2.13, whose kernels take the mask as an argument.
    r"sdpa_vector_(float|half|bfloat)_\d+_\d+": ("wrong", "sdpa-one-pass-fully-masked-row"),
}


def departures(kernels: list[str]) -> dict[str, str]:
    """The verdicts of the kernels that must be neither right nor within."""
    return {
        kernel: verdict
        for kernel in kernels
        for pattern, (verdict, _) in DEPARTURES.items()
        if re.fullmatch(pattern, kernel)
    }


def odd(outcomes: list[KernelOutcome]) -> dict[str, str]:
    """The verdicts that are neither right nor within."""
    return {outcome.kernel: outcome.verdict for outcome in outcomes if outcome.verdict not in {"right", "within"}}


@pytest.mark.parametrize("pattern", DRIVEN)
def test_kernels_that_run_agree_with_the_cpu(machine: KernelMachine, pattern: str) -> None:
    outcomes = ran(machine, "2.15.0", "", pattern)
    driven = [outcome for outcome in outcomes if outcome.verdict != "not run"]
    assert len(driven) >= DRIVEN[pattern]
    assert odd(driven) == departures([outcome.kernel for outcome in driven])


#: Kernels of older releases, and of the library for macOS 26.2, which take other arguments or instructions.
ELSEWHERE = (
    ("2.7.1", "", "int4pack_mm_32_*"),
    ("2.8.0", "", "sdpa_vector*_half_64*"),
    ("2.10.0", "", "orgqr_*"),
    ("2.11.0", "", "sdpa_vector_float_64_64"),
    ("2.12.1", "", "sdpa_vector_*bfloat_96*"),
    ("2.12.1", "", "norm_*"),
    ("2.13.0", "", "upsample_bicubic2d_backward_*"),
    ("2.15.0", "metal_40", "triangular_solve_small_general_*"),
    ("2.15.0", "metal_40", "scaled_mm_half"),
)


@pytest.mark.parametrize(("release", "section", "pattern"), ELSEWHERE)
def test_kernels_of_other_libraries_agree_with_the_cpu(
    machine: KernelMachine, release: str, section: str, pattern: str
) -> None:
    outcomes = ran(machine, release, section, pattern)
    assert outcomes
    assert odd(outcomes) == departures([outcome.kernel for outcome in outcomes])
