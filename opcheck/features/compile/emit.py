"""Writes the Metal kernels to files, each with a note of the nodes and lines that it came from."""

from collections.abc import Iterator
from pathlib import Path

from opcheck.common.errors import explain_errors
from opcheck.common.files import inside, write_text
from opcheck.common.text import plural
from opcheck.features.compile.compile_records import CompiledVariants, MetalKernel


def emit(compiled: CompiledVariants, folder: str) -> str:
    """Write every kernel of every variant; how many, in words.

    Raises:
        UsageError: the folder cannot be made.
    """
    root = Path(folder)
    with explain_errors(OSError, "cannot make the folder", context=folder, hint="name another"):
        root.mkdir(parents=True, exist_ok=True)
    count = 0
    for tried in compiled.tried:
        variant = tried.variant
        setting = str(variant).replace("inductor for Metal", "").replace("=", " ").split()
        for number, graph in enumerate(tried.side):
            for place, kernel in enumerate(graph.kernels):
                parts = (
                    variant.dtype,
                    variant.run,
                    *setting,
                    f"graph{number}",
                    graph.phase,
                    f"{place:03}",
                )
                name = f"{'-'.join(parts)}-{kernel.name}.metal"
                write_text(inside(root, name), "\n".join(_lines(kernel)) + "\n" + kernel.source)
                count += 1
    return plural(count, "kernel")


def _lines(kernel: MetalKernel) -> Iterator[str]:
    yield f"// {kernel.name}: written by Inductor, not compiled by Metal"
    for node in kernel.nodes:
        where = f"  {node.location}: {node.location.text}" if node.location else ""
        yield f"// {node.name} = {node.op}{where}"
    yield from (f"#include <c10/metal/{header}.h>" for header in kernel.headers)
