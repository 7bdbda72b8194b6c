"""An emulated Mac in the place of the GPU, to try observations on any machine, with planted differences.

``OPCHECK_TEST_LISTS`` names op lists that the emulated Mac has in place of the shipped ones, and ``OPCHECK_TEST_WRONG``
operators whose results on it are wrong (``aten::erf``), that raise (``?aten::erf``) or abort (``!aten::erf``).
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from opcheck.data.registrations import VARIABLE, forget
from opcheck.device.emulator.child.session import emulate
from opcheck.tracing.torch_private.dispatch import DispatchMode
from opcheck.tracing.torch_private.trees import tensors, tree_map_only

LISTS = "OPCHECK_TEST_LISTS"
WRONG = "OPCHECK_TEST_WRONG"


class PlantedErrors(DispatchMode):
    """Makes results of these operators on mps wrong; with a mark before its name an operator raises or aborts."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute the call, and change what it gives."""
        name = func.name()
        if any(tensor.device.type == "mps" for tensor in tensors((args, kwargs))):
            if f"!{name}" in self._names:
                os.abort()
            if f"?{name}" in self._names:
                raise RuntimeError("Undefined type Float")
            if name in self._names:
                return tree_map_only(torch.Tensor, _change, func(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))


def _change(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 1.5 + 0.5 if tensor.is_floating_point() else tensor


@contextlib.contextmanager
def stand_in_device(mac: str, *, cpu_fallback: bool = False) -> Iterator[None]:
    """Emulate a Mac, ``2.13/15``, for the length of a block; with an empty text the machine's own device stays."""
    if not mac:
        yield
        return
    torch_line, macos = mac.split("/")
    lists = os.environ.get(LISTS)
    with contextlib.ExitStack() as stack:
        if lists:
            os.environ[VARIABLE] = lists
            stack.callback(forget)
            stack.callback(os.environ.pop, VARIABLE, None)
            forget()
        stack.enter_context(emulate(torch_line, macos, fallback=cpu_fallback))
        if names := frozenset(filter(None, os.environ.get(WRONG, "").split(","))):
            stack.enter_context(PlantedErrors(names))
        yield
