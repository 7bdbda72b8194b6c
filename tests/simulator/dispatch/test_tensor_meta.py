"""Keys tell apart what differs and decode to what they were made of."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from opcheck.simulator.dispatch.tensor_meta import decode, encode, intern, spec_of

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.complex_numbers(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner)
)


@given(VALUES)
def test_round_trip(value: object) -> None:
    again = decode(encode(value))
    assert again == value
    assert type(again) is type(value)


@given(VALUES)
def test_keys_are_hashable(value: object) -> None:
    hash(encode(value))


def test_one_and_one_point_nought_and_true_are_three() -> None:
    assert len({encode(1), encode(1.0), encode(True)}) == 3


def test_equal_metadata_is_one_object() -> None:
    assert spec_of(torch.ones(2, 3)) is intern((2, 3), (3, 1), torch.float32)
    assert spec_of(torch.ones(3, 2).t()) is not spec_of(torch.ones(2, 3))


def test_a_meta_tensor_has_the_metadata_of_its_spec() -> None:
    base = torch.arange(24).reshape(4, 6)
    for tensor in (base, base[1:, 2:], base.t()[1], base[:0]):
        spec = spec_of(tensor)
        assert spec_of(spec.meta(), "mps") is spec
