"""What Inductor generates for mps on this machine, program by program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opcheck.features.compile.check.metal_check import BUFFERS, lint
from opcheck.features.compile.child.graph_records import failure as explained
from opcheck.features.compile.child.inductor_metal import SideCompiler
from opcheck.tracing.torch_private import compilation
from tests.features.compile.side import externs, failures, kernels, side

HERE = Path(__file__).name

pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="what 2.13 generates is written down"),
    # torch's own, where its compiler is first imported
    pytest.mark.filterwarnings("ignore"),
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 2)})

    def forward(self, x: Tensor) -> Tensor:
        return self.heads["a"](self.body(x))


def test_a_network_is_metal_with_its_products_outside() -> None:
    (graph,) = side(Block(), torch.randn(4, 8))
    assert (graph.phase, graph.failures) == ("inference", ())
    assert externs([graph]) == {"aten::addmm.out"}
    (kernel,) = graph.kernels
    assert kernel.name == "generated_kernel_0"
    assert "kernel void generated_kernel_0(" in kernel.source
    assert "#include" not in kernel.source
    assert kernel.buffers == 4
    assert {"aten::var_mean.correction", "aten::erf"} <= {node.op for node in kernel.nodes}


def test_layers_of_a_library_are_named_by_their_module() -> None:
    forward, backward = side(Block(), torch.randn(4, 8), train=True)
    assert (forward.phase, backward.phase) == ("forward", "backward")
    assert {extern.module for extern in forward.externs} == {"body.0", "heads.a"}
    for graph in (forward, backward):
        modules = {node.module for kernel in graph.kernels for node in kernel.nodes}
        assert {"body.1", "body.2"} <= modules


def test_convolutions_train() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    graphs = side(model, torch.randn(2, 3, 8, 8), train=True)
    assert failures(graphs) == []
    assert {"aten::convolution", "aten::convolution_backward"} <= externs(graphs)
    assert any("welford" in kernel.source for graph in graphs for kernel in graph.kernels)


def _attention(x: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x)


def test_attention_runs_the_kernel_of_mps_without_grad_and_its_formula_with() -> None:
    query = torch.randn(1, 2, 8, 16)
    assert externs(side(_attention, query)) == {"aten::_scaled_dot_product_attention_math_for_mps"}
    graphs = side(_attention, query.requires_grad_(), train=True)
    assert failures(graphs) == []
    assert not any("attention" in name for name in externs(graphs))
    assert kernels(graphs) > 2


def _cond(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))


def test_kernels_of_branches_share_a_name() -> None:
    (graph,) = side(_cond, torch.randn(4, 8))
    assert graph.failures == ()
    (result,) = lint(graph)
    assert result.op == "generated_kernel_0"
    assert result.location is not None
    assert (result.location.file.rpartition("/")[2], result.location.function) == (HERE, "_cond")


def _many(*tensors: Tensor) -> Tensor:
    total = tensors[0].sin()
    for tensor in tensors[1:]:
        total = total + tensor.sin()
    return total


def test_forty_inputs_are_more_buffers_than_metal_binds() -> None:
    (graph,) = side(_many, *torch.randn(40, 4, 8).unbind())
    (result,) = lint(graph)
    assert graph.kernels[0].buffers == 41 > BUFFERS
    assert result.message.startswith("generated_kernel_0 takes 41 buffers")
    assert result.location is not None
    assert result.location.function == "_many"


def _double(x: Tensor) -> Tensor:
    return x.double() * 2


def _sinh(x: Tensor) -> Tensor:
    return x.sinh()


@pytest.mark.parametrize(
    ("program", "kind", "said", "op"),
    [
        (_double, "dtype", "no float64", "prims::convert_element_type"),
        (_sinh, "operator", "does not implement sinh", "aten::sinh"),
    ],
)
def test_a_refusal_names_the_operator_and_the_line(program: Callable[..., Any], kind: str, said: str, op: str) -> None:
    (result,) = failures(side(program, torch.randn(4, 8)))
    assert (result.kind, result.ours) == (kind, False)
    assert said in result.message
    assert result.op.startswith(op)
    assert result.location is not None
    assert result.location.function == program.__name__


def _spectrum(x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * 2).relu()


def _drop(x: Tensor) -> Tensor:
    return nn.functional.dropout(x, 0.5, training=True)


_TABLE = torch.arange(8.0)


def _constants(x: Tensor) -> Tensor:
    return x * _TABLE + torch.tensor([1.0, 2.0] * 4)


def _sorted(x: Tensor) -> Tensor:
    values, places = x.sort()
    return values.scatter(1, places, x.cumsum(1)) + x.topk(8).values


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (_spectrum, {"aten::_fft_r2c", "aten::_fft_c2r"}),
        (_drop, {"aten::randint.low_out"}),
        (_constants, set()),
        (_sorted, {"aten::sort.stable", "aten::cumsum", "aten::topk"}),
    ],
)
def test_what_stays_eager(program: Callable[..., Any], expected: set[str]) -> None:
    graphs = side(program, torch.randn(4, 8))
    assert failures(graphs) == []
    assert expected <= externs(graphs)
    assert kernels(graphs) > 0


def test_an_optimizer_step_is_compiled() -> None:
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.randn(2, 4)).sum().backward()
    graphs = side(optimizer.step)
    assert failures(graphs) == []
    assert kernels(graphs) >= 1


def _nearer(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, column: Tensor) -> Tensor:
    return score + (row - column)


def _flexible(x: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    result = flex_attention(x, x, x, score_mod=_nearer)
    assert isinstance(result, Tensor)
    return result


def test_the_template_of_flex_attention_is_a_kernel() -> None:
    (graph,) = side(_flexible, torch.randn(1, 2, 128, 32))
    assert graph.failures == ()
    assert "metal_flex_attention" in {kernel.name for kernel in graph.kernels}


@pytest.mark.parametrize("mode", ["", "reduce-overhead", "max-autotune"])
def test_a_mode_takes_no_cuda_graphs_on_mps_and_writes_the_same_kernels(mode: str) -> None:
    net, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), torch.randn(4, 8)
    (usual,) = side(net, x)
    (graph,) = side(net, x, compiler=SideCompiler(mode=mode))
    assert not graph.failures
    assert [k.source for k in graph.kernels] == [k.source for k in usual.kernels]
    assert ["CUDA graphs" in note for note in graph.notes] == [True] * bool(mode)


def _cast(x: Tensor) -> Tensor:
    with torch.autocast("mps", dtype=torch.bfloat16):
        return x @ x


def test_autocast_for_mps_casts() -> None:
    (graph,) = side(_cast, torch.randn(4, 4))
    assert externs([graph]) == {"aten::mm.out"}
    assert graph.externs[0].dtypes == ("bfloat16",)
    assert len(graph.notes) == 1
    (graph,) = side(lambda x: x @ x, torch.randn(4, 4))
    assert not graph.notes


def test_aotinductor_writes_the_kernels_into_its_code() -> None:
    net, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()), torch.randn(4, 8)
    (usual,) = side(net, x)
    (graph,) = side(net, x, compiler=SideCompiler(ahead=True))
    assert not [*graph.failures, *lint(graph)]
    (kernel,), (other,) = graph.kernels, usual.kernels
    assert kernel.source.replace(kernel.name, other.name) == other.source


def test_what_cannot_be_done_without_a_mac_is_ours() -> None:
    (result,) = failures(side(torch.geqrf, torch.randn(4, 4)))
    assert (result.kind, result.ours) == ("harness", True)


def test_a_missing_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compilation.missing_for_metal() == ""
    monkeypatch.delattr("torch._inductor.compile_fx.compile_fx_inner")
    assert compilation.missing_for_metal() == "torch._inductor.compile_fx.compile_fx_inner"


class Grows(nn.Module):
    """Computes with a float of Python that changes from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 0.5

    def forward(self, x: Tensor) -> Tensor:
        self.factor = self.factor * 1.5
        return x * self.factor


@pytest.mark.slow  # Inductor compiles C++ for the float
def test_a_float_of_python_stays_on_the_cpu() -> None:
    compiler = SideCompiler()
    torch.compiler.reset()
    compiled = torch.compile(Grows(), backend=compiler)
    with torch.no_grad():
        compiled(torch.ones(8))
        compiled(torch.ones(8))
    assert not failures(compiler.graphs)
    assert "constant float* in_ptr1" in compiler.graphs[-1].kernels[0].source


def test_a_failure_on_a_float_of_python_is_told_from_one_on_the_programs_own_dtype() -> None:
    messages = []
    for shape in ((), (8,)):
        graph = torch.fx.symbolic_trace(torch.nn.Identity())
        (argument,) = graph.graph.find_nodes(op="placeholder")
        argument.meta["val"] = torch.empty(shape, dtype=torch.float64, device="meta")
        messages.append(explained(KeyError(torch.float64), graph).message)
    assert messages == [
        "Inductor's Metal backend has no float64, where Dynamo passes floats of Python",
        "Inductor's Metal backend has no float64",
    ]
