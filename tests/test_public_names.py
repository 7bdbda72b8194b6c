"""The names of the package: listed before they are imported."""

from __future__ import annotations

from typing import get_args

import opcheck


def test_each_public_name_is_listed_and_there() -> None:
    assert {*opcheck.__all__} <= {*dir(opcheck)}
    for name in opcheck.__all__:
        assert getattr(opcheck, name) is not None
    assert "native" in get_args(opcheck.Status)
