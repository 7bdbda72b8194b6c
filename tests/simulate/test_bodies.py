"""Bodies of composites: those of the target's release, where the installed torch's calls something else."""

from __future__ import annotations

import pytest
import torch

from opcheck.simulate.bodies import EARLIER
from tests.simulate.mac import recorded


def attend(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    # Not contiguous: in 2.5 the kernel of MPS is not taken.
    q = x.transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)


@pytest.mark.parametrize(
    ("release", "calls"), [("2.5", "aten::eq.Tensor"), ("2.6", "aten::isneginf")]
)
def test_safe_softmax_compares_in_2_5_and_asks_from_2_6_on(release: str, calls: str) -> None:
    x = torch.ones(2, 4, 8, 16, requires_grad=True)
    made = recorded(attend, x, torch.zeros(4, 4), release=release, grad=True).calls
    (softmax,) = (one.call for one in made if one.call.route.name == "aten::_safe_softmax")
    assert softmax.inner is not None
    assert calls in softmax.inner


def test_the_spans_of_one_body_do_not_overlap() -> None:
    for spans in EARLIER.values():
        for index, (span, calls) in enumerate(spans):
            assert calls
            assert not span.empty
            assert not any(span.overlaps(other) for other, _ in spans[index + 1 :])


def test_grouped_heads_are_repeated_where_the_argument_is_not_known() -> None:
    def group(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)

    made = recorded(group, torch.ones(1, 8, 4, 16), torch.ones(1, 2, 4, 16), release="2.4").calls
    names = [one.call.route.name for one in made]
    assert names.count("aten::expand") >= 2
    assert "aten::bmm" in names
