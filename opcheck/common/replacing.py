"""Attributes of torch and of Python that are replaced for the length of a block."""

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def replace_attributes(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set each attribute, given as its owner, its name and its new value; restore them all at the end.

    Raises:
        AttributeError: an owner has no attribute of that name; nothing was replaced.
    """
    before = [(owner, name, _value(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def _value(owner: Any, name: str) -> Any:
    """Return an attribute as it is to be set again: of a static method that is not the function."""
    value = inspect.getattr_static(owner, name, None)
    return value if isinstance(value, staticmethod) else getattr(owner, name)
