"""How the error grows from module to module, and what would cross if one were kept on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from opcheck.model.records import PrecisionModule
from opcheck.numerics.precision.shadows import Shadows, followed
from opcheck.numerics.precision.tally import PrecisionTally
from opcheck.numerics.tally import digits
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
        self._entries: dict[str, _Module] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at every call of a module, for the length of the block."""
        handle = register_module_forward_hook(self._called, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def records(self, tally: PrecisionTally) -> Iterator[PrecisionModule]:
        """The modules in the order in which they were done first."""
        for name, module in self._entries.items():
            yield PrecisionModule(
                name=name,
                kind=module.kind,
                calls=module.calls,
                inherited=digits(module.inherited),
                total=digits(module.total),
                bytes_in=module.bytes_in,
                bytes_out=module.bytes_out,
                at_fault=tally.at_fault[name],
            )

    def _called(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = self._names.get(id(module))
        if not name:
            return
        entry = self._entries.setdefault(name, _Module(type(module).__name__))
        entry.calls += 1
        read, made = tensors((args, kwargs)), tensors(output)
        entry.inherited = max(entry.inherited, self._error(read))
        entry.total = max(entry.total, self._error(made))
        entry.bytes_in += sum(tensor.nbytes for tensor in read)
        entry.bytes_out += sum(tensor.nbytes for tensor in made)

    def _error(self, values: list[torch.Tensor]) -> float:
        return max(
            (self._shadows.error(tensor) for tensor in values if followed(tensor)), default=0.0
        )
