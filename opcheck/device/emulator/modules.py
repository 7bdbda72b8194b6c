"""Which module and which phase of a program is running."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer

from opcheck.tracing.torch_private.autograd import running_node

if TYPE_CHECKING:
    from collections.abc import Iterator


class Modules(threading.local):
    """The modules that are being called, outermost first, in each thread."""

    def __init__(self) -> None:
        self._stack: list[torch.nn.Module] = []
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = (
            weakref.WeakKeyDictionary()
        )
        self._stepping = False

    def where(self) -> tuple[str, str]:
        """The module's name within the outermost one, and the phase."""
        if running_node() is not None:
            return self._module(), "backward"
        if self._stepping and not self._stack:
            return "", "optimizer"
        return self._module(), "forward"

    def _module(self) -> str:
        stack = self._stack
        if not stack:
            return ""
        root, module = stack[0], stack[-1]
        names = self._names.get(root)
        if names is None or id(module) not in names:
            names = self._names[root] = {id(one): name for name, one in root.named_modules()}
        return names.get(id(module)) or type(module).__name__

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Know it for the length of the block."""
        original = torch.nn.Module.__call__

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            stack = self._stack
            stack.append(module)
            try:
                return original(module, *args, **kwargs)
            finally:
                stack.pop()

        def begin(*_: Any) -> None:
            self._stepping = True

        def end(*_: Any) -> None:
            self._stepping = False

        hooks = (
            optimizer.register_optimizer_step_pre_hook(begin),
            optimizer.register_optimizer_step_post_hook(end),
        )
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.nn.Module.__call__ = original  # type: ignore[method-assign]
            for hook in hooks:
                hook.remove()
