"""Compute gradients by this machine's CPU below a dispatch mode: opcheck run needs them for functions of MPS alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from opcheck.tracing.torch_private import dispatch

Tensor = torch.Tensor


@contextlib.contextmanager
def cpu_autograd() -> Iterator[None]:
    """Turn on the CPU's own autograd, which is off below a dispatch mode, without function modes."""
    keys = dispatch.DispatchKey
    with (
        dispatch.without_function_modes(),
        dispatch.include_key(keys.AutogradFunctionality),
        dispatch.include_key(keys.ADInplaceOrView),
        torch.enable_grad(),
    ):
        yield


def gradients(
    forward: Callable[..., Any], inputs: Sequence[Tensor], wanted: Sequence[bool], *grads: Any
) -> list[Tensor | None]:
    """Differentiate on the CPU.

    Args:
        forward: a function of the inputs.
        inputs: its arguments.
        wanted: for each input, whether its gradient is wanted.
        grads: the gradient of each result; None for a result without one.

    Returns:
        For each input its gradient; None where it is not wanted or does not depend on a result.
    """
    with cpu_autograd():
        leaves = [
            tensor.detach().requires_grad_(want)
            for tensor, want in zip(inputs, wanted, strict=True)
        ]
        outputs = forward(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        arguments = [
            (out, grad) for out, grad in zip(outputs, grads, strict=False) if grad is not None
        ]
        asked = [leaf for leaf in leaves if leaf.requires_grad]
        if not asked or not arguments:
            return [None] * len(leaves)
        results = iter(
            torch.autograd.grad(
                [out for out, _ in arguments],
                asked,
                [grad for _, grad in arguments],
                allow_unused=True,
            )
        )
    return [next(results) if leaf.requires_grad else None for leaf in leaves]
