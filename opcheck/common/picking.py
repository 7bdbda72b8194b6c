"""Picks the attributes of a record that another record takes over."""

from typing import Any


def pick(entry: object, *names: str) -> dict[str, Any]:
    """Return attributes by their names, as the fields of another record."""
    return {name: getattr(entry, name) for name in names}
