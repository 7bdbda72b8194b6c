"""Released kernels with an error planted into their code: each is found; and one with its own error mended."""

from __future__ import annotations

import re
import warnings

import pytest

pytest.importorskip("llvmlite")

from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import air, drivers, library
from opcheck.kernels.judging import Judged
from opcheck.kernels.kernel_machine import KernelMachine

pytestmark = pytest.mark.wheel

#: Kernels of torch 2.15, what is replaced once in their code, and by what.
PLANTED = (
    ("matmul_float", r"fadd float", "fsub float"),
    ("addmm_half", r"fmul float", "fadd float"),
    ("gemv_t_float_16_1_ab", r"sdiv i32 (%\d+), 16", r"sdiv i32 \1, 17"),
    ("grouped_mm_rows_float_bm32_u32", r"(?:tail )?call void @air\.wg\.barrier\(.*", ""),
    ("int4pack_mm_64_float", r"0x3FB0000000000000|6\.250000e-02", "1.250000e-01"),
    ("scaled_mm_half", r"i64 8, <2 x i64>|i64 32, <2 x i64>", "i64 31, <2 x i64>"),
    ("prefill_attention_float32_bq32_bk32_bd64_wm4_wn1_hm0_dc1_maskfloat32", r"i16 8\)", "i16 4)"),
    ("sdpa_vector_2pass_2_float_64", r"@air\.simd_max\.f32", "@air.simd_sum.f32"),
    ("conv2d_r4_i32_float", r"@llvm\.fmuladd\.f32\(float (%\d+), float (%\d+), float (%\d+)\)",
     r"@llvm.fmuladd.f32(float \1, float \1, float \3)"),
    ("conv3d_simd_float_64_64_2_2", r"(?:tail )?call void @air\.wg\.barrier\(.*", ""),
    ("factorPanelLU_float_1_32", r"fneg float", "fadd float 0.0,"),
    ("gemmSimdLU", r"fsub float", "fadd float"),
    ("factorDiagonalBlockL_float", r"(= (?:tail )?call float )@air\.rsqrt\.f32\(float (%\d+)\)",
     r"\1@air.rsqrt.f32(float 4.0)"),
    ("triangular_solve_small_32", r"fneg float", "fadd float 0.0,"),
    ("orgqr_float", r"fsub float", "fadd float"),
    ("svd_jacobi_float", r"fsub float", "fadd float"),
    ("im2col_float_u32", r"icmp slt i32", "icmp sle i32"),
    ("col2im_kernel_float_u32", r"fadd float", "fsub float"),
    ("nchw_to_nhwc_float_16_64_false_false", r"(?:tail )?call void @air\.wg\.barrier\(.*", ""),
    ("avg_pool_backward_float", r"fdiv float", "fmul float"),
    ("max_unpool_float", r"srem i32", "sdiv i32"),
    ("replication_pad1d_forward_float", r"@air\.max\.s\.i32", "@air.min.s.i32"),
    ("grid_sampler_3d_bilinear_zeros_i32_float", r"fsub float", "fadd float"),
    ("grid_sampler_2d_backward_bilinear_grid_i32_float", r"fsub float", "fadd float"),
    ("upsample_trilinear_backward_float", r"fsub float", "fadd float"),
    ("std_reduction_innermost_float3_float", r"fadd float", "fsub float"),
    ("var_reduction_innermost_half_float3", r"fsub float", "fadd float"),
    ("argmax_reduction_combine_float", r"fcmp ogt float", "fcmp olt float"),
    ("softmax_strided_partial_float_u32", r"fsub float", "fadd float"),
    ("softmax_strided_finalize_float_u32", r"fsub float", "fadd float"),
    ("linspace_strided_float", r"fneg float", "fadd float 0.0,"),
    ("linspace_integral_int_i32", r"icmp slt i64", "icmp sgt i64"),
    ("arange_strided_int", r"srem i64", "sdiv i64"),
    ("logspace_int_i32", r"fneg float", "fadd float 0.0,"),
    ("cross_strided_float", r"fsub float", "fadd float"),
    ("frexp_dense_float", r", -126", ", -127"),
    ("glu_dense_float", r"fneg float", "fadd float 0.0,"),
    ("glu_backward_float", r"fsub float", "fadd float"),
    ("count_nonzero_prefix_sum_float_uint", r"fcmp une float", "fcmp ueq float"),
    ("prefix_sum_blocks_uint", r" = sub i32", " = add i32"),
    ("scatter_nonzero_indices_float_uint", r"urem i32", "udiv i32"),
    ("repeat_interleave_int32_t", r"sub i32", "add i32"),
    ("tril_indices_int", r"sub i32", "add i32"),
    ("triu_indices_int", r"sub i64", "add i64"),
    ("histogramdd_float", r"fmul float", "fadd float"),
    ("histogramdd_atomic_half", r"clamp\.s\.i64\((.*), i64 0,", r"clamp.s.i64(\1, i64 1,"),
    ("spmm_addmm_coo_float", r"fadd float", "fsub float"),
    ("spmm_bmm_coo_rows_grouped_float", r"fadd float", "fsub float"),
    ("dense_sparse_mul_kernel_float", r"fmul float", "fadd float"),
    ("fused_gather_mul_kernel_float", r"fmul float", "fadd float"),
    ("coalesce_with_positions_kernel_float", r"fadd float", "fsub float"),
    ("mark_unique_positions_and_count_kernel", r"icmp ne i64", "icmp eq i64"),
    ("mark_segments", r"icmp ne i64", "icmp eq i64"),
    ("compute_output_positions_kernel", r"add nuw nsw i32", "sub i32"),
    ("compute_offsets_and_counts", r"sub nsw i32 (%\d+), (%\d+)\n  (%\d+) = getelementptr",
     r"add i32 \1, \2\n  \3 = getelementptr"),
    ("kogge_stone_step", r"add nsw i32", "sub nsw i32"),
    ("shift_right_kernel", r"phi i32 \[ (%\d+), (%\d+) \], \[ 0,", r"phi i32 [ \1, \2 ], [ 1,"),
    ("flatten_indices_kernel", r"mul nsw i64 (%\d+), (%\d+)\n  (%\d+) = add", r"add i64 \1, \2\n  \3 = add"),
    ("build_batch_ptr_from_sorted_batches", r"icmp slt i64", "icmp sle i64"),
    ("build_row_ptr_from_sorted_rows_by_batch", r"icmp slt i64", "icmp sle i64"),
    ("intersect_binary_search", r"icmp eq i64", "icmp ne i64"),
    ("softmax_sparse_forward_float", r"fsub float", "fadd float"),
    ("softmax_sparse_backward_float", r"fsub float", "fadd float"),
    ("index_select_16bit", r"icmp slt i64 (%\d+), (%\d+)\n", r"icmp sle i64 \2, \1\n"),
    ("index_put_8bit", r"icmp slt i64 (%\d+), (%\d+)\n", r"icmp sle i64 \2, \1\n"),
    ("index_put_serial_32bit", r"icmp slt i64 (%\d+), (%\d+)\n", r"icmp sle i64 \2, \1\n"),
    ("index_put_accumulate_float", r"(atomic\.global\.add\.f32\(.*), float (%\d+)", r"\1, float 1.0"),
    ("index_check_bounds_int", r"icmp sgt i64", "icmp sge i64"),
    ("assert_async_8", r"icmp eq i64", "icmp ne i64"),
    ("index_fill_set_mask", r"store i8 1", "store i8 0"),
    ("index_fill_zero_mask", r"store i8 0", "store i8 1"),
    ("contiguous_byte_copy", r"min\.u\.i32\(i32 16,", "min.u.i32(i32 15,"),
    ("inner_contiguous_copy", r"srem i32", "sdiv i32"),
    ("inner_contiguous_scatter_u32", r"shl i32 (%\d+), 4", r"shl i32 \1, 3"),
    ("scatter_amax_dense_long_int", r"-9223372036854775808", "0"),
    ("scatter_signbit_xor_long", r"xor i64", "or i64"),
    ("index_reduce_mean_float_int", r"fadd float", "fsub float"),
    ("median_select_pick_half", r"sub i32", "add i32"),
    ("randperm_small_int", r"3528531795", "3528531793"),
    ("randperm_dedup_islands_int", r"3528531795", "3528531793"),
    ("cdist_backward_float_p0_tg32", r"fsub float", "fadd float"),
    ("cdist_backward_float_p1_tg128", r"fsub float", "fadd float"),
    ("cdist_backward_float_p2_tg32", r"fsub float", "fadd float"),
    ("ctc_loss_float_int_int32_t", r"fadd float", "fsub float"),
    ("ctc_loss_backward_log_beta_float_int_int32_t", r"fadd float", "fsub float"),
    ("ctc_loss_backward_collect_float_int_int32_t", r"fsub float", "fadd float"),
    ("upsample_bilinear2d_uchar", r", 15\n", ", 14\n"),
    ("cat_int32_t_float8_e4m3fn_float8_e4m3fn", r"srem i32", "sdiv i32"),
    ("gather_dense_float8_e4m3fn_int", r"srem i64|urem i64|urem i32|srem i32", "xor i64"),
)  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> KernelMachine:
    warnings.filterwarnings("ignore", message="ComplexHalf")
    return KernelMachine(default_cache().parent / "kernels")


def code(name: str) -> str:
    return str(air.parse(library.read("2.15.0").functions[name].bitcode))


def judged(machine: KernelMachine, name: str, text: str) -> Judged:
    kernel = machine.kernel(machine.compile(text, name))
    kernel.flushed = False  # a verdict may depend on denormals among the inputs
    return drivers.judge(name, kernel)


@pytest.mark.parametrize(("name", "pattern", "replacement"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_planted_error_is_found(machine: KernelMachine, name: str, pattern: str, replacement: str) -> None:
    changed, count = re.subn(pattern, replacement, code(name), count=1)
    assert count == 1
    assert judged(machine, name, code(name)).wrong == 0
    assert judged(machine, name, changed).wrong > 0


#: A block that begins without a barrier, where one simdgroup may use memory that another one still does.
RACES = ("100", "194")


def test_large_products_of_packed_bytes_lack_two_barriers(machine: KernelMachine) -> None:
    name = "large_m_int8pack_mm_float"
    text = code(name)
    wrong = judged(machine, name, text).wrong
    for block in RACES:
        start = re.compile(rf"^{block}:.*\n(?:  %\d+ = phi.*\n)*", re.MULTILINE)
        text, count = start.subn(lambda match: f"{match[0]}  call void @air.wg.barrier(i32 2, i32 1)\n", text)
        assert count == 1
    assert wrong > 0
    assert judged(machine, name, text).wrong == 0
