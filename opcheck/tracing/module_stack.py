"""Tracks which module of a program is being called, and the phase."""

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import optimizer

from opcheck.common.replacing import replace_attributes
from opcheck.common.vocabulary import Phase
from opcheck.tracing.torch_private.autograd import running_node


class _Thread(threading.local):
    """The state of one thread."""

    def __init__(self) -> None:
        #: modules, and names in their place, outermost first
        self.stack: list[Any] = []
        self.in_optimizer = False


class ModuleStack:
    """The modules that are being called, outermost first, in each thread."""

    def __init__(self) -> None:
        #: the ids of the modules that were called
        self.called: set[int] = set()
        #: the innermost module that an exception left
        self.raised_in = ""
        self._thread = _Thread()
        self._names: dict[int, str] | None = None
        self._names_below: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = (
            weakref.WeakKeyDictionary()
        )

    def name(self) -> str:
        """Return the innermost module: its path, or its class where it has none; empty where no module runs."""
        stack = self._thread.stack
        if not stack:
            return ""
        module = stack[-1]
        if type(module) is str:
            return module
        names = self._names if self._names is not None else self._names_of(stack[0], module)
        # TorchScript keeps the name of the class that a module was made from.
        return names.get(id(module)) or str(getattr(module, "original_name", type(module).__name__))

    def _names_of(self, outermost: torch.nn.Module, module: torch.nn.Module) -> dict[int, str]:
        names = self._names_below.get(outermost)
        if names is None or id(module) not in names:
            names = self._names_below[outermost] = _names(outermost)
        return names

    @contextlib.contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Give calls inside the block that no module makes this name."""
        stack = self._thread.stack
        stack.append(name)
        try:
            yield
        finally:
            stack.pop()

    @contextlib.contextmanager
    def follow_modules(self, root: torch.nn.Module | None = None) -> Iterator[None]:
        """Record which module is being called inside the block.

        Args:
            root: modules go by their paths below it; None: by those below the outermost called module.
        """
        self._names = None if root is None else _names(root)
        thread, called = self._thread, self.called
        original = torch.nn.Module.__call__

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            stack = thread.stack
            stack.append(module)
            called.add(id(module))
            try:
                return original(module, *args, **kwargs)
            except BaseException:
                self.raised_in = self.raised_in or self.name()
                raise
            finally:
                stack.pop()

        with replace_attributes([(torch.nn.Module, "__call__", call)]):
            yield


class ProgramStack(ModuleStack):
    """The modules of a program that calls backward and its optimizers itself, with the phase."""

    def where(self) -> tuple[str, Phase]:
        """Return the innermost module, and the phase."""
        name = self.name()
        if running_node() is not None:
            return name, "backward"
        thread = self._thread
        if thread.in_optimizer and not thread.stack:
            return "", "optimizer"
        return name, "forward"

    @contextlib.contextmanager
    def follow_modules(self, root: torch.nn.Module | None = None) -> Iterator[None]:
        """Record which module is being called inside the block, and whether an optimizer steps."""

        def begin(*_: Any) -> None:
            self._thread.in_optimizer = True

        def end(*_: Any) -> None:
            self._thread.in_optimizer = False

        hooks = (
            optimizer.register_optimizer_step_pre_hook(begin),
            optimizer.register_optimizer_step_post_hook(end),
        )
        try:
            with super().follow_modules(root):
                yield
        finally:
            for hook in hooks:
                hook.remove()


def _names(root: torch.nn.Module) -> dict[int, str]:
    # named_modules() leaves duplicates out: a shared module goes by the first of its names.
    return {id(module): name for name, module in root.named_modules()}
