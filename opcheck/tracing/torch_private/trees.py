"""Nested arguments: lists, tuples, dictionaries, and classes that a program registered.

``torch.utils._pytree`` is private; all of these names are required. ``torch.utils.pytree``,
which 2.8 brought, has not the same functions in each release.
"""

from opcheck.tracing.torch_private import required

with required("moving nested arguments"):
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
    "tree_flatten_with_path",
    "tree_iter",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_unflatten",
]
