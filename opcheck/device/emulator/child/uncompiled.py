"""Functions that a program compiles, by ``torch.compile`` or to TorchScript, run uncompiled."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.replacing import replaced
from opcheck.simulator.errors import NotSimulatedError
from opcheck.tracing.eager_compile import eager_compile
from opcheck.tracing.source_locations import is_own_code
from opcheck.tracing.torch_private import compilation
from opcheck.tracing.torch_private.modules import is_scripting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: takes the name of what was left out
    Tell = Callable[[str], None]


@contextlib.contextmanager
def run_uncompiled(tell: Tell) -> Iterator[None]:
    """For the length of the block; ``tell`` is called for each use.

    TorchScript asks C++ for the device, which says ``cpu``: with PYTORCH_JIT=0, as ``opcheck run``
    sets it, torch returns what it was given. Without that, it stays as it is.
    """
    changes: list[tuple[Any, str, Any]] = [(torch, "compile", eager_compile(tell, _refuse_backend))]
    if not is_scripting():
        changes += [(torch.jit, name, _scripting(name, tell)) for name in ("script", "trace")]
        changes += [
            (torch.jit, name, _return_module) for name in ("freeze", "optimize_for_inference")
        ]
        changes += [(torch.jit, "save", _unwritten)]
    with replaced(changes):
        yield


def _refuse_backend(name: object) -> None:
    """Raise what torch.compile raises of a backend that there is not, such as mps."""
    if isinstance(name, str) and name not in ("inductor", "eager", "aot_eager"):
        compilation.backend(name)


def _scripting(name: str, tell: Tell) -> Callable[..., Any]:
    original = getattr(torch.jit, name)

    @functools.wraps(original)
    def script(*args: Any, **options: Any) -> Any:
        # A library decorates functions with it that the program may never call.
        if is_own_code(sys._getframe(1).f_code.co_filename):
            tell(f"torch.jit.{name}")
        return original(*args, **options)

    return script


def _return_module(module: Any, *_: Any, **__: Any) -> Any:
    return module


def _unwritten(*_: Any, **__: Any) -> None:
    message = "torch.jit.save is not emulated: TorchScript runs as Python here, and is not written"
    raise NotSimulatedError(message)
