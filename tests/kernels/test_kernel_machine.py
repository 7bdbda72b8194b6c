"""AIR on this CPU: positions, buffers, the functions of AIR, barriers and simdgroups."""

from __future__ import annotations

import ctypes
import math
import struct
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from opcheck.common.errors import UsageError
from opcheck.data.wheels import metallib
from opcheck.kernels import fibers, intrinsics
from opcheck.kernels.kernel_machine import KernelError, KernelMachine
from tests.kernels import made


@pytest.fixture(scope="module", params=[False, True], ids=["fibers", "loops"])
def machine(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> KernelMachine:
    return KernelMachine(tmp_path_factory.mktemp("kernels"), optimized=request.param)


def ran(machine: KernelMachine, text: str, name: str, values: np.ndarray, size: int, group: int = 1) -> np.ndarray:
    out = np.zeros(size, values.dtype)
    kernel = machine.kernel(machine.compile(text, name))
    kernel.run([out.ctypes.data, values.ctypes.data], [len(values)], [group])
    return out


def test_a_kernel_runs_over_its_grid(machine: KernelMachine) -> None:
    values = np.linspace(-3, 3, 101, dtype=np.float32)
    body = (
        "  %e = call float @air.exp.f32(float %x) #0\n  %r = call float @air.fma.f32(float %e, float 2.0, float 1.0) #0"
    )
    got = ran(machine, made.unary("k", body), "k", values, 101)
    np.testing.assert_array_almost_equal_nulp(got, (np.exp(values.astype(float)) * 2 + 1).astype(np.float32), 1)


def test_a_division_by_zero_and_of_the_least_by_minus_one_do_not_trap(machine: KernelMachine) -> None:
    values = np.array([7, -(2**31), 0], np.int32)
    for body, expected in (
        ("  %r = sdiv i32 %x, 0", [0, 0, 0]),
        ("  %r = sdiv i32 %x, -1", [-7, -(2**31), 0]),
        ("  %r = srem i32 %x, -1", [0, 0, 0]),
        ("  %r = sdiv i32 %x, 2", [3, -(2**30), 0]),
    ):
        assert ran(machine, made.unary("k", body, "i32"), "k", values, 3).tolist() == expected


def function(machine: KernelMachine, name: str, result: str, parameters: tuple[str, ...], *given: object) -> str:
    """A kernel body that calls one function of AIR with constants and %x."""
    arguments = ", ".join(f"{kind} {value}" for kind, value in zip(parameters, given, strict=True))
    return f"  %r = call {result} @{name}({arguments}) #0"


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("air.fast_tanh.f32", 1.0, math.tanh(1)),
        ("air.sinpi.f32", 1.0, 0.0),
        ("air.sinpi.f32", 0.25, math.sqrt(0.5)),
        ("air.sinpi.f32", -1.5, 1.0),
        ("air.cospi.f32", 0.5, 0.0),
        ("air.cospi.f32", 3.0, -1.0),
        ("air.rsqrt.f32", 4.0, 0.5),
        ("air.fract.f32", -1e-9, float(np.nextafter(np.float32(1), np.float32(0)))),
        ("air.rint.f32", 2.5, 2.0),
        ("air.exp10.f32", 2.0, 100.0),
        ("air.trunc.f32", -1.5, -1.0),
    ],
)
def test_functions_of_one_float(machine: KernelMachine, name: str, given: float, expected: float) -> None:
    text = made.unary("k", f"  %r = call float @{name}(float %x) #0")
    text = text.replace("declare float @air.exp", f"declare float @{name}(float) #0\ndeclare float @air.exp", 1)
    (got,) = ran(machine, text, "k", np.array([given], np.float32), 1)
    assert got == np.float32(expected) or abs(got - expected) < 1e-7


def test_nextafter_of_bits(machine: KernelMachine) -> None:
    text = made.unary("k", "  %r = call float @air.nextafter.f32(float %x, float 1.0) #0")
    text = text.replace("declare", "declare float @air.nextafter.f32(float, float) #0\ndeclare", 1)
    values = np.array([0.0, -1.0, 2.0, 1.0, math.nan, -0.0], np.float32)
    np.testing.assert_array_equal(ran(machine, text, "k", values, 6), np.nextafter(values, np.float32(1)))


def test_floats_become_bfloat_by_rounding_and_keep_small_numbers(machine: KernelMachine) -> None:
    body = "  %b = fptrunc float %x to bfloat\n  %r = fpext bfloat %b to float"
    text = made.unary("k", body, denormals="denorms_enable")
    values = np.array([1.00390625, 1.01171875, 1e-39, math.nan, 3.4e38], np.float32)
    got = ran(machine, text, "k", values, 5)
    assert got[:2].tolist() == [1.0, 1.015625]
    assert got[2] == pytest.approx(1e-39, rel=0.02)
    assert math.isnan(got[3])
    assert got[4] == struct.unpack("<f", struct.pack("<I", 0x7F80_0000))[0]


_TINY = float(np.finfo(np.float32).smallest_normal) / 4


@pytest.mark.parametrize(
    ("body", "given", "kept", "flushed"),
    [
        pytest.param("  %r = fmul float %x, 2.0", _TINY, 2 * _TINY, 0.0, id="an input and a result"),
        pytest.param("  %r = fmul float %x, 0x3FD0000000000000", 4 * _TINY, _TINY, 0.0, id="a result"),
        pytest.param("  %r = fneg float %x", _TINY, -_TINY, -_TINY, id="only a sign"),
        pytest.param("  %c = fcmp oeq float %x, 0.0\n  %r = select i1 %c, float 1.0, float 2.0",
                     _TINY, 2.0, 1.0, id="a comparison"),
        pytest.param("  %b = fptrunc float %x to bfloat\n  %r = fpext bfloat %b to float",
                     2**-130, 2**-130, 0.0, id="a bfloat"),
        pytest.param("  %h = fptrunc float %x to half\n  %d = fadd half %h, %h\n  %r = fpext half %d to float",
                     2**-20, 2**-19, 2**-19, id="a half keeps them"),
    ],
)  # fmt: skip
def test_denormals_are_flushed_where_the_metadata_says_so(
    machine: KernelMachine, body: str, given: float, kept: float, flushed: float
) -> None:
    for option, expected in (("denorms_enable", kept), ("denorms_disable", flushed)):
        text = made.unary("k", body, denormals=option)
        (got,) = ran(machine, text, "k", np.array([given], np.float32), 1)
        assert (got, math.copysign(1, got)) == (expected, math.copysign(1, expected)), option
    assert np.float32(_TINY) * 2 > 0, "the mode ends with the kernel"


@pytest.mark.parametrize(
    ("value", "expected"), [("select i1 %c, bfloat %x, bfloat 1.0", 0), ("bitcast i16 1 to bfloat", 1), ("", 1)]
)
def test_a_bfloat_that_was_computed_is_flushed_where_it_is_stored(
    machine: KernelMachine, value: str, expected: int
) -> None:
    body = f"  %c = icmp eq i32 %i, 0\n  %r = {value}" if value else ""
    text = made.unary("k", body, "bfloat")
    text = text if value else text.replace("store bfloat %r", "store bfloat %x")
    assert ran(machine, text, "k", np.array([1], np.uint16), 1).tolist() == [expected]


def test_a_multiplication_and_an_addition_are_fused_or_not(machine: KernelMachine) -> None:
    body = "  %r = call float @llvm.fmuladd.f32(float %x, float %x, float -1.0)"
    text = made.unary("k", body)
    value = np.array([1 + 2**-12], np.float32)
    kernel = machine.kernel(machine.compile(text, "k"))
    results = []
    for fused in (True, False, True):
        out = np.zeros(1, np.float32)
        kernel.fuse(fused=fused)
        kernel.run([out.ctypes.data, value.ctypes.data], [1])
        results.append(float(out[0]))
    assert results == [2**-11 + 2**-24, 2**-11, 2**-11 + 2**-24]


def test_threads_of_a_group_share_memory_and_lanes_add_up(machine: KernelMachine) -> None:
    values = np.arange(120, dtype=np.float32)
    got = ran(machine, made.group("k"), "k", values, 3, group=40)
    assert got.tolist() == [values[:40].sum(), values[40:80].sum(), values[80:].sum()]


def test_memory_of_a_threadgroup_is_not_initialized(machine: KernelMachine) -> None:
    # One simdgroup: the second value of the shared memory is never written.
    got = ran(machine, made.group("k"), "k", np.ones(32, np.float32), 1, group=32)
    assert math.isnan(got[0])


def test_a_barrier_that_not_all_threads_reach_is_an_error(machine: KernelMachine) -> None:
    text = made.group("k", "br i1 %first, label %bar, label %end\nbar:\n  " + made.BARRIER)
    with pytest.raises(KernelError, match="not all threads of a threadgroup reach a barrier"):
        ran(machine, text, "k", np.ones(40, np.float32), 1, group=40)


#: Each lane adds up as many numbers as it has itself, and the lanes below 20 then add up what they have.
TURNS = """
declare float @air.simd_sum.f32(float) #0
define weak_odr void @turns(ptr addrspace(1) noundef %out, ptr addrspace(2) noundef %in, i32 noundef %i) #0 {
begin:
  %w = zext i32 %i to i64
  %q = getelementptr inbounds float, ptr addrspace(1) %out, i64 %w
  %none = icmp eq i32 %i, 0
  br i1 %none, label %added, label %add
add:
  %n = phi i32 [ 0, %begin ], [ %more, %add ]
  %sum = phi float [ 0.0, %begin ], [ %next, %add ]
  %m = zext i32 %n to i64
  %p = getelementptr inbounds float, ptr addrspace(2) %in, i64 %m
  %x = load float, ptr addrspace(2) %p, align 4
  %next = fadd float %sum, %x
  %more = add i32 %n, 1
  %enough = icmp uge i32 %more, %i
  br i1 %enough, label %added, label %add
added:
  %total = phi float [ 0.0, %begin ], [ %next, %add ]
  %few = icmp ult i32 %i, 20
  br i1 %few, label %lanes, label %end
lanes:
  %all = call float @air.simd_sum.f32(float %total) #0
  br label %end
end:
  %r = phi float [ %total, %added ], [ %all, %lanes ]
  store float %r, ptr addrspace(1) %q, align 4
  ret void
}
attributes #0 = { convergent nounwind }
"""


@pytest.mark.parametrize("group", [32, 37, 64])
def test_lanes_may_leave_a_loop_one_by_one(machine: KernelMachine, group: int) -> None:
    values = np.arange(1, 75, dtype=np.float32)
    text = made.air(TURNS, "turns", [*made.BUFFERS, made.THREAD])
    got = ran(machine, text, "turns", values, 74, group)
    own = np.concatenate([[0], np.cumsum(values)[:-1]])
    assert got[20:].tolist() == own[20:].tolist()
    assert got[:20].tolist() == [own[:20].sum()] * 20


def test_a_function_without_definition_is_named(machine: KernelMachine) -> None:
    text = made.unary("k", "  %r = call float @air.quad_sum.f32(float %x) #0")
    compiled = machine.compile(text.replace("declare", "declare float @air.quad_sum.f32(float) #0\ndeclare", 1), "k")
    assert compiled.missing == ("air.quad_sum.f32",)
    with pytest.raises(KernelError, match=r"no definition of air\.quad_sum\.f32"):
        machine.kernel(compiled)


def test_a_buffer_that_is_not_bound_is_an_error(machine: KernelMachine) -> None:
    kernel = machine.kernel(machine.compile(made.unary("k", "  %r = fneg float %x"), "k"))
    with pytest.raises(KernelError, match="nothing is bound to input"):
        kernel.run({"output": ctypes.addressof(ctypes.c_float())}, [1])


def test_compiled_kernels_are_kept_by_their_content(tmp_path: Path) -> None:
    first = KernelMachine(tmp_path)
    data = made.metallib({"k": made.unary("k", "  %r = fneg float %x")})
    (compiled,) = [first.compile_cached(function) for function in metallib.functions(data)]
    (kept,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    again = KernelMachine(tmp_path)
    again.compile = None  # type: ignore[method-assign, assignment]
    (function,) = metallib.functions(data)
    assert again.compile_cached(function) == compiled
    assert kept.name == function.digest


@pytest.mark.parametrize(
    ("name", "result", "parameters"),
    [
        ("air.simd_shuffle_xor.s.i32", "i32", ("i32", "i16")),
        ("air.simd_shuffle_and_fill_up.f32", "float", ("float", "float", "i16", "i16")),
        ("air.simd_prefix_exclusive_sum.u.i32", "i32", ("i32",)),
        ("air.atomic.global.add.f32", "float", ("ptr", "float", "i32", "i32", "i1")),
        ("air.simdgroup_matrix_8x8_multiply_accumulate.v64f32.v64f16.v64f32.v64f32", "<64 x float>", ("<64 x half>", "<64 x float>", "<64 x float>")),
        ("air.fabs.v2f32", "<2 x float>", ("<2 x float>",)),
        ("air.convert.s.i64.f.bf16", "i64", ("bfloat",)),
    ],
)  # fmt: skip
def test_definitions_are_valid(machine: KernelMachine, name: str, result: str, parameters: tuple[str, ...]) -> None:
    text = intrinsics.define(name, result, parameters)
    assert text is not None
    text += intrinsics.helpers(text)
    module = machine._llvm.parse_assembly(f"{text}\n{intrinsics.declarations(text)}")
    module.verify()


def test_an_unknown_function_has_no_definition() -> None:
    assert intrinsics.define("air.unheard_of.f32", "float", ("float",)) is None
    assert intrinsics.define("memcpy", "ptr", ("ptr",)) is None


def test_without_a_compiler_the_fibers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match=r"no C\+\+ compiler is found"):
        fibers.cxx()


#: Each thread puts its value where another one's was that has not been read yet, if lanes run one after another.
REVERSED = """
@shared = internal unnamed_addr addrspace(3) global [32 x float] undef, align 4
declare void @air.wg.barrier(i32, i32) #0
define weak_odr void @{name}(ptr addrspace(1) noundef %out, ptr addrspace(2) noundef %in, i32 noundef %i) #0 {{
  %w = zext i32 %i to i64
  %other = sub i64 31, %w
  %p = getelementptr inbounds float, ptr addrspace(2) %in, i64 %w
  %x = load float, ptr addrspace(2) %p, align 4
  %mine = getelementptr inbounds [32 x float], ptr addrspace(3) @shared, i64 0, i64 %w
  %its = getelementptr inbounds [32 x float], ptr addrspace(3) @shared, i64 0, i64 %other
  store float %x, ptr addrspace(3) %mine, align 4
  call void @air.wg.barrier(i32 2, i32 1) #0
  %y = load float, ptr addrspace(3) %its, align 4
  store float %y, ptr addrspace(3) %mine, align 4
  call void @air.wg.barrier(i32 2, i32 1) #0
  %z = load float, ptr addrspace(3) %mine, align 4
  %q = getelementptr inbounds float, ptr addrspace(1) %out, i64 %w
  store float %z, ptr addrspace(1) %q, align 4
  ret void
}}
attributes #0 = {{ convergent nounwind }}
"""


def test_lanes_go_in_lockstep_in_the_kernels_that_rely_on_it(machine: KernelMachine) -> None:
    values = np.arange(32, dtype=np.float32)

    def result(name: str) -> np.ndarray:
        text = made.air(REVERSED.format(name=name), name, [*made.BUFFERS, made.THREAD])
        return ran(machine, text, name, values, 32, 32)

    assert np.array_equal(result("eigh_jacobi_x"), values[::-1])
    assert not np.array_equal(result("k"), values[::-1])


def test_a_vector_may_lie_anywhere(machine: KernelMachine) -> None:
    body = "  %v = load <4 x float>, ptr addrspace(2) %p, align 16\n  %r = extractelement <4 x float> %v, i32 3"
    values = np.arange(24, dtype=np.float32)
    got = np.zeros(20, np.float32)
    kernel = machine.kernel(machine.compile(made.unary("k", body), "k"))
    kernel.run([got.ctypes.data, values.ctypes.data], [20], [1])
    assert got.tolist() == values[3:23].tolist()
