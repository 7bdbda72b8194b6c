"""Starts processes as a Mac does: by spawn, which sends a process its target and arguments by pickle.

macOS has three start methods, and spawn is the default (Lib/multiprocessing/context.py).
"""

import contextlib
import multiprocessing
import sys
from collections.abc import Iterator
from multiprocessing import context, process, reduction
from typing import Any, NamedTuple

from opcheck.common.replacing import replace_attributes
from opcheck.common.text import error_chain
from opcheck.worker import platform

#: The attribute of an error that the start of a process raises on a Mac.
_MARK = "_opcheck_not_spawned"

#: What ``replace_attributes`` takes: an object, the name of its attribute, and the new value.
Change = tuple[Any, str, Any]


def is_not_spawned(error: BaseException) -> bool:
    """Return whether a Mac raises this error, or one that it follows from, when it starts a process."""
    return any(hasattr(earlier, _MARK) for earlier in error_chain(error))


def mark_not_spawned(error: BaseException) -> None:
    """Note that a Mac raises this error when it starts a process."""
    with contextlib.suppress(AttributeError):  # an exception of the program's with slots
        setattr(error, _MARK, True)


def default_method(method: context.BaseContext) -> list[Change]:
    """Return the changes that make ``method`` the default start method of this process."""
    default = vars(multiprocessing.context)["_default_context"]
    return [(default, "_default_context", method), (default, "_actual_context", None)]


def noted_launches() -> list[Change]:
    """Return the changes by which the errors of a spawned process's launch are marked."""
    if sys.platform == "win32":
        return []
    from multiprocessing import popen_spawn_posix

    popen: Any = popen_spawn_posix.Popen
    launch = vars(popen)["_launch"]

    def launch_on_a_mac(started: Any, process_object: Any) -> None:
        with _mark_not_spawned():
            launch(started, process_object)

    return [(popen, "_launch", launch_on_a_mac)]


@contextlib.contextmanager
def _mark_not_spawned() -> Iterator[None]:
    try:
        yield
    except OSError:  # of this machine
        raise
    except Exception as error:
        mark_not_spawned(error)
        raise


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        """Return the number of the bytes that were not written."""
        return memoryview(data).nbytes


class _Pickled(NamedTuple):
    """Stands in for the connection that a spawned process inherits (multiprocessing/popen_spawn_posix.py, _DupFd)."""

    number: int


if sys.platform != "win32":
    from multiprocessing import popen_fork

    class _PickledThenForked(popen_fork.Popen):
        """Starts a fork after what spawn would send has been pickled; the fork then computes on the simulated Mac."""

        method = "spawn"
        DupFd = _Pickled

        def _launch(self, process_obj: Any) -> None:
            own: Any = self
            nowhere: Any = _Nowhere()
            context.set_spawning_popen(own)
            try:
                with _mark_not_spawned():
                    reduction.dump(process_obj, nowhere)
            finally:
                context.set_spawning_popen(None)
            vars(popen_fork.Popen)["_launch"](self, process_obj)

    class _SpawnedProcess(process.BaseProcess):
        """A process of the default start method."""

        _start_method = "spawn"

        @staticmethod
        def _Popen(process_obj: Any) -> popen_fork.Popen:  # noqa: N802  (multiprocessing's name)
            return _PickledThenForked(process_obj)

    class _SpawnContext(context.BaseContext):
        """A start method that looks like spawn to the program."""

        _name = "spawn"
        Process = _SpawnedProcess


@contextlib.contextmanager
def spawned_processes() -> Iterator[None]:
    """For the length of the block, the start of a process raises what it raises on a Mac.

    Where processes are forked by default, they still are, so that they see the simulated Mac; what each of them gets is
    pickled first.
    """
    changes = noted_launches()
    if sys.platform != "win32" and platform.CAN_FORK:
        changes += default_method(_SpawnContext())
    with replace_attributes(changes):
        yield
