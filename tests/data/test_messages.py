from __future__ import annotations

import pytest

from opcheck.common.versions import Version
from opcheck.data.messages import fallback_warning, no_kernel_for, not_implemented

_COMMIT = "cf30153c" * 5


def test_the_text_of_1_13_to_2_5() -> None:
    expected = (
        "The operator 'aten::foo' is not currently implemented for the MPS device. If you want "
        "this op to be added in priority during the prototype phase of this feature, please "
        "comment on https://github.com/pytorch/pytorch/issues/77764. As a temporary fix, you can "
        "set the environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback "
        "for this op. WARNING: this will be slower than running natively on MPS."
    )
    for version in (Version(1, 13), Version(2, 5)):
        assert not_implemented("aten::foo", version, _COMMIT) == expected


def test_the_text_since_2_6() -> None:
    expected = (
        "The operator 'aten::foo.out' is not currently implemented for the MPS device. If you want "
        "this op to be considered for addition please comment on "
        "https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that resulted in "
        f"missing op as well as commit hash {_COMMIT}. As a temporary fix, you can set the "
        "environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for "
        "this op. WARNING: this will be slower than running natively on MPS."
    )
    for version in (Version(2, 6), Version(2, 15)):
        assert not_implemented("aten::foo.out", version, _COMMIT) == expected


@pytest.mark.parametrize(("minor", "own"), [(10, False), (11, True), (15, True)])
def test_distributed_operators_have_a_text_of_their_own_since_2_11(minor: int, own: bool) -> None:
    text = not_implemented("c10d::allreduce_", Version(2, minor), _COMMIT)
    assert text.startswith("The distributed operator") == own
    assert text.endswith("can not fall back to CPU") == own
    assert ("PYTORCH_ENABLE_MPS_FALLBACK" in text) != own


def test_the_warning() -> None:
    assert fallback_warning("aten::foo") == (
        "The operator 'aten::foo' is not currently supported on the MPS backend and will fall "
        "back to run on the CPU. This may have performance implications."
    )


def test_torch_words_the_lack_of_a_cpu_kernel_so() -> None:
    import torch

    with pytest.raises(NotImplementedError) as caught:
        torch.ops.aten._mps_convolution(
            torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 1, 1), None, [0, 0], [1, 1], [1, 1], 1
        )
    assert str(caught.value).startswith(no_kernel_for("aten::_mps_convolution", "CPU"))
