"""Values are grouped by their keys."""

from opcheck.common.grouping import group_values


def test_keys_and_values_keep_their_order() -> None:
    groups = group_values([("b", 2), ("a", 3), ("b", 1)])
    assert list(groups.items()) == [("b", [2, 1]), ("a", [3])]
