"""The tensors in the arguments and results of a call."""

from __future__ import annotations

from typing import Any

import torch

from opcheck.tracing.torch_private.trees import tree_iter


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, in order, however lists, tuples, dicts and other nodes of a pytree nest them."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]
