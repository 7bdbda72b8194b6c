"""Nested arguments: lists, tuples, dictionaries, and classes that a program registered.

``torch.utils._pytree`` is private; ``torch.utils.pytree``, which 2.8 brought, has not the same functions in each
release.
"""

from typing import Any

import torch

from opcheck.tracing.torch_private import require_names

with require_names("moving nested arguments"):
    from torch.utils import _pytree

    keystr = _pytree.keystr
    """The text of the path to a leaf. Required."""

    tree_flatten_with_path = _pytree.tree_flatten_with_path
    """Returns the leaves with their paths, and the structure. Required."""

    tree_iter = _pytree.tree_iter
    """Yields the leaves. Required."""

    tree_leaves = _pytree.tree_leaves
    """Returns the leaves. Required."""

    tree_map = _pytree.tree_map
    """Replaces each leaf by the result of a function. Required."""

    tree_map_only = _pytree.tree_map_only
    """Replaces each leaf of a type by the result of a function. Required."""

    tree_unflatten = _pytree.tree_unflatten
    """Puts leaves into a structure. Required."""


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, in order, however nodes of a pytree nest them.  Required for nested arguments."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]
