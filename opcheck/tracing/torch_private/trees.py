"""Nested arguments: lists, tuples, dictionaries, and classes that a program registered.

``torch.utils._pytree`` is private; all of these names are required. ``torch.utils.pytree``,
which 2.8 brought, has not the same functions in each release.
"""

from typing import Any

import torch

from opcheck.tracing.torch_private import require_names

with require_names("moving nested arguments"):
    from torch.utils._pytree import (
        keystr,
        tree_flatten_with_path,
        tree_iter,
        tree_leaves,
        tree_map,
        tree_map_only,
        tree_unflatten,
    )

__all__ = [
    "keystr",
    "tensors",
    "tree_flatten_with_path",
    "tree_iter",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
]


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, in order, however nodes of a pytree nest them.  Required for nested arguments."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]
