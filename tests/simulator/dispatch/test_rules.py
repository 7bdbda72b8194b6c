"""Every operator with a kernel on MPS has its results' metadata from somewhere, and the rules agree with real runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opcheck.data.registrations import load
from opcheck.simulator.dispatch.operators import OPERATORS
from opcheck.simulator.dispatch.routes import KERNEL_VALUES
from opcheck.simulator.dispatch.tensor import is_on_mps
from tests.simulator.mac import recorded

RULES = {name for name, operator in OPERATORS.items() if operator.metadata is not None}
#: Operators with a kernel on MPS that need neither a rule nor a meta kernel.
WITHOUT_RULE = {
    # their shape is in the values, which their rule for unbacked values assumes
    *("aten::masked_select", "aten::_unique", "aten::_unique2", "aten::unique_consecutive"),
    *("aten::unique_dim", "aten::unique_dim_consecutive", "aten::bincount"),
    # their result is a number of the host's, assumed where the values are not known
    *("aten::equal", "aten::is_set_to"),
    # their result has a layout that is not simulated, which the report states
    *("aten::_to_sparse", "aten::_to_sparse.sparse_dim"),
    # not called: the branch of ctc_loss reads the lengths on the host
    "aten::_ctc_loss.Tensor",
}
LINES = [release.line for release in load().releases]
#: with one of these the dispatcher runs something for a meta tensor
_META = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
aten = torch.ops.aten


def _writes_all_results(name: str) -> bool:
    schema = torch._C._get_schema(*name.partition(".")[::2])
    return all(result.alias_info is not None and result.alias_info.is_write for result in schema.returns)


def _without_meta(line: str) -> set[str]:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return {
        name
        for name, value in load().operators(line).items()
        if value in KERNEL_VALUES
        and torch._C._dispatch_has_kernel(name)
        and not any(has(name, key) for key in _META)
        # In place: the results are the arguments (shapes.py).
        and not _writes_all_results(name)
    }


@pytest.mark.parametrize("line", LINES)
def test_none_is_forgotten(line: str) -> None:
    missing = _without_meta(line) - RULES - WITHOUT_RULE
    assert missing == set()


def test_no_reason_is_left_over() -> None:
    needed = set().union(*(_without_meta(line) for line in LINES))
    if torch.__version__.startswith("2.13."):
        assert needed >= WITHOUT_RULE
    assert not RULES & WITHOUT_RULE


def _single(*shape: int) -> torch.Tensor:
    return torch.rand(*shape) + 0.1


#: rule -> a call of the operator that the CPU can run, too
ON_CPU: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "aten::linear": (aten.linear.default, (_single(2, 3), _single(4, 3))),
    "aten::convolution": (
        lambda x, w: aten.convolution.default(x, w, None, [2, 1], [1, 0], [1, 1], False, [0, 0], 1),
        (_single(2, 3, 8, 8), _single(4, 3, 3, 3)),
    ),
    "aten::_dirichlet_grad": (aten._dirichlet_grad.default, (_single(2, 3),) * 3),
    "aten::_sample_dirichlet": (aten._sample_dirichlet.default, (_single(2, 3),)),
    "aten::_standard_gamma": (aten._standard_gamma.default, (_single(2, 3),)),
    "aten::_weight_norm_interface_backward": (
        lambda w, v, g, n: aten._weight_norm_interface_backward.default(w, v, g, n, 0),
        (_single(2, 3), _single(2, 3), _single(2, 1), _single(2, 1)),
    ),
    "aten::_standard_gamma_grad": (aten._standard_gamma_grad.default, (_single(2, 3),) * 2),
    "aten::binomial": (aten.binomial.default, (_single(2, 3), _single(2, 3))),
    "aten::_logcumsumexp": (lambda x: aten._logcumsumexp.default(x, 1), (_single(2, 3),)),
    "aten::geqrf": (aten.geqrf.default, (_single(2, 4, 3),)),
    "aten::histogram.bin_ct": (lambda x: aten.histogram.bin_ct(x, 7), (_single(9),)),
    "aten::histogram.bins_tensor": (aten.histogram.bins_tensor, (_single(9), torch.linspace(0, 1, 6))),
    "aten::_histogramdd_bin_edges": (lambda x: aten._histogramdd_bin_edges.default(x, [3, 4]), (_single(9, 2),)),
    "aten::_histogramdd_from_bin_cts": (lambda x: aten._histogramdd_from_bin_cts.default(x, [3, 4]), (_single(9, 2),)),
    "aten::_histogramdd_from_bin_tensors": (
        lambda x, a, b: aten._histogramdd_from_bin_tensors.default(x, [a, b]),
        (_single(9, 2), torch.linspace(0, 1, 6), torch.linspace(0, 1, 4)),
    ),
    "aten::_compute_linear_combination": (aten._compute_linear_combination.default, (_single(3, 2, 2), _single(5, 3))),
}


def _metadata(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.stride(), value.dtype)
    return [_metadata(item) for item in value]


@pytest.mark.parametrize("name", ON_CPU)
def test_a_rule_gives_what_the_cpu_gives(name: str) -> None:
    call, inputs = ON_CPU[name]
    seen: list[Any] = []

    def run(*moved: torch.Tensor) -> None:
        unknown = [t.new_empty(t.shape).copy_(t) for t in moved]
        for tensor in unknown:
            assert is_on_mps(tensor)
            tensor._mps.memory.known = False
        seen.append(_metadata(call(*unknown)))

    recorded(run, *inputs)
    assert seen == [_metadata(call(*inputs))]


@pytest.mark.parametrize("transposed", [False, True])
def test_the_kernels_of_convolution(*, transposed: bool) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> None:
        run = torch.conv_transpose2d if transposed else torch.conv2d
        whole = run(x, w, stride=2, padding=1)
        if transposed:
            part = aten._mps_convolution_transpose(x, w, [1, 1], [0, 0], [2, 2], [1, 1], 1)
            grads = aten.mps_convolution_transpose_backward(x, part, w, [1, 1], [0, 0], [2, 2], [1, 1], 1, [True, True])
        else:
            part = aten._mps_convolution(x, w, None, [1, 1], [2, 2], [1, 1], 1)
            grads = aten.mps_convolution_backward(x, part, w, [1, 1], [2, 2], [1, 1], 1, [True, True, True])
        assert part.shape == whole.shape
        shapes = [x.shape, w.shape, part.shape[1:2]]
        assert [grad.shape for grad in grads] == shapes[: len(grads)]

    recorded(run, torch.ones(2, 4, 9, 9), torch.ones(4, 4, 3, 3))


@pytest.mark.parametrize(
    ("release", "macos", "kept"),
    [("2.7", "15.0", False), ("2.8", "14.0", False), ("2.8", "15.0", True), ("2.10", "14.0", True)],
)
def test_channels_last_stays_from_2_8_on(release: str, macos: str, *, kept: bool) -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> None:
        out = torch.conv2d(x.contiguous(memory_format=torch.channels_last), w)
        assert out.is_contiguous(memory_format=torch.channels_last) is kept
        assert out.is_contiguous() is not kept

    x, w = torch.ones(2, 4, 99, 99), torch.ones(4, 4, 3, 3)
    recorded(run, x, w, release=release, macos=macos)


@pytest.mark.parametrize("projection", [0, 2])
def test_the_gradients_of_an_lstm_have_the_shapes_of_its_arguments(projection: int) -> None:
    module = torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=projection)
    weights = [weight.detach() for weight in module.parameters()]

    def run(x: torch.Tensor, *moved: torch.Tensor) -> None:
        h, c = (x.new_zeros(4, 2, size) for size in (projection or 4, 4))
        out = torch.lstm(x, (h, c), moved, True, 2, 0.0, True, True, False)[0]
        out.sum().backward()
        for tensor in (x, *moved):
            assert tensor.grad is not None
            assert tensor.grad.shape == tensor.shape

    inputs = [torch.rand(5, 2, 3), *weights]
    recorded(run, *(tensor.requires_grad_() for tensor in inputs), grad=True)


def test_pooling_and_its_gradient() -> None:
    def run(x: torch.Tensor) -> None:
        torch.max_pool2d(x, 2).sum().backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape

    recorded(run, torch.rand(1, 2, 8, 8).requires_grad_(), grad=True, keep=1)


def test_a_value_without_dimensions_may_stay_on_the_cpu_where_a_mask_fills() -> None:
    shapes: list[tuple[int, ...]] = []

    def run(x: torch.Tensor, mask: torch.Tensor) -> None:
        shapes.append(tuple(x.masked_fill(mask, torch.tensor(1.0)).shape))

    calls = recorded(run, torch.zeros(2, 1), torch.ones(3, dtype=torch.bool)).calls
    assert shapes == [(2, 3)]
    assert calls[-1].call.inner is not None
    assert "aten::masked_fill_.Tensor" in calls[-1].call.inner
