"""Operators, tensors and layouts that are not torch's plain ones: followed, or ended with a word that names the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import opcheck
from opcheck.capture.child.recording.graph import op_calls, to_graph
from opcheck.data.registrations import load
from opcheck.judge.judge import judge
from opcheck.model.records import OpCall
from opcheck.simulator.errors import DataDependentError, NotSimulatedError, RefusedError
from tests.simulator.mac import names, recorded, target

NAMESPACE = "opcheck_tests"


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    made = torch.library.Library(NAMESPACE, "FRAGMENT")
    yield made
    made._destroy()


def _own(device: str | None) -> Callable[..., torch.Tensor]:
    """A user's operator, as the decorator makes it."""

    def double(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    name = f"{NAMESPACE}::double_{device or 'everywhere'}"
    return torch.library.custom_op(name, double, mutates_args=(), device_types=device)


def _one(run: Callable[..., Any]) -> OpCall:
    calls = recorded(run, torch.ones(2)).calls
    return op_calls(to_graph(calls, {}))[-1]


def _because(call: OpCall) -> tuple[str, str]:
    verdict = judge(call, target(), load())
    return verdict.status, verdict.because.partition("; ")[2]


def test_an_operator_with_one_body_for_all_devices_is_followed() -> None:
    assert names(_own(None), torch.ones(2)) == ["sin", "mul.Tensor"]


def test_one_with_a_body_for_the_cpu_alone_needs_the_variable() -> None:
    call = _one(_own("cpu"))
    assert call.op == f"{NAMESPACE}::double_cpu"
    assert [spec.shape for spec in call.outputs] == [(2,)]
    verdict = judge(call, target(), load())
    assert (verdict.status, verdict.kind) == ("fallback", "env")
    assert verdict.because == "the program registers a CPU kernel and no MPS kernel"


def test_one_for_cuda_alone_is_unknown_and_told_before_the_run_ends() -> None:
    operator = _own("cuda")
    seen: list[Any] = []

    def run(x: torch.Tensor, recorder: Any) -> None:
        seen.append(recorder)
        operator(x)

    with pytest.raises(NotSimulatedError, match="its library has no meta kernel for it"):
        recorded(run, torch.ones(2), pass_recorder=True)
    (call,) = op_calls(to_graph(seen[0].calls, {}))
    assert "kernel for CUDA alone" in _because(call)[1]


def test_a_composite_of_a_library_is_followed(library: torch.library.Library) -> None:
    library.define("shifted(Tensor x) -> Tensor")
    library.impl("shifted", lambda x: x.cos() + 1, "CompositeImplicitAutograd")
    assert names(torch.ops.opcheck_tests.shifted, torch.ones(2)) == ["cos", "add.Tensor"]


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda x: x.to_sparse_csr(), "'new_compressed_tensor' from the 'mps:0' device"),
        (lambda x: torch.nested.nested_tensor([x, x]), "NestedTensorImpl storage must be either"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "'aten::empty_quantized' .* 'QuantizedMPS'"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_the_simulated_tensor_cannot_be_is_named(run: Callable[..., Any], text: str) -> None:
    with pytest.raises((NotSimulatedError, RefusedError), match=text):
        recorded(run, torch.eye(2))


@pytest.mark.filterwarnings("ignore")
def test_a_tensor_subclass_is_taken_apart() -> None:
    def run(x: torch.Tensor) -> None:
        jagged = torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged)
        assert jagged.values().shape == (3, 2)

    assert "cat" in names(run, torch.ones(2, 2))


def test_what_python_alone_knows_of_a_jagged_tensor_is_no_operator() -> None:
    def run(x: torch.Tensor) -> None:
        jagged = torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged)
        assert torch.ops.prim.layout.default(jagged) is not None

    names(run, torch.ones(2, 2))


@pytest.mark.filterwarnings("ignore")
def test_the_packed_weights_of_a_quantized_layer_are_passed_on() -> None:
    layer = torch.ao.quantization.quantize_dynamic(
        torch.nn.Sequential(torch.nn.Linear(2, 2)), {torch.nn.Linear}, dtype=torch.qint8
    )
    with opcheck.emulate("2.13", "15", fallback=True):
        assert layer(torch.ones(1, 2, device="mps")).shape == (1, 2)


@pytest.mark.parametrize(
    ("run", "shape"),
    [
        (lambda x: torch.sparse.mm(x.to_sparse(), x), (4, 4)),
        (lambda x: x.to_sparse().to_dense(), (4, 4)),
        (lambda x: (x.to_sparse() * 2).to_dense(), (4, 4)),
        # Its body in C++ writes to memory that the simulated tensor does not have, if it finds values.
        (lambda x: x.to_sparse().t(), (4, 4)),
    ],
    ids=["mm", "dense", "times", "transposed"],
)
def test_a_sparse_tensor_without_values_is_followed(run: Callable[..., Any], shape: Any) -> None:
    made = []
    recorded(lambda x: made.append(tuple(run(x).shape)), torch.ones(4, 4, device="meta"))
    assert made == [shape]


@pytest.mark.parametrize(
    "run",
    [lambda x: x._nnz(), lambda x: x.coalesce().values(), lambda x: x._indices()],
    ids=["number", "values", "indices"],
)
def test_the_number_of_a_sparse_tensors_values_is_not_assumed(run: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError, match="number of a sparse tensor's values"):
        recorded(lambda x: run(x.to_sparse()), torch.ones(4, 4, device="meta"))
