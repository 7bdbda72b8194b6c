"""Kernels as one Metal library, the way torch/_inductor/runtime/runtime_utils.py compiles those of a graph."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from opcheck.compile.records import Kernel

#: our Metal standard library
INCLUDE = Path(__file__).parent / "include"

#: What both Clang and GCC are told: Metal's own macros, of Metal 3.1, the first with bfloat.
DEFINES = ("-D__METAL__", "-D__METAL_VERSION__=310")


class Library(NamedTuple):
    """The text of a library, and the line of it on which each kernel begins, counted from 1."""

    text: str
    starts: tuple[int, ...]


def library(kernels: Sequence[Kernel], headers: Sequence[str] = ()) -> Library:
    """All kernels of a graph below the headers that any of them asks for."""
    wanted = sorted({header for kernel in kernels for header in kernel.headers} | {*headers})
    parts = [f"#include <c10/metal/{header}.h>\n" for header in wanted]
    line = len(parts) + 1
    starts = []
    for kernel in kernels:
        starts.append(line)
        source = kernel.source.rstrip("\n") + "\n"
        parts.append(source)
        line += source.count("\n")
    return Library("".join(parts), tuple(starts))


def torch_headers() -> Path | None:
    """Where the installed torch has c10/metal; found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "include"
    return folder if (folder / "c10" / "metal" / "utils.h").is_file() else None
