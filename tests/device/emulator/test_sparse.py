"""Sparse tensors on mps: COO with the kernels of 2.9 and newer, a Mac's own refusal before; other layouts never."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import opcheck
from opcheck.device.emulator.child.session import Emulation

_BEFORE = (
    r"Could not run 'aten::_sparse_coo_tensor_with_dims_and_tensors' with arguments from the "
    r"'SparseMPS' backend\."
)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


#: the stub of it takes no tensors
coo: Any = torch.sparse_coo_tensor


class Whisper(torch.nn.Module):
    """The buffer that whisper/model.py registers, sizes apart."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        heads = torch.zeros(4, 6, dtype=torch.bool)
        heads[2:] = True
        self.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def parts() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])


def on_mps() -> torch.Tensor:
    made: torch.Tensor = coo(*parts(), (2, 4)).to("mps")
    return made


@pytest.fixture(scope="class")
def mac() -> Iterator[Emulation]:
    with opcheck.emulate(torch="2.13", macos="15") as run:
        yield run


class TestSince29:
    @pytest.fixture(autouse=True)
    def entered(self, mac: Emulation) -> None:
        assert mac.target.torch.minor == 13

    @pytest.mark.parametrize(
        "make",
        [
            on_mps,
            lambda: coo(*parts(), (2, 4), device="mps"),
            lambda: coo(*(part.to("mps") for part in parts()), (2, 4)),
            lambda: coo(parts()[0], parts()[1].to("mps"), (2, 4)),
            lambda: on_mps().to_dense().to_sparse(),
            lambda: on_mps().clone(),
            lambda: copy.deepcopy(on_mps()),
        ],
    )
    def test_a_coo_tensor_is_one_on_mps_with_its_values(self, make: object) -> None:
        assert callable(make)
        made = make()
        assert (made.layout, made.is_sparse, made.device.type) == (torch.sparse_coo, True, "mps")
        dense = made.to_dense()
        assert dense.is_mps
        assert dense.cpu().tolist() == [[0, 0, 3, 0], [4, 0, 5, 0]]

    def test_without_a_size_it_is_read_from_the_indices(self) -> None:
        made = coo(*(part.to("mps") for part in parts()))
        assert made.shape == (2, 3)

    def test_its_parts_and_its_arithmetic(self) -> None:
        made = on_mps()
        assert (made.sparse_dim(), made.dense_dim(), made._nnz()) == (2, 0, 3)
        whole = made.coalesce()
        assert whole.is_coalesced()
        assert whole.indices().cpu().tolist() == parts()[0].tolist()
        assert whole.values().cpu().tolist() == parts()[1].tolist()
        dense = made.to_dense()
        right = torch.rand(4, 3, device="mps")
        for ours, expected in (
            (torch.sparse.mm(made, right), dense @ right),
            (made @ right, dense @ right),
            ((made + made).to_dense(), dense + dense),
            ((made * 2).to_dense(), dense * 2),
            ((made * made).to_dense(), dense * dense),
            (made.t().to_dense(), dense.t()),
            (torch.sparse.sum(made), dense.sum()),
        ):
            torch.testing.assert_close(ours.cpu(), expected.cpu())

    def test_a_gradient_flows_through_sparse_mm(self) -> None:
        right = torch.ones(4, 2, device="mps", requires_grad=True)
        torch.sparse.mm(on_mps(), right).sum().backward()
        assert right.grad is not None
        assert right.grad.cpu().tolist() == [[4, 4], [0, 0], [8, 8], [0, 0]]

    def test_a_module_with_a_sparse_buffer_moves(self) -> None:
        model = Whisper().to("mps")
        assert model.alignment_heads.device.type == "mps"
        assert model.alignment_heads.cpu().to_dense().sum().item() == 12
        assert model(torch.ones(1, 2, device="mps")).is_mps

    def test_it_prints_and_is_saved_as_on_a_mac(self) -> None:
        assert "device='mps:0', size=(2, 4), nnz=3, layout=torch.sparse_coo" in repr(on_mps())
        file = io.BytesIO()
        torch.save(on_mps(), file)
        file.seek(0)
        assert torch.load(file, map_location="cpu").to_dense().sum().item() == 12

    @pytest.mark.parametrize("layout", ["csr", "csc"])
    def test_compressed_layouts_have_no_kernel_that_makes_them(self, layout: str) -> None:
        dense = torch.eye(2, device="mps")
        with pytest.raises(NotImplementedError, match=f"aten::_to_sparse_{layout}"):
            getattr(dense, f"to_sparse_{layout}")()

    @pytest.mark.parametrize(
        "make",
        [
            lambda: torch.eye(2).to_sparse_csr().to("mps"),
            lambda: torch.eye(2, device="mps").to_sparse(layout=torch.sparse_csr),
            lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], size=(1, 1), device="mps"),
            lambda: torch.sparse_bsr_tensor([0, 1], [0], torch.ones(1, 1, 1, device="mps"), size=(1, 1)),
        ],
        ids=["to", "to_sparse", "device", "of a tensor on mps"],
    )
    def test_no_compressed_tensor_is_made_or_moved_there(self, make: object) -> None:
        assert callable(make)
        with pytest.raises(NotImplementedError, match="Could not run 'new_compressed_tensor' from the 'mps:0' device"):
            make()

    def test_a_compressed_tensor_stays_on_the_cpu(self) -> None:
        assert torch.sparse_csr_tensor([0, 1], [0], [1.0], size=(1, 1)).layout is torch.sparse_csr

    def test_an_operator_without_a_sparse_kernel_raises_by_the_dispatcher(self) -> None:
        with pytest.raises(NotImplementedError, match=r"'aten::cos.* from the 'SparseMPS'"):
            on_mps().cos()


@pytest.mark.parametrize(
    "make",
    [
        on_mps,
        lambda: coo(*parts(), (2, 4), device="mps"),
        lambda: coo(*(part.to("mps") for part in parts())),
        lambda: Whisper().to("mps"),
    ],
    ids=["to", "device", "of tensors on mps", "a buffer"],
)
def test_before_29_a_mac_refuses_with_or_without_the_variable(make: object) -> None:
    assert callable(make)
    for fallback in (False, True):
        with (
            opcheck.emulate(torch="2.5", macos="15", fallback=fallback),
            pytest.raises(NotImplementedError, match=_BEFORE),
        ):
            make()


@pytest.mark.parametrize(("release", "headline"), [("2.5", "fails"), ("2.13", "runs natively")])
def test_an_audit_knows_whispers_buffer(release: str, headline: str) -> None:
    report = opcheck.audit(Whisper(), (torch.ones(1, 2),), torch=release)
    assert report.headline == headline
    prints = [finding.prints for finding in report.findings if finding.severity == "error"]
    assert all("'SparseMPS' backend" in text for text in prints)
    assert bool(prints) is (release == "2.5")


@pytest.mark.parametrize(("release", "has_mask"), [("2.9", False), ("2.13", True)])
def test_sparse_adam_comes_to_the_kernel_that_2_9_lacks(release: str, *, has_mask: bool) -> None:
    lacks = pytest.raises(NotImplementedError, match="aten::sparse_mask")
    with opcheck.emulate(torch=release, macos="15"):
        table = torch.nn.Embedding(3, 2, sparse=True).to("mps")
        before = table.weight.detach().clone()
        table(torch.tensor([1], device="mps")).sum().backward()
        with contextlib.nullcontext() if has_mask else lacks:
            torch.optim.SparseAdam(table.parameters()).step()
        assert torch.equal(before, table.weight) is not has_mask
