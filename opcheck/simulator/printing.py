"""How a Mac prints a tensor."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes


def printed(tensor: torch.Tensor, values: torch.Tensor, contents: str | None = None) -> str:
    """What a Mac prints."""
    if values.is_sparse:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return repr(values.detach()).replace("size=(", "device='mps:0', size=(", 1)
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        if contents is None:
            prefix = "tensor("
            values = values.detach()
            contents = torch._tensor_str._tensor_str(values, len(prefix))
        return torch._tensor_str._str_intern(tensor, tensor_contents=contents)
