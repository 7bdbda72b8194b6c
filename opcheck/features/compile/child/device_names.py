"""Lets a program that names mps run on this machine's device: its own code reads the name as that device's."""

import builtins
import contextlib
import re
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from opcheck.common.replacing import replace_attributes
from opcheck.tracing.source_locations import is_own_code

#: With its number, for a number of the CPU is another device to Dynamo.
_MPS = re.compile(r"mps(:\d+)?")


@contextlib.contextmanager
def mps_read_as(device: str) -> Iterator[None]:
    """Read the text ``mps`` as ``device`` in each of the program's own files that Python loads inside the block.

    The graphs are moved to mps later.  A test such as ``x.device.type == "mps"`` is true as on a Mac, since
    both sides are the device of this machine.  Files of installed libraries stay as they are.

    Args:
        device: ``cpu`` or ``cuda``.
    """

    def reading(original: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            code = original(*args, **kwargs)
            own = isinstance(code, CodeType) and is_own_code(code.co_filename)
            return _rename_device(code, device) if own else code

        return read

    # compile() is what notebooks and scripts go through; a module may come from its cached byte code.
    changes = [
        (SourceFileLoader, "get_code", reading(SourceFileLoader.get_code)),
        (builtins, "compile", reading(builtins.compile)),
    ]
    with replace_attributes(changes):
        yield


def _rename_device(value: Any, device: str) -> Any:
    """Return a constant of a code object, or the object, with the name replaced in all its constants."""
    if isinstance(value, str):
        return device if _MPS.fullmatch(value) else value
    if isinstance(value, (tuple, frozenset)):
        return type(value)(_rename_device(item, device) for item in value)
    if isinstance(value, CodeType):
        return value.replace(co_consts=_rename_device(value.co_consts, device))
    return value
