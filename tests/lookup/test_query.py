from __future__ import annotations

import pytest

from opcheck.common.errors import UsageError
from opcheck.data.registrations import OpLists
from opcheck.lookup.query import resolve, usual


@pytest.mark.parametrize(
    ("text", "main"),
    [
        ("aten::nonzero", "aten::nonzero"),
        ("aten::isin.Tensor_Tensor_out", "aten::isin.Tensor_Tensor_out"),
        ("isin", "aten::isin.Tensor_Tensor"),
        ("aten.add.Tensor", "aten::add.Tensor"),
        ("torch.ops.aten.mm.default", "aten::mm"),
        ("torch.fft.rfft", "aten::fft_rfft"),
        ("torch.linalg.svd", "aten::linalg_svd"),
        ("F.gelu", "aten::gelu"),
        ("torch.nn.functional.gelu", "aten::gelu"),
        ("Tensor.masked_fill_", "aten::masked_fill_.Tensor"),
        ("torch.add", "aten::add.Tensor"),
        ("nn.functional.grid_sample", "aten::grid_sampler"),
        ("torchvision::nms", "torchvision::nms"),
    ],
)
def test_names_are_understood(text: str, main: str, lists: OpLists) -> None:
    found = resolve(text, lists)
    assert found.main in found.overloads
    assert (found.main.partition(".")[0], found.asked) == (main.partition(".")[0], text)


def test_a_base_name_means_all_overloads_over_all_releases(lists: OpLists) -> None:
    found = resolve("aten::isin", lists)
    assert found.main == "aten::isin.Tensor_Tensor"
    assert len(found.overloads) == 6


def test_a_plain_call_reaches_no_out_overload() -> None:
    assert (
        usual(["aten::max.out", "aten::max.names_dim", "aten::max", "aten::max.dim"]) == "aten::max"
    )
    assert usual(["aten::add.out", "aten::add.Scalar", "aten::add.Tensor"]) == "aten::add.Tensor"
    assert usual(["aten::isin.Tensor_Tensor_out"]) == "aten::isin.Tensor_Tensor_out"


@pytest.mark.parametrize("text", ["aten::isinn", "torch.fft.rffft", "nn.functional.geluu"])
def test_near_names_are_offered(text: str, lists: OpLists) -> None:
    with pytest.raises(UsageError, match="did you mean aten::"):
        resolve(text, lists)


def test_a_wrong_overload_is_answered_with_those_that_exist(lists: OpLists) -> None:
    with pytest.raises(UsageError) as caught:
        resolve("aten::median.dims", lists)
    assert "(none), dim, dim_values" in caught.value.hint
