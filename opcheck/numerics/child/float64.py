"""Repeats an operator call in float64; defines a call, and the mode that sees each call of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.tracing.torch_private.dispatch import DispatchMode, schema_of
from opcheck.tracing.torch_private.trees import tensors, tree_map

if TYPE_CHECKING:
    from typing_extensions import Self

aten = torch.ops.aten

#: The dtypes of floating and complex numbers, and what their numbers are in float64.
WIDE = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), torch.complex128),
}

#: Operators whose results have no values yet: memory that another call writes to.
BLANK = {
    *(aten.empty, aten.empty_like, aten.empty_permuted, aten.empty_strided),
    *(aten.new_empty, aten.new_empty_strided, aten.resize_),
}

#: Operators that sum products of their operands, by the beginnings of their names.
PRODUCTS = tuple(
    f"aten::{name}"
    for name in (*("mm", "mv", "bmm", "dot", "vdot", "addmm", "addmv", "baddbmm", "addbmm"), "convolution")
)

#: These are tagged as random for a dropout that they may have inside; without one they are not.
_NOT_RANDOM = ("_scaled_dot_product", "_efficient_attention", "_flash_attention")


def is_random(func: Any) -> bool:
    """Return whether the result of an operator depends on the generator."""
    return torch.Tag.nondeterministic_seeded in func.tags and not func.__name__.startswith(_NOT_RANDOM)


def widen_dtype(value: Any) -> Any:
    """Return the wide dtype of a dtype; anything else as it is."""
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


class Float64Call(NamedTuple):
    """A call of an operator.  A ``KeptTensor`` may replace a tensor among the arguments."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def moves_nothing(self) -> bool:
        """True if it only turns a tensor into a view of itself, or takes a number out of a tensor."""
        return self.func is aten._local_scalar_dense.default or torch.Tag.inplace_view in self.func.tags

    def arguments(self) -> dict[str, Any]:
        """Return the arguments by their names in the schema, defaults included."""
        declared = schema_of(self.func).arguments
        values = {entry.name: entry.default_value for entry in declared if entry.has_default_value()}
        names = (entry.name for entry in declared)
        return {**values, **dict(zip(names, self.args, strict=False)), **self.kwargs}

    def written_tensors(self) -> list[torch.Tensor]:
        """Return the tensors that the call writes to, in the order of the schema."""
        written: list[torch.Tensor] = []
        for position, argument in enumerate(schema_of(self.func).arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = self.kwargs.get(argument.name)
                if position < len(self.args) and not argument.kwarg_only:
                    value = self.args[position]
                written += tensors(value)
        return written

    def result_tensors(self, result: Any) -> list[torch.Tensor]:
        """Return the tensors that the call made or wrote to, each once."""
        by_identity = {id(tensor): tensor for tensor in (*tensors(result), *self.written_tensors())}
        return list(by_identity.values())

    def with_changed(self, change: Callable[[Any], Any]) -> Self:
        """Return the call with each argument, and each item of a nested argument, changed."""
        args, kwargs = tree_map(change, (self.args, self.kwargs))
        return self._replace(args=args, kwargs=kwargs)

    def for_wide_results(self, like: torch.Tensor | None) -> Self:
        """Return the call with float64 requested, if it chooses the dtype itself and made a floating ``like``."""
        wide = WIDE.get(like.dtype) if like is not None else None
        names = [argument.name for argument in schema_of(self.func).arguments]
        if wide is None or "dtype" not in names or self.kwargs.get("dtype"):
            return self
        if names.index("dtype") < len(self.args):
            return self
        return self._replace(kwargs={**self.kwargs, "dtype": wide})

    def run(self, kernel: Callable[..., Any] | None = None) -> list[torch.Tensor]:
        """Return what the call makes; ``kernel`` computes it in the operator's place.

        Raises:
            Exception: whatever the kernel raises.
        """
        return self.result_tensors((kernel or self.func)(*self.args, **self.kwargs))


class Float64Mode(DispatchMode):
    """Sees every operator call of a run; a subclass makes it again in float64 and compares the results."""

    def __init__(self) -> None:
        super().__init__()
        #: the overload that is running: what raised, if something did
        self.running = ""

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Make one call of the program."""
        self.running = func.name()
        call = self.prepare(Float64Call(func, args, kwargs or {}))
        if self.passes(call):
            return func(*call.args, **call.kwargs)
        before = self.before_call(call)
        result = self.compute(call)
        self.after_call(call, before, result)
        return result

    def prepare(self, call: Float64Call) -> Float64Call:
        """Return the call as the run makes it."""
        return call

    def passes(self, call: Float64Call) -> bool:
        """Return whether there is nothing to compare."""
        raise NotImplementedError

    def before_call(self, call: Float64Call) -> Any:
        """Return what ``after`` needs of the time before the call, which may write to its arguments."""
        raise NotImplementedError

    def compute(self, call: Float64Call) -> Any:
        """Return the result of the call in the run."""
        return call.func(*call.args, **call.kwargs)

    def after_call(self, call: Float64Call, before: Any, result: Any) -> None:
        """Make the call again in float64, and compare."""
        raise NotImplementedError
