"""Released kernels with an error planted into their code: each is found; and one with its own error mended."""

from __future__ import annotations

import re
import warnings

import pytest

pytest.importorskip("llvmlite")

from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import air, drive, launch, library
from opcheck.kernels.judging import Judged
from opcheck.kernels.machine import Machine

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
)  # fmt: skip


@pytest.fixture(scope="module")
def machine() -> Machine:
    assert drive.FAMILIES  # their import registers them
    warnings.filterwarnings("ignore", message="ComplexHalf")
    return Machine(default_cache().parent / "kernels")


def code(name: str) -> str:
    return str(air.parse(library.read("2.15.0").functions[name].bitcode))


def judged(machine: Machine, name: str, text: str) -> Judged:
    return launch.judge(name, machine.kernel(machine.compile(text, name)))


@pytest.mark.parametrize(("name", "pattern", "replacement"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_planted_error_is_found(
    machine: Machine, name: str, pattern: str, replacement: str
) -> None:
    changed, count = re.subn(pattern, replacement, code(name), count=1)
    assert count == 1
    assert judged(machine, name, code(name)).wrong == 0
    assert judged(machine, name, changed).wrong > 0


#: A block that begins without a barrier, where one simdgroup may use memory that another one still does.
RACES = ("100", "194")


def test_large_products_of_packed_bytes_lack_two_barriers(machine: Machine) -> None:
    name = "large_m_int8pack_mm_float"
    text = code(name)
    wrong = judged(machine, name, text).wrong
    for block in RACES:
        start = re.compile(rf"^{block}:.*\n(?:  %\d+ = phi.*\n)*", re.MULTILINE)
        text, count = start.subn(
            lambda match: f"{match[0]}  call void @air.wg.barrier(i32 2, i32 1)\n", text
        )
        assert count == 1
    assert wrong > 0
    assert judged(machine, name, text).wrong == 0
