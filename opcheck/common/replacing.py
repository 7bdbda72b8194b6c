"""Attributes of torch and of Python that are replaced for the length of a block."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

#: The attribute is of a class that the owner inherits from, or of the owner's class.
_INHERITED = object()


@contextlib.contextmanager
def replace_attributes(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Set each attribute, given as its owner, its name and its new value; restore them all at the end.

    An attribute that the owner inherits is inherited again.

    Raises:
        AttributeError: an owner has no attribute of that name; nothing was replaced.
    """
    before = [(owner, name, _own(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            if value is not _INHERITED:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)


def _own(owner: Any, name: str) -> Any:
    """Return an attribute as it is to be set again: of a static method that is not the function."""
    getattr(owner, name)  # raises where there is none
    return vars(owner).get(name, _INHERITED)
