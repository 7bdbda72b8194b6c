"""Joins kernels to one Metal library, as torch/_inductor/runtime/runtime_utils.py compiles those of a graph."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from opcheck.common import documents
from opcheck.features.compile.records import MetalKernel

#: our Metal standard library
INCLUDE = Path(__file__).parent / "include"

#: What both Clang and GCC are told: Metal's own macros, of Metal 3.1, the first with bfloat.
DEFINES = ("-D__METAL__", "-D__METAL_VERSION__=310")

_LITERAL = re.compile(
    r"(?<![\w.])(?:\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])"
)


class KernelLibrary(NamedTuple):
    """The text of a library, and the line of it on which each kernel begins, counted from 1."""

    text: str
    starts: tuple[int, ...]


def join_kernels(kernels: Sequence[MetalKernel]) -> KernelLibrary:
    """Return all kernels of a graph below the headers that any of them asks for."""
    wanted = sorted({header for kernel in kernels for header in kernel.headers})
    parts = [f"#include <c10/metal/{header}.h>\n" for header in wanted]
    line = len(parts) + 1
    starts = []
    for kernel in kernels:
        starts.append(line)
        source = kernel.source.rstrip("\n") + "\n"
        parts.append(source)
        line += source.count("\n")
    return KernelLibrary(in_single("".join(parts)), tuple(starts))


def in_single(text: str) -> str:
    """Return the text with 1.0 as 1.0f: Metal has no double.

    Compilers have options for it; Clang's does not reach into templates.
    """
    return _LITERAL.sub(r"\g<0>f", text)


@functools.cache
def single_precision_headers(include: Path | None = None) -> dict[Path, str]:
    """Return torch's Metal headers, by their path, in single precision.

    Args:
        include: the ``torch/include`` of a release; None: that of the installed torch.
    """
    folder = include or torch_headers()
    files = sorted((folder / "c10" / "metal").glob("*.h")) if folder else ()
    return {file: in_single(documents.read_text(file)) for file in files}


def torch_headers() -> Path | None:
    """Return where the installed torch has c10/metal; found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "include"
    return folder if (folder / "c10" / "metal" / "utils.h").is_file() else None
