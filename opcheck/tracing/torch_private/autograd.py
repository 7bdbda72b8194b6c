"""Autograd's engine, and which of its nodes runs."""

import operator
from collections.abc import Callable
from typing import Any

import torch

from opcheck.tracing.torch_private import place, require_names

with require_names("telling which forward call a call of backward belongs to"):
    next_sequence_number = torch._C._autograd._get_sequence_nr
    """The number that the next node of this thread takes (torch/csrc/autograd/function.h,
    ``Node``). Required.
    """

    running_node: Callable[[], Any] = torch._C._current_autograd_node
    """The node that the engine runs now; None where none runs, which the stub does not say.
    Required.
    """

    sequence_number_of: Callable[[Any], int] = operator.methodcaller("_sequence_nr")
    """The number of a node, the largest there is for a node that gathers gradients. Required."""
    sequence_number_of(torch.ones(1, device="cpu", requires_grad=True).exp().grad_fn)

    RUN_BACKWARD = place(torch.autograd, "_engine_run_backward")
    """What ``Tensor.backward`` and ``torch.autograd.grad`` call. Required; replaced, to follow the
    engine.
    """

    engine_code = RUN_BACKWARD.value().__code__
    """The code of its frame: a call below it, with no line of the program between, is autograd's
    own. Required.
    """

    SINGLE_LEVEL_FUNCTION: Any = torch.autograd.function._SingleLevelFunction
    """The base of custom Functions, whose ``apply`` calls C++. Required; extended, to learn which
    devices the tensors of a Function are on.
    """

    BACKWARD_APPLY = place(torch.autograd.function.BackwardCFunction, "apply")
    """What the engine calls for the node of a custom Function. Required; replaced, to check its
    results.
    """
