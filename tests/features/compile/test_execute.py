"""Inductor's kernels run on the CPU in Metal's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from opcheck.common.errors import UsageError
from opcheck.features.compile import metal_runner
from opcheck.features.compile.child import cpu_kernels
from opcheck.features.compile.child.cpu_kernels import CpuKernel, CpuKernelError, compile_kernels
from opcheck.features.compile.child.inductor_metal import SideCompiler

#: Importing Inductor makes torch warn of itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")

F = torch.nn.functional


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        metal_runner.prepare()
    except UsageError as error:
        pytest.skip(str(error))


def ran(function: Callable[..., Any], *args: Any) -> Any:
    """What the function's kernels give; at least one runs."""
    side = SideCompiler(run_metal=True)
    torch.compiler.reset()
    CpuKernel.called = 0
    result = torch.compile(function, backend=side)(*args)
    assert [graph.failures for graph in side.graphs] == [()] * len(side.graphs)
    assert CpuKernel.called
    return result


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: (x.exp() + 1) / x, id="pointwise"),
        pytest.param(lambda x: (x.sum(), x.sum(0), x.amax(-1)), id="reductions"),
        pytest.param(lambda x: (x.argmax(-1), x.argmin(0), x.long().max()), id="indices"),
        pytest.param(lambda x: F.layer_norm(x, (700,)), id="welford"),
        pytest.param(lambda x: torch.softmax(x, -1), id="softmax"),
        pytest.param(lambda x: (x.flatten().std(), x.flatten().prod()), id="many-stages"),
        pytest.param(lambda x: ((x > 3).any(), x.isnan().all(-1)), id="any"),
        pytest.param(lambda x: x.new_zeros(8).index_add(0, x[0].long() % 8, x[1]), id="atomics"),
        pytest.param(lambda x: F.conv1d(x[None], x[:, :5, None]).relu(), id="extern"),
        pytest.param(lambda x: x.bfloat16() * 3, id="bfloat16"),
        pytest.param(lambda x: x.half().exp().sum(-1), id="half"),
        pytest.param(torch.special.i0, id="special"),
    ],
)
def test_as_eager(function: Callable[..., Any]) -> None:
    # 5 x 700: no multiple of a simdgroup; 3,500 are more than the threads of a threadgroup.
    x = normal(5, 700)
    torch.testing.assert_close(ran(function, x), function(x))


def test_attention_runs_as_its_composite() -> None:
    def attention(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x).relu()

    x = normal(1, 2, 8, 16)
    with torch.no_grad():
        torch.testing.assert_close(ran(attention, x), attention(x))


def test_gradients() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
    x = normal(4, 16)
    expected = torch.autograd.grad(layer(x).square().sum(), tuple(layer.parameters()))
    given = torch.autograd.grad(ran(layer, x).square().sum(), tuple(layer.parameters()))
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


def test_a_constant_of_the_graph() -> None:
    numbers = torch.tensor([1.0, 2.0, 4.0])

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0, 4.0]) + numbers

    torch.testing.assert_close(ran(function, normal(3)), function(normal(3)))


def test_an_index_out_of_range_is_reported() -> None:
    with pytest.raises(CpuKernelError, match=r"Index 9 out of range \[0, 8\)"):
        ran(lambda x, i: x[i], torch.rand(8), torch.tensor([1, 9]))


KERNEL = """
    kernel void given(
        device float* out,
        constant float* in,
        uint r [[thread_position_in_grid]],
        uint in_group [[thread_position_in_threadgroup]]
    ) {
        threadgroup float shared[64];
        BODY
    }
"""


def call(body: str, value: torch.Tensor, group: int = 64) -> torch.Tensor:
    source = KERNEL.replace("BODY", body)
    function = compile_kernels([("given", source, ["utils", "reduction_utils"])])["given"]
    out = torch.zeros_like(value)
    function(out, value, threads=[len(value)], group_size=[group])
    return out


BARRIER = "threadgroup_barrier(metal::mem_flags::mem_threadgroup);"


def test_threads_wait_at_a_barrier() -> None:
    value = torch.arange(128.0)
    body = f"shared[in_group] = in[r]; {BARRIER} out[r] = shared[63 - in_group];"
    assert torch.equal(call(body, value), value.view(2, 64).flip(1).flatten())


def test_what_is_missing_shows_where_a_barrier_is() -> None:
    """Without it a thread reads what others have not written yet: the result is not eager's."""
    value = torch.arange(64.0) + 1
    missing = call("shared[in_group] = in[r]; out[r] = shared[63 - in_group];", value)
    assert not torch.equal(missing, value.flip(0))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("out[r] = metal::simd_sum(in[r]);", [496.0] * 32 + [632.0] * 16),
        ("out[r] = metal::simd_max(in[r]);", [31.0] * 32 + [47.0] * 16),
        ("out[r] = metal::simd_broadcast(in[r], 3);", [3.0] * 32 + [35.0] * 16),
        ("out[r] = in_group < 2 ? metal::simd_sum(in[r]) : -1;", [1.0] * 2 + [-1.0] * 46),
        (
            "out[r] = metal::simd_shuffle_and_fill_down(in[r], 9.0f, 1);",
            # lanes that are not there leave zeros
            [*range(1, 32), 9.0, *range(33, 48), 0.0],
        ),
        ("out[r] = metal::popcount(ulong(metal::simd_ballot(in[r] > 40)));", [0.0] * 32 + [7.0] * 16),
    ],
)
def test_lanes_of_a_simdgroup(body: str, expected: list[float]) -> None:
    assert call(body, torch.arange(48.0), 48).tolist() == expected


def test_a_barrier_that_not_all_threads_reach() -> None:
    with pytest.raises(CpuKernelError, match="not all threads of a threadgroup reach a barrier"):
        call(f"if (in_group < 7) {BARRIER}", torch.zeros(64))


def test_a_threadgroup_that_is_too_large() -> None:
    with pytest.raises(CpuKernelError, match="threadgroups of 2048 threads"):
        call("out[r] = 1;", torch.zeros(2048), 2048)


def test_what_the_compiler_refuses() -> None:
    with pytest.raises(metal_runner.CompilerError, match="metal_has_no_double"):
        call("double x = in[r]; out[r] = x;", torch.zeros(1))


def test_two_kernels_of_one_name() -> None:
    with pytest.raises(CpuKernelError, match="2 kernels of one library are called given"):
        compile_kernels([("given", KERNEL, []), ("given", KERNEL, [])])


def test_a_template_is_not_run_and_said_to_be_ours() -> None:
    side = SideCompiler(run_metal=True)
    torch.compiler.reset()
    x = normal(1, 2, 128, 16)
    with torch.no_grad():
        result = torch.compile(lambda q: flex_attention(q, q, q), backend=side)(x)
    assert [(failure.ours, failure.kind) for failure in side.graphs[0].failures] == [(True, "harness")]
    assert "flex_attn_fwd" in side.graphs[0].failures[0].message
    torch.testing.assert_close(result, F.scaled_dot_product_attention(x, x, x))


@pytest.mark.parametrize("value", [3, 2.5, torch.tensor(2.5, dtype=torch.float64)])
def test_numbers_are_bound_by_their_value(value: Any) -> None:
    kind = "long" if isinstance(value, int) else "float"
    source = (
        f"kernel void given(device float* out, constant {kind}& n, "
        "uint i [[thread_position_in_grid]]) { out[i] = n; }"
    )
    out = torch.zeros(2)
    compile_kernels([("given", source, ["utils"])])["given"](out, value, threads=[2])
    assert out.tolist() == [float(value)] * 2


def test_positions_that_are_not_emulated() -> None:
    source = "kernel void given(device float* out, uint i [[thread_index_in_simdgroup]]) { }"
    with pytest.raises(CpuKernelError, match="given asks for"):
        cpu_kernels.compile_kernels([("given", source, ["utils"])])


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    metal_runner.compiler.cache_clear()
    try:
        with pytest.raises(UsageError, match="no C\\+\\+ compiler is found"):
            metal_runner.compiler()
    finally:
        metal_runner.compiler.cache_clear()
