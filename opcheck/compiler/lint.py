"""Finds what Metal refuses in kernels that Inductor writes without complaint; reads their source, and needs no Mac."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from opcheck.compiler.records import Failure, Kernel, SideGraph

#: Metal's argument tables (Metal Feature Set Tables, "Maximum number of entries in the buffer argument table").
BUFFERS = 31
#: bytes; the same tables, "Maximum total threadgroup memory allocation", of every Apple GPU.
THREADGROUP = 32 * 1024


def lint(graph: SideGraph) -> Iterator[Failure]:
    """Yield what a Mac would refuse of this graph's kernels."""
    names = Counter(kernel.name for kernel in graph.kernels)
    for kernel in graph.kernels:
        line = next((node.location for node in kernel.nodes if node.location), None)
        for message in _exceeded_limits(kernel):
            yield Failure(kind="shader", message=message, op=kernel.name, location=line)
    for name, count in names.items():
        if count > 1:
            kernels = [kernel for kernel in graph.kernels if kernel.name == name]
            line = next(
                (node.location for alike in kernels for node in alike.nodes if node.location), None
            )
            yield Failure(
                kind="shader",
                message=f"{count} kernels of one library are called {name}: Metal takes a name once",
                op=name,
                location=line,
            )


def _exceeded_limits(kernel: Kernel) -> Iterator[str]:
    if kernel.buffers > BUFFERS:
        yield (
            f"{kernel.name} takes {kernel.buffers} buffers; Metal binds {BUFFERS}: "
            "number of constant buffers exceeds maximum supported"
        )
    if kernel.threadgroup_bytes > THREADGROUP:
        yield (
            f"{kernel.name} declares {kernel.threadgroup_bytes:,} bytes of threadgroup memory; "
            f"a GPU gives {THREADGROUP:,}"
        )
