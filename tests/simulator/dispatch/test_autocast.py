"""Autocast casts what the target's lists say, and refuses the dtypes that the target refuses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from opcheck.data.registrations import load
from opcheck.simulator.dispatch.mps_registrations import POLICIES
from opcheck.simulator.dispatch.tensor import is_on_mps, parameter_to_mps
from tests.simulator.mac import names, recorded

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
LINES = [release.line for release in load().releases]


def _under(run: Callable[..., Any], *inputs: torch.Tensor, dtype: torch.dtype = HALF, **options: Any) -> torch.dtype:
    """The dtype of the result of ``run`` under autocast."""
    seen: list[torch.dtype] = []

    def body(*moved: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=dtype):
            seen.append(run(*moved).dtype)

    recorded(body, *inputs, **options)
    return seen[0]


def _single(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


def _half(*shape: int) -> torch.Tensor:
    return torch.rand(*shape).half()


@pytest.mark.parametrize(
    ("run", "inputs", "expected"),
    [
        (F.linear, (_single(2, 3), _single(4, 3)), HALF),
        (torch.matmul, (_single(2, 3), _single(3, 4)), HALF),
        (torch.bmm, (_single(1, 2, 3), _single(1, 3, 4)), HALF),
        (F.conv2d, (_single(1, 2, 5, 5), _single(2, 2, 3, 3)), HALF),
        (F.scaled_dot_product_attention, (_single(1, 2, 3, 4),) * 3, HALF),
        (torch.exp, (_half(3),), SINGLE),
        (lambda x: F.softmax(x, 0), (_half(3),), SINGLE),
        (lambda x: F.layer_norm(x, (3,)), (_half(2, 3),), SINGLE),
        (lambda x: x.sum(0), (_half(3),), SINGLE),
        (F.mse_loss, (_half(3), _half(3)), SINGLE),
        (torch.atan2, (_half(3), _single(3)), SINGLE),
        (torch.atan2, (_half(3), _half(3)), HALF),
        (torch.add, (_half(3), _half(3)), HALF),
        (F.relu, (_single(3),), SINGLE),
    ],
)
def test_each_policy_gives_its_dtype(
    run: Callable[..., Any], inputs: tuple[torch.Tensor, ...], expected: torch.dtype
) -> None:
    assert _under(run, *inputs) is expected


def test_bfloat16_too() -> None:
    assert _under(F.linear, _single(2, 3), _single(4, 3), dtype=BRAIN) is BRAIN


def test_integers_stay() -> None:
    assert _under(torch.matmul, torch.ones(2, 2).int(), torch.ones(2, 2).int()) is torch.int32


def test_promoting_a_dtype_that_is_neither_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
        _under(torch.atan2, _single(3).bfloat16(), _single(3))


@pytest.mark.parametrize(("release", "expected"), [("2.5", SINGLE), ("2.6", HALF), ("2.13", HALF)])
def test_attention_is_on_the_list_from_2_6_on(release: str, expected: torch.dtype) -> None:
    q = _single(1, 2, 3, 4)
    assert _under(F.scaled_dot_product_attention, q, q, q, release=release) is expected


@pytest.mark.parametrize(("release", "casts"), [("2.8", 2), ("2.9", 2)])
def test_conv3d_is_cast_once_whichever_list_holds_it(release: str, casts: int) -> None:
    # Up to 2.8 the inner aten::convolution is cast, from 2.9 on conv3d itself.
    def run(x: torch.Tensor, w: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=HALF):
            F.conv3d(x, w)

    called = names(run, _single(1, 1, 3, 3, 3), _single(1, 1, 2, 2, 2), release=release)
    assert called.count("_to_copy") == casts


def _layer() -> torch.nn.Linear:
    layer = torch.nn.Linear(3, 3)
    layer.weight = parameter_to_mps(layer.weight, keep=100)
    layer.bias = parameter_to_mps(layer.bias, keep=100)  # type: ignore[assignment]
    return layer


@pytest.mark.parametrize(
    ("options", "casts"),
    [
        # The weight, the bias and the first input: the second input is the first result.
        ({}, 3),
        ({"cache_enabled": False}, 5),
        ({"enabled": False}, 0),
    ],
)
def test_a_weight_is_cast_once(options: dict[str, bool], casts: int) -> None:
    layer = _layer()

    def run(x: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=HALF, **options):
            layer(layer(x))

    assert names(run, _single(2, 3), grad=True).count("_to_copy") == casts


def test_the_cache_ends_with_the_outermost_autocast() -> None:
    layer = _layer()

    def run(x: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=HALF):
            y = layer(x)
            with torch.autocast("mps", enabled=False):
                layer(x)
            with torch.autocast("mps", dtype=HALF):
                layer(y)  # nothing is cast: y is, and the parameters are in the cache
        with torch.autocast("mps", dtype=HALF):
            layer(y)  # both parameters again

    assert names(run, _single(2, 3), grad=True).count("_to_copy") == 5


def test_a_frozen_weight_is_cast_each_time() -> None:
    layer = _layer().requires_grad_(requires_grad=False)

    def run(x: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=HALF):
            layer(layer(x))

    assert names(run, _single(2, 3)).count("_to_copy") == 5


def test_the_gradient_goes_through_the_casts() -> None:
    layer = _layer()

    def run(x: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=HALF):
            loss = layer(x).sum()
        loss.backward()

    called = names(run, _single(2, 3), grad=True)
    assert "linear_backward" in called
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is SINGLE
    assert is_on_mps(layer.weight.grad)


def test_autocast_of_the_cpu_leaves_mps_tensors_alone() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> None:
        with torch.autocast("cpu", dtype=BRAIN):
            assert F.linear(x, w).dtype is SINGLE
            assert F.linear(torch.ones(2, 3), torch.ones(4, 3)).dtype is BRAIN

    recorded(run, _single(2, 3), _single(4, 3))


def test_autocast_of_mps_leaves_cpu_tensors_alone() -> None:
    def run(_: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=HALF):
            assert F.linear(torch.ones(2, 3), torch.ones(4, 3)).dtype is SINGLE

    recorded(run, _single(1))


@pytest.mark.parametrize("cast_inputs", [None, SINGLE])
def test_custom_functions(cast_inputs: torch.dtype | None) -> None:
    seen: list[tuple[torch.dtype, torch.dtype]] = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="mps", cast_inputs=cast_inputs)
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            result = x @ w
            seen.append((x.dtype, result.dtype))
            return result

        @staticmethod
        @torch.amp.custom_bwd(device_type="mps")
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x, w = ctx.saved_tensors
            seen.append((grad.dtype, (grad @ w.t()).dtype))
            return (grad @ w.t()).to(x.dtype), (x.t() @ grad).to(w.dtype)

    def run(x: torch.Tensor, w: torch.Tensor) -> None:
        with torch.autocast("mps", dtype=HALF):
            y = Product.apply(x, w)
        y.sum().backward()

    recorded(run, _half(2, 3), _half(3, 4).requires_grad_(), grad=True)
    # With cast_inputs both ways run in float32; without, in what autocast makes of it.
    assert seen == ([(SINGLE, SINGLE)] * 2 if cast_inputs else [(HALF, HALF)] * 2)


@pytest.mark.parametrize("release", LINES[: LINES.index("2.5")])
def test_up_to_2_4_there_is_no_autocast_for_mps(release: str) -> None:
    def run(_: torch.Tensor) -> None:
        assert not torch.amp.is_autocast_available("mps")
        with torch.autocast("mps", dtype=HALF):
            pass

    with pytest.raises(RuntimeError, match=r"User specified (an unsupported )?autocast device_type"):
        recorded(run, _single(1), release=release)


@pytest.mark.parametrize(
    ("release", "macos", "dtype", "warning"),
    [
        ("2.5", "15.0", HALF, None),
        ("2.5", "15.0", BRAIN, "only supports dtype of torch.bfloat16 currently"),
        ("2.6", "14.0", BRAIN, None),
        ("2.9", "13.3", BRAIN, "not supported on macOS versions below 14"),
        ("2.9", "13.3", HALF, None),
        ("2.9", "15.0", SINGLE, "dtype of torch.bfloat16 and torch.float16 currently"),
        ("2.10", "13.3", BRAIN, None),
        ("2.13", "15.0", SINGLE, "dtypes of torch.bfloat16, torch.float16 currently"),
    ],
)
def test_which_dtypes_a_release_takes(release: str, macos: str, dtype: torch.dtype, warning: str | None) -> None:
    seen: list[bool] = []

    def run(_: torch.Tensor) -> None:
        with warnings.catch_warnings(record=True) as result:
            warnings.simplefilter("always")
            with torch.autocast("mps", dtype=dtype):
                seen.append(torch.is_autocast_enabled("mps"))
        texts = [str(each.message) for each in result]
        assert [warning in text for text in texts if warning] == ([True] if warning else [])

    recorded(run, _single(1), release=release, macos=macos)
    assert seen == [warning is None]


def test_every_policy_of_every_release_is_known() -> None:
    lists = load()
    assert {p for line in LINES for p in lists.operators(line, "AutocastMPS").values()} == set(POLICIES)


def test_nothing_stays_behind() -> None:
    table = torch._C._dispatch_dump_table("aten::linear")
    init = torch.autocast.__init__
    _under(F.linear, _single(2, 3), _single(4, 3))
    assert torch._C._dispatch_dump_table("aten::linear") == table
    assert torch.autocast.__init__ is init


@pytest.mark.parametrize("known", [True, False])
def test_the_gradient_scaler(*, known: bool) -> None:
    layer = _layer()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def run(x: torch.Tensor) -> None:
        scaler = torch.amp.GradScaler("mps")
        with torch.autocast("mps", dtype=HALF):
            loss = layer(x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 65536.0

    recorder = recorded(run, _single(2, 3), grad=True, keep=16_384 if known else 4)
    called = [entry.call.route.name for entry in recorder.calls]
    assert "aten::_amp_foreach_non_finite_check_and_unscale_" in called
    assert "aten::_amp_update_scale_" in called
    # The step was taken, and 1 / scale is made in float32 on MPS.
    assert "aten::add_.Tensor" in called
    dtypes = {output.spec.dtype for entry in recorder.calls for output in entry.call.outputs}
    assert torch.float64 not in dtypes
