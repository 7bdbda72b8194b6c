"""Nested arguments: lists, tuples, dictionaries, and classes that a program registered.

``torch.utils._pytree`` is private; all of these names are required. ``torch.utils.pytree``,
which 2.8 brought, has not the same functions in each release.
"""

from __future__ import annotations

from typing import Any

import torch

from opcheck.tracing.torch_private import required

with required("moving nested arguments"):
    from torch.utils import _pytree

    keystr = _pytree.keystr
    tree_flatten_with_path = _pytree.tree_flatten_with_path
    tree_iter = _pytree.tree_iter
    tree_leaves = _pytree.tree_leaves
    tree_map = _pytree.tree_map
    tree_map_only = _pytree.tree_map_only
    tree_unflatten = _pytree.tree_unflatten


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, in order, however lists, tuples, dicts and other nodes of a pytree nest them."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]
