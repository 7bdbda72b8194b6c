"""Attributes of torch and of Python that are replaced for the length of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def replaced(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set each attribute, given as its owner, its name and its new value; restore them all at the end.

    Raises:
        AttributeError: an owner has no attribute of that name; nothing was replaced.
    """
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
