"""What composites call, and what an API name stands for; read without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.data.composites import api_names, body, find_sampled_body
from opcheck.data.registrations import OpLists


def called_by(op: str, line: str, directory: Path | None = None) -> tuple[str, ...] | None:
    """The leaf overloads that a composite calls over all samples; None where they are unknown."""
    sampled = body(op, line, directory)
    return None if sampled is None else tuple(sorted((*sampled.always, *sampled.sometimes)))


def test_conv3d_is_what_the_convolution_calls() -> None:
    called = called_by("aten::conv3d", "2.13")
    assert called is not None
    assert "aten::_mps_convolution" in called


def test_a_composite_may_call_other_operators_from_one_release_on() -> None:
    # linalg_svd has a registration of its own, so svd of a Mac stops there; svdvals does not.
    called = called_by("aten::linalg_svdvals", "2.13")
    assert called == ("aten::_linalg_svd",)


def test_always_and_sometimes_are_told_apart() -> None:
    result = body("aten::pad", "2.13")
    assert result is not None
    assert not result.always
    assert {"aten::reflection_pad2d", "aten::replication_pad2d"} <= set(result.sometimes)
    assert result.torch == "2.13.0"


def test_what_no_sample_reached_is_not_known() -> None:
    assert called_by("aten::nonsense", "2.13") is None


def test_an_older_body_is_the_one_that_its_wheel_shows() -> None:
    before, after, run = (body("aten::_safe_softmax", line) for line in ("2.5", "2.6", "2.8"))
    assert before is not None
    assert (before.read, before.torch) == (True, "2.5.1")
    assert "aten::eq.Tensor" in before.always
    assert "aten::isneginf" not in before.always
    # 2.6 calls what 2.8 calls, with which it was run.
    assert after == run
    assert run is not None
    assert (run.read, run.torch) == (False, "2.8.0")


def test_a_line_that_was_not_run_is_answered_by_the_nearest() -> None:
    assert body("aten::conv3d", "2.3") == body("aten::conv3d", "2.8")
    assert body("aten::conv3d", "2.99") == body("aten::conv3d", "2.15")


def test_called_operators_exist_and_are_no_composites_that_were_followed(lists: OpLists) -> None:
    for line in ("2.8", "2.13", "2.15"):
        operators = lists.operators(line)
        entries = [(op, called) for op in operators if (called := called_by(op, line)) is not None]
        assert len(entries) > 250
        for op, called in entries:
            assert lists.resolve(op, line).status in ("composite", "native", "fallback", "unsupported")
            assert not [name for name in called if name.startswith("aten::") and name not in operators]


@pytest.mark.parametrize(
    ("name", "overload"),
    [
        ("torch.fft.rfft", "aten::fft_rfft"),
        ("fft.rfft", "aten::fft_rfft"),
        ("nn.functional.grid_sample", "aten::grid_sampler"),
        ("torch.nn.functional.grid_sample", "aten::grid_sampler"),
        ("F.grid_sample", "aten::grid_sampler"),
        ("isin", "aten::isin.Tensor_Tensor"),
        ("torch.isin", "aten::isin.Tensor_Tensor"),
        ("aten::isin", "aten::isin.Tensor_Tensor"),
        ("aten.isin.Tensor_Tensor", "aten::isin.Tensor_Tensor"),
        ("aten::nonzero", "aten::nonzero"),
        ("linalg.svdvals", "aten::linalg_svdvals"),
        ("torch.kaiser_window", "aten::kaiser_window"),
    ],
)
def test_api_names(name: str, overload: str) -> None:
    assert overload in api_names(name)


def test_a_whole_overload_stands_for_itself() -> None:
    assert api_names("aten::add.Tensor") == ("aten::add.Tensor",)
    assert api_names("aten.mm.default") == ("aten::mm",)
    assert api_names("aten::add.Nonsense") == ()
    assert api_names("torch.nonsense") == ()


def test_it_needs_no_torch() -> None:
    code = (
        "import sys; from opcheck.data.composites import api_names, body;"
        "assert body('aten::conv3d', '2.13') and api_names('torch.fft.rfft');"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_damaged_table_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "composites.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(OpListError) as caught:
        called_by("aten::conv3d", "2.13", tmp_path)
    assert str(path) in str(caught.value)


def test_a_body_without_a_sample_is_run_with_arguments_made_from_its_schema() -> None:
    assert find_sampled_body("aten::special_log1p.out", "2.13") is None
    run_body = body("aten::special_log1p.out", "2.13")
    assert run_body is not None
    assert (run_body.always, run_body.torch) == (("aten::log1p.out",), "2.13.0")


def test_a_sample_comes_before_made_arguments() -> None:
    assert body("aten::pad", "2.13") == find_sampled_body("aten::pad", "2.13")


def test_an_older_line_is_answered_by_the_oldest_line_that_was_run() -> None:
    assert body("aten::det", "1.13") == body("aten::det", "2.8")
