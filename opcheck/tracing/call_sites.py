"""Tracks which module of a program is being called, and the phase."""

import contextlib
import sys
import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch
from torch.optim import optimizer

from opcheck.common.replacing import replace_attributes
from opcheck.common.vocabulary import Phase
from opcheck.model.records import SourceLocation
from opcheck.tracing.source_locations import Site, UserFrames, locate, locate_in_text
from opcheck.tracing.torch_private.modules import lines_of
from opcheck.tracing.torch_private.tensors import engine_code, next_sequence_number, running_node, sequence_number_of


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
        self._names_below: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = weakref.WeakKeyDictionary()

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

        hooks = (optimizer.register_optimizer_step_pre_hook(begin), optimizer.register_optimizer_step_post_hook(end))
        try:
            with super().follow_modules(root):
                yield
        finally:
            for hook in hooks:
                hook.remove()


def _names(root: torch.nn.Module) -> dict[int, str]:
    # named_modules() leaves duplicates out: a shared module goes by the first of its names.
    return {id(module): name for name, module in root.named_modules()}


# -- Finds where in the program an operator call is made: its line, its module and its phase --


class CallSites:
    """Follows a program whose phases opcheck drives; a call of backward has the place of its forward call."""

    def __init__(self, caller: CodeType | None = None) -> None:
        """Follow nothing yet.

        Args:
            caller: calls the program; the frames outside of it are not the program's.
        """
        #: what the program does where autograd does not run: forward, backward, optimizer
        self.phase: Phase = "forward"
        self.modules = ModuleStack()
        self._frames = UserFrames(caller)
        self._frames.add([ENGINE])
        self._trail = Trail()
        self._graphs: dict[CodeType, torch.fx.GraphModule] = {}

    def here(self) -> tuple[Site, str, Phase]:
        """Return line, module and phase of the current call."""
        site = self._frames.innermost(sys._getframe(1))
        in_engine = site is not None and site[0] is ENGINE
        if site is None and running_node() is not None:
            # A device's backward runs in a thread of its own, without a line of the program.
            return (*self._trail.of_running_node(), "backward")
        place = self._trail.of_running_node() if in_engine else (site, self.modules.name())
        # In the engine, too: the backward of a backward belongs to the same forward call.
        self._trail.note(place)
        return (*place, "backward" if in_engine else self.phase)

    @contextlib.contextmanager
    def at(self, phase: Phase, name: str) -> Iterator[None]:
        """Give the calls inside the block this phase and, where no module runs, this name.

        An exception leaves the phase of its raise.
        """
        before, self.phase = self.phase, phase
        with self.modules.inside(name):
            yield
        self.phase = before

    @contextlib.contextmanager
    def follow_modules(self, root: torch.nn.Module) -> Iterator[None]:
        """Record which module of ``root`` is running inside the block."""
        graphs = [each for each in root.modules() if isinstance(each, torch.fx.GraphModule)]
        self._graphs = {type(each).forward.__code__: each for each in graphs if lines_of(each) is not None}
        self._frames.add(self._graphs)
        with self.modules.follow_modules(root):
            yield

    def locate(self, site: Site, module: str) -> tuple[SourceLocation | None, str]:
        """Return the record of a call's line and its module; in a graph that is run again, those of its node."""
        graph = self._graphs.get(site[0]) if site else None
        if graph is None or site is None:
            return locate(site), module
        # torch/fx/graph.py: the lines of the generated code, counted from its def, by the nodes that they run.
        start = graph.code.partition("def ")[0].count("\n") + 1
        index = (lines_of(graph) or {}).get(site[1] - start)
        if index is None:
            return None, module
        node = list(graph.graph.nodes)[index]
        path, kind = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())[-1]
        # torch/_export/utils.py: "@1" marks the second call of a module.
        name = path.partition("@")[0] or str(getattr(kind, "__name__", kind)).rpartition(".")[2]
        return locate_in_text(node.stack_trace), name or module


#: a line of the program, and the module that it is called in
Place = tuple[Site, str]

#: A call below this frame, with no line of the program in between, is autograd's own.
ENGINE: CodeType = engine_code


class Trail:
    """The lines and modules of the forward calls, by the numbers of their nodes."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._places: list[Place] = []
        #: of the node that ran last: sums of gradients are made between two nodes.
        self._last: Place = (None, "")

    def note(self, place: Place) -> None:
        """Keep where a forward call was made; the first call after a node was made is the node's."""
        number = next_sequence_number()
        if not self._numbers or number > self._numbers[-1]:
            self._numbers.append(number)
            self._places.append(place)

    def of_running_node(self) -> Place:
        """Return where the forward call of the node that runs now was made."""
        node = running_node()
        if node is not None:
            # A call that makes two nodes (an in-place operator saves a clone) was noted for the later node.
            # Nodes that gather gradients have the largest number there is: they count as the last node.
            index = bisect_left(self._numbers, sequence_number_of(node) + 1)
            if index < len(self._places):
                self._last = self._places[index]
        return self._last
