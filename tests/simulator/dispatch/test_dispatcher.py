"""The ways that a call can go: leaf, decomposed, composite, on the CPU; with values and without."""

from __future__ import annotations

import pytest
import torch

from opcheck.capture.child.recording.graph import op_call
from opcheck.simulator.dispatch.tensor import is_on_mps, wrap
from opcheck.simulator.dispatch.tensor_meta import spec_of
from opcheck.simulator.errors import RefusedError
from tests.simulator.mac import names, recorded

BIG = torch.zeros(200, 200)  # more elements than values are kept for


def test_linear_stays_whole() -> None:
    assert names(torch.nn.functional.linear, torch.ones(2, 3), torch.ones(4, 3)) == ["linear"]


def test_a_composite_without_kernel_is_taken_apart() -> None:
    assert names(torch.matmul, torch.ones(2, 3), torch.ones(3, 4)) == ["mm"]


def test_inference_mode_takes_the_same_way() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> None:
        with torch.inference_mode():
            torch.nn.functional.linear(x, w)
            torch.matmul(x, w.t())

    assert names(run, torch.ones(2, 3), torch.ones(4, 3)) == ["linear", "t", "mm"]


def test_a_composite_kernel_says_what_it_calls() -> None:
    (entry,) = recorded(lambda w, i: torch.nn.functional.embedding(i, w), BIG, torch.tensor([1])).calls
    assert entry.call.route.name == "aten::embedding"
    assert entry.call.inner == ("aten::index_select",)


@pytest.mark.parametrize(
    ("transposed", "inner"),
    [(False, ("aten::_mps_convolution",)), (True, ("aten::_mps_convolution_transpose", "aten::add_.Tensor"))],
)
def test_convolution_calls_the_kernel_for_mps(inner: tuple[str, ...], *, transposed: bool) -> None:
    run = torch.conv_transpose2d if transposed else torch.conv2d
    (entry,) = recorded(run, torch.ones(1, 2, 8, 8), torch.ones(2, 2, 3, 3), torch.ones(2)).calls
    assert entry.call.inner == inner


def test_factories_go_where_they_are_told() -> None:
    def run(x: torch.Tensor) -> None:
        assert is_on_mps(torch.zeros(3, device=x.device))
        assert is_on_mps(torch.zeros(3, device="mps"))
        assert is_on_mps(torch.tensor([1.0, 2.0], device="mps"))
        assert is_on_mps(torch.zeros_like(x))
        assert type(torch.zeros(3)) is torch.Tensor
        assert type(torch.zeros_like(x, device="cpu")) is torch.Tensor

    recorded(run, torch.ones(2))


def test_the_temporaries_of_a_composite_are_on_mps() -> None:
    called = names(lambda x: x.fill_diagonal_(1.0) + torch.special.logit(x), torch.rand(3, 3))
    assert all("cpu" not in name for name in called)
    calls = recorded(torch.logit, torch.rand(3)).calls
    assert all(ref.spec.device == "mps" for entry in calls for ref in entry.call.outputs)


def test_moves_both_ways() -> None:
    def run(x: torch.Tensor) -> None:
        assert type(x.cpu()) is torch.Tensor
        assert x.cpu().tolist() == [1.0, 2.0]
        assert is_on_mps(x.cpu().to("mps"))
        assert x.to("cpu", torch.int64).dtype is torch.int64
        assert x.to(torch.float16).device.type == "mps"
        assert x.to("mps") is x
        assert x.to(x) is x
        assert x.to("mps", torch.float32, False, True) is not x

    recorded(run, torch.tensor([1.0, 2.0]))


def test_numpy_is_refused_as_on_a_mac() -> None:
    with pytest.raises(TypeError, match="can't convert mps:0 device type tensor to numpy"):
        recorded(lambda x: x.numpy(), torch.ones(2))


def test_a_tensor_left_on_the_cpu_is_a_refusal_at_that_call() -> None:
    calls = recorded(lambda x: (x + torch.ones(2)) * torch.tensor(2.0), torch.ones(2)).calls
    assert [entry.call.refusal is not None for entry in calls] == [True, False]


def test_indices_may_stay_on_the_cpu() -> None:
    calls = recorded(lambda x: x[torch.tensor([0, 1])], torch.ones(3)).calls
    assert not [entry for entry in calls if entry.call.refusal]


def test_small_tensors_keep_their_values() -> None:
    def run(x: torch.Tensor) -> None:
        assert (x * 2).sum().item() == 12.0
        assert x[x > 1].shape == (2,)
        assert x.nonzero().shape == (3, 1)

    assert recorded(run, torch.tensor([1.0, 2.0, 3.0])).guesses == {}


def test_values_are_forgotten_where_an_unknown_one_is_written() -> None:
    def run(small: torch.Tensor, big: torch.Tensor) -> None:
        view = small[:2]
        small.copy_(big[0, :3])
        view.sum().item()

    recorder = recorded(run, torch.ones(3), BIG)
    assert [key[0] for key in recorder.guesses] == ["aten::_local_scalar_dense"]


def test_an_unknown_value_is_guessed_and_said() -> None:
    recorder = recorded(lambda x: bool(x.sum() > 0), BIG)
    (problem,) = recorder.problems()
    assert problem.kind == "guess"
    assert problem.location is not None
    assert problem.location.file == "tests/simulator/dispatch/test_dispatcher.py"


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_compressed_tensors_are_refused_as_on_a_mac() -> None:
    with pytest.raises(RefusedError, match="new_compressed_tensor"):
        recorded(lambda x: x.to_sparse_csr(), torch.eye(2))


def test_shapes_are_those_of_a_real_run() -> None:
    def run(x: torch.Tensor) -> tuple[int, ...]:
        y = torch.nn.functional.conv2d(x, torch.ones(4, 3, 3, 3, device=x.device), stride=2)
        y = torch.nn.functional.max_pool2d(y, 2).flatten(1).transpose(0, 1)
        z = y.unsqueeze(0).expand(2, -1, -1)[:, ::2]
        return (*z.shape, *z.stride(), z.storage_offset())

    x = torch.ones(1, 3, 80, 80)
    seen: list[tuple[int, ...]] = []
    recorded(lambda t: seen.append(run(t)), x)
    assert seen == [run(x)]


def test_metadata_changed_in_place_is_seen() -> None:
    def run(x: torch.Tensor) -> None:
        x.t_()
        assert [*x.shape] == [300, 200]
        x.unsqueeze_(0)
        assert [*x.shape] == [1, 300, 200]
        x.resize_(7)
        assert [*x.shape] == [7]

    recorded(run, torch.zeros(200, 300))
    recorded(run, torch.zeros(200, 300), keep=100_000)


def test_views_and_their_base_share_one_memory() -> None:
    a, b = recorded(lambda x: (x[0], x.split(1)), torch.zeros(2, 3)).calls
    base = a.call.inputs[0]
    aliases = (*a.call.outputs, *b.call.outputs)
    assert {ref.storage for ref in aliases} == {base.storage}


def test_detach_is_told_only_where_the_program_detaches() -> None:
    assert names(lambda x: x.detach(), torch.ones(2)) == ["detach"]
    assert names(lambda x: torch.zeros(2, device=x.device), torch.ones(2)) == ["zeros"]


def test_a_registration_of_another_release_changes_the_way() -> None:
    x = torch.ones(1, 1, 4, 4)
    assert names(lambda t: torch.max_pool2d(t, 2), x, release="2.13") == ["max_pool2d"]


def test_numbers_where_the_schema_says_tensor() -> None:
    assert names(lambda x: torch.copysign(x, 2.0), torch.ones(2)) == ["copysign.Scalar"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("release", ["2.9", "2.13", "2.15"])
def test_integral_exponents_reach_no_kernel_of_the_cpu(release: str, dtype: torch.dtype) -> None:
    def run(x: torch.Tensor, exponent: torch.Tensor) -> None:
        torch.ldexp(x, exponent)
        torch.ldexp(x, exponent.to(dtype))

    x = torch.ones(3, dtype=dtype)
    calls = recorded(run, x, torch.arange(3), release=release).calls
    reached = [inner for e in calls for inner in (e.call.inner or [e.call.route.name])]
    power = "aten::pow.Scalar" if dtype is torch.float32 else "aten::pow.Tensor_Tensor"
    assert reached.count(power) == reached.count("aten::mul.Tensor") == 2


def test_the_data_of_a_wrapper_cannot_be_had_in_c() -> None:
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        torch._C.TensorBase.data_ptr(wrap(spec_of(torch.ones(2))))


def test_what_numpy_refuses_is_recorded_as_a_refusal() -> None:
    seen = []

    def run(x: torch.Tensor) -> None:
        try:
            x.numpy()
        except TypeError as error:
            seen.append(str(error))

    (entry,) = recorded(run, torch.ones(2)).calls
    assert entry.call.refusal == ("numpy", seen[0])


def test_a_followed_body_has_its_calls_with_their_shapes() -> None:
    def run(weight: torch.Tensor) -> None:
        torch.nn.functional.embedding(torch.tensor([1]), weight)

    made = [recorded(run, torch.ones(rows, 3)).calls[-1].call for rows in (4, 5)]
    inside = [call.body.calls for call in made]
    assert [[inner.route.name for inner in calls] for calls in inside] == [
        ["aten::index_select"],
        ["aten::index_select"],
    ]
    assert [calls[0].inputs[0].shape for calls in inside] == [(4, 3), (5, 3)]


def test_a_declared_body_takes_over_the_arguments_of_its_composite() -> None:
    x = torch.ones(1, 8, 4, 4).to(memory_format=torch.channels_last)
    (entry,) = recorded(lambda x, w: torch.conv2d(x[:, :1], w), x, torch.ones(2, 1, 3, 3)).calls[-1:]
    (inner,) = op_call(entry.call).inside
    assert inner.op == "aten::_mps_convolution"
    assert [(spec.argument, spec.stride) for spec in inner.inputs] == [
        ("self", (128, 1, 32, 8)),
        ("weight", (9, 9, 3, 1)),
    ]
    assert inner.arguments["groups"] == 1
    assert inner.outputs[0].shape == (1, 2, 2, 2)
