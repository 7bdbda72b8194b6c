"""Operator overloads, dispatch keys, kernels, dispatch modes and guards."""

import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from opcheck.tracing.torch_private import require_names

with require_names("dispatching operators as a Mac does"):
    from torch._C import DispatchKey, DispatchKeySet, FunctionSchema
    from torch._compile import _disable_dynamo
    from torch._ops import HigherOrderOperator, OpOverload
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

    # -- keys --------------------------------------------------------------------------------------

    # The stub lacks it.
    AUTOCAST_KEY: DispatchKey = DispatchKey.AutocastMPS  # type: ignore[attr-defined]
    """The key of ``torch.autocast("mps")``. Required."""

    # -- overloads ---------------------------------------------------------------------------------

    schema_of: Callable[[Any], FunctionSchema] = operator.attrgetter("_schema")
    """The schema of an overload: which arguments are written or aliased. Required; there is no
    public name for it.
    """

    packet_name_of: Callable[[Any], str] = operator.attrgetter("_opname")
    """``add`` of ``aten::add.Tensor``. Required."""

    overload_name_of: Callable[[Any], str] = operator.attrgetter("_overloadname")
    """``Tensor`` of ``aten::add.Tensor``, ``default`` where the schema has none. Required."""

    body_of: Callable[[Any], Callable[..., Any]] = operator.attrgetter("_op_dk")
    """Runs an overload's kernel for one dispatch key: ``body_of(op)(key, *args)``.

    This is how the C++ body of a composite is followed. Required. ``OpOverload.decompose`` does not
    replace it: it prefers a Python decomposition to the C++ composite.
    """

    _sample = torch.ops.aten.add.Tensor
    for _getter in (schema_of, packet_name_of, overload_name_of, body_of):
        _getter(_sample)

    # -- kernels -----------------------------------------------------------------------------------

    has_schema = torch._C._dispatch_has_kernel
    """Whether an operator of this name has any kernel. Required."""

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    """Whether an operator has a kernel for a key; raises for an unknown operator. Required.

    ``OpOverload.has_kernel_for_dispatch_key`` does not replace it: it counts Python decompositions.
    """

    describe_kernels: Callable[[str], str] = torch._C._dispatch_dump
    """The kernels of an operator, a line each, with the file that registered it: ``MPS: registered at x.py:3``.
    Required.
    """

    registered_for: Callable[[str], list[str]] = torch._C._dispatch_get_registrations_for_dispatch_key
    """The names of the operators that have a kernel for a key; a Mac's build has them for MPS. Required."""

    def register_over(library: torch.library.Library, name: str, key: str, kernel: Callable[..., Any]) -> None:
        """Register a kernel over the present kernel, which returns with ``unregister``. Required.

        ``Library.impl`` refuses it where that was registered from Python (torch/library.py, 2.8).
        """
        inner: Any = library.m
        inner.impl(name, key, kernel, False)

    takes_numbers_as_tensors = torch._C._should_allow_numbers_as_tensors
    """Whether an operator of this name accepts a number for a tensor, as ``torch.add(x, 1)`` does.
    Required.
    """

    unregister: Callable[[torch.library.Library], None] = torch.library.Library._destroy
    """Takes back what a library registered. Required."""

    # -- Python kernels ----------------------------------------------------------------------------

    group_norm_in_python: Callable[..., Any] = torch._refs.native_group_norm
    """A kernel that a Mac registers from Python (torch/backends/mps/__init__.py, ``_init``).
    Required.
    """

    group_norm_backward_in_python: Callable[..., Any] = torch._decomp.decompositions.native_group_norm_backward
    """The same for its backward. Required."""

    var_mean_in_python: Callable[..., Any] = torch._refs.var_mean
    """The same for ``var_mean`` of complex numbers. Required."""

    lu_solve_in_python: Callable[..., Any] | None = getattr(torch._refs.linalg, "linalg_lu_solve_out_mps", None)
    """The same for ``linalg.lu_solve`` (torch/_refs/linalg/__init__.py of 2.10 to 2.13).

    Optional: without it, a call of the operator on such a target is reported as not simulated.
    """

    # -- modes -------------------------------------------------------------------------------------

    class DispatchMode(TorchDispatchMode):
        """A ``TorchDispatchMode`` that compiles nothing. Required.

        The base class wraps ``__torch_dispatch__`` in ``torch._disable_dynamo``, whose first call
        imports torch._dynamo and takes 1.5 s (torch/utils/_python_dispatch.py, 2.8 to 2.15), unless
        ``_should_skip_dynamo`` is false. A release that ignores the answer is slower by that
        import.
        """

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    disable_modes = _disable_current_modes
    """A context without any dispatch mode. Required."""

    PROXY_MODE: Any = torch._C._TorchDispatchModeKey.PROXY
    """The slot of make_fx's mode, which runs after all others (TorchDispatchModeTLS.cpp,
    ``pop_stack``). Required.
    """

    mode_in_slot = torch._C._get_dispatch_mode
    """The mode in such a slot. Required."""

    clear_slot = torch._C._unset_dispatch_mode
    """Empties such a slot. Required."""

    fill_slot = torch._C._set_dispatch_mode
    """Puts a mode into its slot. Required."""

    # -- guards ------------------------------------------------------------------------------------

    without_function_modes = torch._C.DisableTorchFunction
    """A context that does not call ``__torch_function__``. Required."""

    without_dispatch_modes = torch._C._DisableTorchDispatch
    """A context that does not call ``__torch_dispatch__``. Required."""

    below_autograd = torch._C._AutoDispatchBelowAutograd
    """A context that dispatches below autograd: a composite's body is followed in it. Required."""

    excluding = torch._C._ExcludeDispatchKeyGuard
    """A context that skips the keys of a set. Required."""

    _set_key_excluded = torch._C._SetExcludeDispatchKeyGuard

    def include_key(key: DispatchKey) -> AbstractContextManager[None]:
        """Return a context where a key that a guard excluded is not skipped. Required."""
        return _set_key_excluded(key, False)

    function_hooks_enabled = torch._C._is_torch_function_enabled
    """Whether ``__torch_function__`` of a class would be called now. Required."""

    no_function_hook = torch._C._disabled_torch_function_impl
    """The ``__torch_function__`` of a class that has none. Required."""

    function_mode_stack = torch.overrides._get_current_function_mode_stack
    """The function modes that are active, the outer one first. Required."""

    pop_function_mode = torch.overrides._pop_mode_temporarily
    """A context without the innermost function mode. Required."""

    function_mode_depth = torch._C._len_torch_function_stack
    """How many function modes are active. Required."""

    functorch_level = torch._C._functorch.maybe_current_level
    """The level of the ``torch.func`` transforms that are active, or None. Required."""

    is_functorch_wrapper = torch._C._functorch.is_functorch_wrapped_tensor
    """Whether ``torch.func`` wraps the tensor in its own. Required."""

    def is_batched(tensor: torch.Tensor) -> bool:
        """Return whether a transform of torch.func, or the vmap of torch.autograd.grad, wraps a tensor. Required."""
        keys, batched = torch._C._dispatch_keys(tensor), torch._C._parse_dispatch_key("Batched")
        return is_functorch_wrapper(tensor) or (batched is not None and keys.has(batched))

    functorch_inner = torch._C._functorch.get_unwrapped
    """The tensor that ``torch.func`` wrapped. Required."""

    disable_dynamo = _disable_dynamo
    """The decorator whose first call imports the compiler. Required.

    It leaves a function alone that has the attribute ``__dynamo_disable`` (torch/_compile.py, 2.8
    to 2.15); a release that does not is slower by that import.
    """

__all__ = ["DispatchKey", "DispatchKeySet", "FunctionSchema", "HigherOrderOperator", "OpOverload"]
