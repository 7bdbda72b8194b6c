"""Each branch that only a Mac takes, by release: what is called, and what is not."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from opcheck.data.registrations import load
from opcheck.simulator.dispatch.dispatch_context import DispatchContext
from opcheck.simulator.dispatch.operators import BRANCHES, branches_of
from opcheck.simulator.dispatch.operators.elements import take_along_dim
from opcheck.simulator.dispatch.operators.layers import cosine_similarity
from opcheck.simulator.target_reads import TargetQueries
from tests.simulator.mac import from_2_10, names, recorded, target

FUSED = "_scaled_dot_product_attention_math_for_mps"
LINES = [release.line for release in load().releases]


def _heads(count: int = 4, length: int = 5) -> torch.Tensor:
    return torch.randn(1, count, length, 8)


@pytest.mark.parametrize("release", LINES)
def test_attention_takes_the_metal_kernel_from_2_5_on(release: str) -> None:
    q, k, v = _heads(), _heads(), _heads()
    called = names(F.scaled_dot_product_attention, q, k, v, release=release)
    minor = int(release.partition(".")[2])
    assert (FUSED in called) is (release.startswith("2.") and minor >= 5)


@pytest.mark.parametrize(
    ("release", "macos", "fused"),
    [("2.5", "15.0", False), ("2.6", "14.0", False), ("2.6", "15.0", True), ("2.12", "14.0", True)],
)
def test_attention_on_strided_inputs(release: str, macos: str, *, fused: bool) -> None:
    def run(x: torch.Tensor) -> None:
        strided = x.transpose(1, 2)
        F.scaled_dot_product_attention(strided, strided, strided)

    called = names(run, torch.randn(1, 5, 4, 8), release=release, macos=macos)
    assert (FUSED in called) is fused


@pytest.mark.parametrize("release", ["2.5", "2.9", "2.13", "2.15"])
def test_attention_in_training_never_takes_the_metal_kernel(release: str) -> None:
    q = _heads().requires_grad_()
    assert FUSED not in names(F.scaled_dot_product_attention, q, q, q, release=release, grad=True)


@pytest.mark.parametrize(("release", "repeats"), [("2.9", True), ("2.13", False)])
def test_grouped_queries_are_repeated_up_to_2_11(release: str, *, repeats: bool) -> None:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    called = names(run, _heads(4), _heads(2), _heads(2), release=release)
    assert FUSED in called
    # repeat_interleave.self_int has a kernel of its own only while it is in the always-fallback list (1.13).
    assert ("expand" in called) is repeats


def test_a_boolean_mask_becomes_an_additive_one_first() -> None:
    mask = torch.ones(5, 5, dtype=torch.bool)
    called = names(F.scaled_dot_product_attention, _heads(), _heads(), _heads(), mask)
    assert called == ["scalar_tensor", "scalar_tensor", "where.self", FUSED]


@pytest.mark.parametrize(("release", "squeezes"), [("2.13", False), ("2.14", True)])
def test_unbatched_attention_runs_in_four_dimensions_from_2_14(release: str, *, squeezes: bool) -> None:
    x = torch.randn(4, 5, 8)
    called = names(F.scaled_dot_product_attention, x, x, x, release=release)
    assert ("squeeze.dim" in called) is squeezes


@pytest.mark.parametrize(
    ("release", "grad", "fused"),
    [("2.6", False, False), ("2.8", False, True), ("2.13", False, True), ("2.13", True, False)],
)
def test_rms_norm(release: str, *, grad: bool, fused: bool) -> None:
    def run(x: torch.Tensor, weight: torch.Tensor) -> None:
        F.rms_norm(x, (8,), weight)

    weight = torch.ones(8, requires_grad=grad)
    called = names(run, torch.randn(2, 8), weight, release=release, grad=grad)
    assert ("_fused_rms_norm" in called) is fused
    assert ("rsqrt" in called) is (not fused)


def test_rms_norm_without_a_weight_is_the_composite() -> None:
    assert "rsqrt" in names(lambda x: F.rms_norm(x, (8,)), torch.randn(2, 8))


@pytest.mark.parametrize(("release", "fused"), [("2.14", False), ("2.15", True)])
def test_dropout_is_one_kernel_from_2_15(release: str, *, fused: bool) -> None:
    called = names(lambda x: F.dropout(x, 0.5, training=True), torch.randn(4, 4), release=release)
    assert ("native_dropout" in called) is fused
    assert ("bernoulli_.float" in called) is (not fused)


@pytest.mark.parametrize(("release", "chain"), [("2.12", True), ("2.13", False), ("1.13", False)])
def test_group_norm_is_a_chain_of_small_operators_from_2_0_to_2_12(release: str, *, chain: bool) -> None:
    called = names(lambda x: F.group_norm(x, 2), torch.randn(1, 4, 3, 3), release=release)
    assert ("native_group_norm" in called) is (not chain)
    assert ("var_mean.correction" in called) is chain


@pytest.mark.parametrize(("release", "checks"), [("2.11", False), ("2.12", True)])
def test_one_hot(release: str, *, checks: bool) -> None:
    called = names(lambda x: F.one_hot(x, 4), torch.tensor([0, 3]), release=release)
    assert "scatter_.value" in called
    assert ("aminmax" in called) is checks
    assert "eq.Tensor" not in called


def test_inner_of_vectors_is_a_matrix_product() -> None:
    called = names(torch.inner, torch.randn(3), torch.randn(3))
    assert "mm" in called
    assert "dot" not in called


def test_lstm_is_one_kernel_and_gru_a_linear_for_each_step() -> None:
    lstm, gru = torch.nn.LSTM(3, 4), torch.nn.GRU(3, 4)

    def run(module: torch.nn.Module) -> list[str]:
        from opcheck.capture.child.move import Mover

        Mover(16_384).module(module)
        return names(module, torch.randn(6, 2, 3))

    assert "_lstm_mps" in run(lstm)
    assert run(gru).count("linear") == 2 * 6


def test_pinv_makes_no_float64() -> None:
    calls = recorded(torch.linalg.pinv, torch.randn(3, 3)).calls
    dtypes = {ref.spec.dtype for entry in calls for ref in entry.call.outputs}
    assert torch.float64 not in dtypes
    assert "aten::linalg_svd" in {name for entry in calls for name in entry.call.inner or ()}


@pytest.mark.parametrize(("release", "values"), [("2.2", False), ("2.13", True)])
def test_eigenvalues_alone_have_an_operator_since_2_3(release: str, *, values: bool) -> None:
    called = names(torch.linalg.eigvals, torch.randn(3, 3), release=release)
    assert called == (["_linalg_eigvals"] if values else ["linalg_eig"])
    called = names(torch.linalg.eigvals, torch.randn(3, 3).requires_grad_(), release=release, grad=True)
    assert "linalg_eig" in called


def test_tensor_split_refuses_indices_on_mps() -> None:
    calls = recorded(torch.tensor_split, torch.arange(6), torch.tensor([2, 4])).calls
    refusals = [entry.call.refusal for entry in calls if entry.call.refusal]
    assert [identity for identity, _ in refusals] == ["indices_on_mps"]


def test_every_branch_says_why_and_names_an_overload_that_exists() -> None:
    for name, branch in BRANCHES.items():
        assert ": " in branch.reason, name
        assert torch._C._dispatch_has_kernel(name), name


def _branches(release: str) -> set[str]:
    return {*branches_of(target(release), DispatchContext(TargetQueries(target(release)), print))}


def test_the_branches_of_a_release_are_those_whose_span_holds_it() -> None:
    assert "aten::kl_div" in _branches("2.0")
    assert "aten::kl_div" not in _branches("2.1")


@pytest.mark.parametrize("lengths", [torch.tensor([4, 4]), (4, 4)])
def test_ctc_loss_reads_its_lengths_on_the_host(lengths: torch.Tensor | tuple[int, ...]) -> None:
    targets = torch.tensor([[1, 2], [2, 3]])
    of_targets = torch.tensor([2, 2]) if isinstance(lengths, torch.Tensor) else (2, 2)

    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        F.ctc_loss(x, y, lengths, of_targets, zero_infinity=True)  # type: ignore[arg-type]

    calls = recorded(run, torch.randn(4, 2, 5).log_softmax(-1), targets).calls
    called = [entry.call.route.name for entry in calls]
    assert "aten::_ctc_loss" in called
    assert "aten::_ctc_loss.Tensor" not in called
    assert not any(entry.call.refusal for entry in calls)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("batched", [True, False])
def test_ctc_loss_is_the_one_of_the_cpu(reduction: str, *, batched: bool) -> None:
    x = torch.randn(4, 2, 5).log_softmax(-1)
    targets, lengths = torch.tensor([[1, 2], [2, 3]]), (torch.tensor([4, 4]), torch.tensor([2, 2]))
    if not batched:
        x, targets, lengths = x[:, 0], targets[0], (torch.tensor(4), torch.tensor(2))

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.ctc_loss(a, b, *lengths, reduction=reduction)

    got: list[torch.Tensor] = []
    recorded(lambda a, b: got.append(loss(a, b).cpu()), x, targets)
    torch.testing.assert_close(got[0], loss(x, targets))


def test_a_python_decomposition_is_no_composite_kernel() -> None:
    """upsample_nearest3d has one in Python alone: calling the one in C++ would end the process."""
    x = torch.randn(1, 2, 2, 4, 4)
    called = names(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), x, release="1.13")
    assert called == ["upsample_nearest3d"]


@pytest.mark.parametrize(("release", "norm"), [("1.13", False), ("2.0", False), ("2.1", True)])
def test_cosine_similarity_takes_a_norm_from_2_1_on(release: str, *, norm: bool) -> None:
    x = torch.randn(3, 4)
    called = names(F.cosine_similarity, x, x, release=release)
    assert ("linalg_vector_norm" in called) is norm
    assert ("pow.Tensor_Scalar" in called) is not norm


def test_the_former_cosine_similarity_computes_the_same() -> None:
    first, other = torch.randn(3, 4, 5), torch.randn(4, 5)
    for dim in (1, -1):
        assert torch.allclose(cosine_similarity(None, first, other, dim), F.cosine_similarity(first, other, dim))


@pytest.mark.parametrize(("release", "wraps"), [("2.9", False), from_2_10])
def test_take_along_dim_wraps_its_indices_from_2_10_on(release: str, *, wraps: bool) -> None:
    def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.take_along_dim(x, index, 1)

    called = names(take, torch.randn(3, 4), torch.zeros(1, 2, dtype=torch.int64), release=release)
    assert "gather" in called
    assert ("remainder.Scalar" in called) is wraps


def test_the_former_take_along_dim_takes_the_same() -> None:
    x, index = torch.randn(3, 4), torch.tensor([[0, 2], [1, 3], [0, 0]])
    assert torch.equal(take_along_dim(None, x, index, -1), torch.take_along_dim(x, index, -1))
    assert torch.equal(take_along_dim(None, x, index[:1], 1), x.gather(1, index[:1].expand(3, 2)))
    assert torch.equal(take_along_dim(None, x, index), torch.take_along_dim(x, index))
