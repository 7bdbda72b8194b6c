"""Format a tensor as a Mac prints it."""

from __future__ import annotations

import torch

from opcheck.tracing.torch_private import dispatch, tensors


def printed(tensor: torch.Tensor, values: torch.Tensor, contents: str | None = None) -> str:
    """Return the text that a Mac prints."""
    if values.is_sparse:
        with dispatch.without_function_modes(), dispatch.disable_modes():
            return repr(values.detach()).replace("size=(", "device='mps:0', size=(", 1)
    with dispatch.without_function_modes(), dispatch.disable_modes():
        if contents is None:
            prefix = "tensor("
            values = values.detach()
            contents = tensors.text_of_contents(values, len(prefix))
        return tensors.text_of_tensor(tensor, tensor_contents=contents)
