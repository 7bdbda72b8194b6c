"""Kernels read by Clang beside opcheck's own Metal header."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from opcheck.common.errors import UsageError
from opcheck.features.compile.check import metal_check
from opcheck.features.compile.child.inductor_metal import SideCompiler
from opcheck.features.compile.compile_records import (
    CompiledVariants,
    FusedNode,
    MetalKernel,
    SideGraph,
    TriedVariant,
    Variant,
)
from opcheck.model.records import SourceLocation

pytest.importorskip("metal_check.cindex", reason="the extra metal is not installed")

#: Importing Inductor makes torch warn of itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")

WRITTEN = """\
    kernel void generated_kernel_0(
        device float* out_ptr0,
        constant float* in_ptr0,
        uint xindex [[thread_position_in_grid]]
    ) {
        int x0 = xindex;
        auto tmp0 = in_ptr0[x0];
        auto tmp1 = metal::precise::exp(tmp0);
        out_ptr0[x0] = static_cast<float>(tmp1);
    }
"""


def graph(*sources: str, nodes: tuple[FusedNode, ...] = (), **fields: Any) -> SideGraph:
    kernels = tuple(
        MetalKernel(name="generated_kernel_0", source=source, headers=("utils",), nodes=nodes) for source in sources
    )
    return SideGraph(phase="inference", nodes=1, kernels=kernels, **fields)


def compiled(function: Callable[..., Any], *args: Any) -> SideGraph:
    side = SideCompiler()
    torch.compiler.reset()
    torch.compile(function, backend=side)(*args)
    (result,) = side.graphs
    assert not result.failures
    assert result.kernels
    return result


def everything(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.nn.functional.layer_norm(x, (64,))
    z = torch.softmax(y @ w, -1)
    picked = torch.zeros(4, 64).index_add(0, z.argmax(-1) % 4, x)
    return y.bfloat16().exp() + 1, z.half() * 2, z.std(), (x > 2).any(), x.prod(-1), picked


def test_kernels_of_inductor_are_in_order() -> None:
    with torch.no_grad():
        result = compiled(everything, torch.randn(4, 64), torch.randn(64, 64))
    text = "".join(kernel.source for kernel in result.kernels)
    for used in ("threadgroup_sum", "welford", "argmax", "bfloat", "half", "atomic_add"):
        assert used in text
    assert metal_check.check(result) == ()


@pytest.mark.parametrize(
    "function",
    [torch.special.digamma, torch.special.i1, torch.erfinv, torch.rand_like],
    ids=lambda function: function.__name__,
)
def test_functions_of_their_own_headers(function: Callable[..., Any]) -> None:
    assert metal_check.check(compiled(function, torch.rand(40))) == ()


def test_indices_that_are_checked() -> None:
    result = compiled(lambda x, i: x[i], torch.rand(8), torch.tensor([1, 2]))
    assert "TORCH_REPORT_ERROR" in result.kernels[0].source
    assert metal_check.check(result) == ()


def test_flex_attention_brings_its_own_headers() -> None:
    def attention(q: torch.Tensor) -> Any:
        return flex_attention(q, q, q)

    with torch.no_grad():
        result = compiled(attention, torch.rand(1, 2, 128, 16))
    assert "#include" in "".join(kernel.source for kernel in result.kernels)
    assert metal_check.check(result) == ()


BRANCHES = "torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))"


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def test_a_name_that_the_branches_of_cond_share_is_found_with_its_line() -> None:
    result = metal_check.check(compiled(branches, torch.rand(4)))
    assert [item.op for item in result] == ["generated_kernel_0"]
    assert result[0].message.startswith("generated_kernel_0, line 1: redefinition of 'generated_kernel_0'")
    assert result[0].location is not None
    assert BRANCHES in result[0].location.text


@pytest.mark.parametrize(
    ("written", "wrong", "line", "message"),
    [
        ("precise::exp(tmp0)", "precise::exq(tmp0)", 8, "no member named 'exq' in namespace"),
        ("auto tmp1", "double tmp1", 8, "no double"),
        ("out_ptr0[x0] =", "in_ptr0[x0] =", 9, "not assignable"),
        ("exp(tmp0)", "exp(tmp9)", 8, "undeclared identifier 'tmp9'"),
        ("exp(tmp0);", "exp(tmp0)", 8, "expected ';'"),
        ("metal::precise::exp(", "metal::simd_sum(long(x0)) + (", 8, "no matching function"),
        ("metal::precise::exp(", "c10::metal::max(1, ", 8, "no matching function"),
    ],
)
def test_broken_kernels(written: str, wrong: str, line: int, message: str) -> None:
    assert metal_check.check(graph(WRITTEN)) == ()
    result = metal_check.check(graph(WRITTEN.replace(written, wrong)))
    assert result[0].kind == "shader"
    assert result[0].message.startswith(f"generated_kernel_0, line {line}: ")
    assert message in result[0].message
    assert not result[0].ours


def test_an_error_inside_a_header_is_of_the_kernel_that_led_there() -> None:
    wrong = WRITTEN.replace("metal::precise::exp(tmp0)", "as_type<int>(1L)")
    result = metal_check.check(graph(wrong))
    assert any("as_type keeps the size" in item.message for item in result)
    assert all(item.op == "generated_kernel_0" for item in result)


def test_literals_are_floats() -> None:
    """As in Metal: of a double, ``max`` would find no overload."""
    assert metal_check.check(graph(WRITTEN.replace("exp(tmp0)", "fmax(tmp0, 2.0)"))) == ()
    test = "static_assert(sizeof(2.0) == 4); auto tmp1"
    assert metal_check.check(graph(WRITTEN.replace("auto tmp1", test))) == ()


def test_the_node_that_the_line_names_is_blamed() -> None:
    lines = [SourceLocation(file="m.py", line=number) for number in (1, 2)]
    nodes = (
        FusedNode(name="sin", op="aten::sin", location=lines[0]),
        FusedNode(name="exp", op="aten::exp", location=lines[1]),
    )
    result = metal_check.check(graph(WRITTEN.replace("exp(tmp0)", "exp(tmp9)"), nodes=nodes))
    assert [item.location for item in result] == [lines[1]]
    result = metal_check.check(graph(WRITTEN.replace("in_ptr0[x0]", "in_ptr1[x0]"), nodes=nodes))
    assert result[0].location == lines[0]


def test_the_failures_of_a_variant_and_what_they_do_not_prove() -> None:
    tried = TriedVariant(
        variant=Variant(backend="inductor", metal=True), outcome="works", side=(graph(WRITTEN), graph(WRITTEN, WRITTEN))
    )
    before = CompiledVariants(model="m", installed_torch="2.13.0", device="cpu", tried=(tried,))
    after = metal_check.check_kernels(before)
    assert [len(item.failures) for item in after.tried[0].side] == [0, 1]
    assert after.not_checked == (metal_check.NOT_PROVEN,)
    assert msgspec.structs.replace(after, tried=(tried,), not_checked=()) == before


def test_without_libclang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "clang", None)
    with pytest.raises(UsageError, match="libclang is not there") as raised:
        metal_check.index()
    assert "opcheck[metal]" in raised.value.hint


def test_the_kernels_of_aotinductor_have_the_headers_that_it_writes_out() -> None:
    side = SideCompiler(ahead=True)
    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(lambda x: torch.nn.functional.layer_norm(x, (64,)), backend=side)(torch.randn(4, 64))
    (result,) = side.graphs
    assert {"utils", "reduction_utils"} <= {*result.kernels[0].headers}
    assert metal_check.check(result) == ()
