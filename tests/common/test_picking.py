"""Attributes are picked by their names."""

from opcheck.common.picking import pick
from opcheck.common.versions import Version


def test_attributes_and_properties_are_picked() -> None:
    assert pick(Version(2, 13), "major", "minor") == {"major": 2, "minor": 13}
