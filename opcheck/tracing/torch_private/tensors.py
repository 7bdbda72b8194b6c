"""Tensors that dispatch as a Mac's: making, changing, printing and pickling them."""

import operator
from collections.abc import Callable
from typing import Any

import torch

from opcheck.tracing.torch_private import AttributePlace, place, require_names

with require_names("making a plain CPU tensor that dispatches as MPS"):
    tensor_base: Any = torch._C.TensorBase
    """The class in C++ that ``torch.Tensor`` derives from: the methods that a subclass did not
    replace. Required.
    """

    make_wrapper_subclass: Callable[..., Any] = torch.Tensor._make_wrapper_subclass
    """Makes a tensor without memory, with dispatch keys of our choice (``_extra_dispatch_keys=``).
    Required.
    """

    make_subclass: Callable[..., Any] = torch.Tensor._make_subclass
    """Makes a tensor of another class that shares its memory. Required."""

    base_make_wrapper_subclass: Callable[..., Any] = tensor_base._make_wrapper_subclass
    """The same from the base class, while the simulation replaces ``torch.Tensor``'s. Required."""

    base_make_subclass: Callable[..., Any] = tensor_base._make_subclass
    """The same from the base class, while the simulation replaces ``torch.Tensor``'s. Required."""

    refuse_data_access = torch._C._set_throw_on_mutable_data_ptr
    """Lets C++ that would write through a missing data pointer raise, where it would end the
    process. Required.
    """

    set_data: Callable[[torch.Tensor, torch.Tensor], None] = tensor_base.data.__set__
    """Gives a tensor the metadata, the keys and the memory of another, in place. Required."""

    swap_implementations: Callable[[torch.Tensor, torch.Tensor], None] = torch._C._swap_tensor_impl
    """Exchanges the C++ objects of two Python objects, as ``torch.utils.swap_tensors`` does in addition to
    their classes and attributes. Required.
    """

    set_conjugate = torch._C._set_conj
    """Marks a view as conjugated. Required."""

    is_wrapper: Callable[[torch.Tensor], bool] = torch.utils._python_dispatch.is_traceable_wrapper_subclass
    """Whether a tensor is of a class that wraps others, such as torchao's quantized weights. Required."""

    set_negative = torch._C._set_neg
    """Marks a view as negated. Required."""

    negative_view: Callable[[torch.Tensor], torch.Tensor] = torch._neg_view
    """A view that is read as negated. Required."""

    is_view: Callable[[torch.Tensor], bool] = torch.Tensor._is_view
    """Whether autograd has a tensor as a view of another. Required."""

    sparse_indices: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor._indices
    """The indices of a sparse tensor that need not be coalesced. Required."""

    sparse_values: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor._values
    """The values of a sparse tensor that need not be coalesced. Required."""

    storage_address: Callable[[torch.UntypedStorage], int] = operator.attrgetter("_cdata")
    """The address of the C++ object of a storage: the same for all tensors that share memory.
    Required.
    """
    storage_address(torch.UntypedStorage(0))

    untyped_memory: Callable[[torch.TypedStorage], torch.UntypedStorage] = operator.attrgetter("_untyped_storage")
    """The memory of a storage with a dtype, without the warning of its public name. Required."""

    storage_base: Any = torch.storage._StorageBase
    """The base class of the storages, whose method ``mps`` a Mac has. Required."""

    NEW_SHARED = place(storage_base, "_new_shared")
    """Makes the memory of a batch in a worker of a data loader. Required; replaced: it makes none of MPS."""

    parse_to: Callable[..., Any] = torch._C._nn._parse_to
    """Parses the arguments of ``Tensor.to`` to device, dtype, non_blocking and memory format.
    Required.
    """

    PARSE_TO = place(torch._C._nn, "_parse_to")
    """The same, where ``Module.to`` calls it. Required; replaced, because an index alone is MPS's on a
    Mac and no accelerator's here.
    """

    text_of_contents: Callable[..., str] = torch._tensor_str._tensor_str
    """The numbers of a tensor as ``repr`` prints them. Required."""

    text_of_tensor: Callable[..., str] = torch._tensor_str._str_intern
    """``repr`` of a tensor around numbers that are given. Required."""

    PICKLED_STATE = place(torch._utils, "_get_obj_state")
    """What a tensor pickles in addition to its values. Required; replaced, so that what is ours is not
    pickled.
    """

    IS_ALIAS = place(torch._C, "_any_output_is_alias_to_input_or_output")
    """Whether results share memory with arguments (torch/_library/utils.py, since 2.8). Required; replaced."""

    sent_error: type = torch._utils.ExceptionWrapper
    """What a process of a data loader sends of an error. Required."""

    FROM_DLPACK = place(torch._C, "_from_dlpack")
    """Makes a tensor of a capsule. Required; replaced, to take capsules of Metal memory."""

    TO_DLPACK = place(torch._C, "_to_dlpack")
    """Makes a capsule. Required; replaced, to make capsules of Metal memory."""

    TO_DLPACK_VERSIONED = AttributePlace(torch._C, "_to_dlpack_versioned")
    """Makes a capsule with a version, since 2.9. Optional: where it is missing, nothing is
    replaced.
    """


def mark_parameter(tensor: torch.Tensor, *, is_parameter: bool) -> None:
    """Let a wrapper count as a parameter, as ``Parameter()`` marks it (torch/nn/parameter.py). Required."""
    tensor._is_param = is_parameter


# -- Autograd's engine, and which of its nodes runs --


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
