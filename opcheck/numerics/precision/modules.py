"""How the error grows from module to module, and what would cross if one were kept on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from opcheck.model.records import PrecisionModule
from opcheck.numerics.precision.shadows import Shadows, followed
from opcheck.numerics.precision.tally import digits
from opcheck.tracing.nested_tensors import tensors


class _Module:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.calls = 0
        self.inherited = self.total = 0.0
        self.bytes_in = self.bytes_out = 0


class Modules:
    """What goes into each module of a model and comes out of it."""

    def __init__(self, root: nn.Module, shadows: Shadows) -> None:
        self._names = {id(module): name for name, module in root.named_modules()}
        self._shadows = shadows
        self._found: dict[str, _Module] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at every call of a module, for the length of the block."""
        handle = register_module_forward_hook(self._called, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def records(self, by_module: Mapping[str, list[int]]) -> Iterator[PrecisionModule]:
        """The modules in the order in which they were done first."""
        for name, module in self._found.items():
            yield PrecisionModule(
                name=name,
                kind=module.kind,
                calls=module.calls,
                inherited=digits(module.inherited),
                total=digits(module.total),
                bytes_in=module.bytes_in,
                bytes_out=module.bytes_out,
                at_fault=by_module.get(name, [0, 0])[1],
            )

    def _called(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = self._names.get(id(module))
        if not name:
            return
        found = self._found.setdefault(name, _Module(type(module).__name__))
        found.calls += 1
        read, made = tensors((args, kwargs)), tensors(output)
        found.inherited = max(found.inherited, self._error(read))
        found.total = max(found.total, self._error(made))
        found.bytes_in += sum(tensor.nbytes for tensor in read)
        found.bytes_out += sum(tensor.nbytes for tensor in made)

    def _error(self, values: list[torch.Tensor]) -> float:
        return max(
            (self._shadows.error(tensor) for tensor in values if followed(tensor)), default=0.0
        )
