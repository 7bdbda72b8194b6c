"""Keeps torch from importing its compiler where nothing is compiled."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from opcheck.tracing.torch_private.dispatch import disable_dynamo

#: What torch._disable_dynamo (torch/_compile.py, 2.8 to 2.15) looks for before it imports the compiler.
_FLAG = "__dynamo_disable"


@contextmanager
def without_compiler() -> Iterator[None]:
    """Let meta kernels written in Python run inside the block without importing torch._dynamo.

    torch wraps most of them in ``_disable_dynamo``, whose first call imports the compiler: a second
    and more, which a program that compiles nothing does not need.  A program that does compile
    imports it by itself; then this does nothing.
    """
    marked = []
    if "torch._dynamo" not in sys.modules:
        for function in _wrapped():
            if not hasattr(function, _FLAG):
                setattr(function, _FLAG, function)
                marked.append(function)
    try:
        yield
    finally:
        for function in marked:
            delattr(function, _FLAG)


@functools.cache
def _wrapped() -> tuple[Callable[..., Any], ...]:
    """Return the functions that torch has wrapped in ``_disable_dynamo`` so far."""
    code = getattr(disable_dynamo(_wrapped), "__code__", None)
    if code is None or "fn" not in code.co_freevars:
        return ()
    position = code.co_freevars.index("fn")
    inner = (each for each in gc.get_referrers(code) if isinstance(each, FunctionType))
    return tuple(
        each.__closure__[position].cell_contents for each in inner if each.__closure__ is not None
    )
