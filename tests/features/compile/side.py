"""Programs through the side-compile, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.codegen.mps import MetalKernel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._ordered_set import OrderedSet

from opcheck.features.compile.child.inductor_metal import SideCompiler
from opcheck.features.compile.compile_records import CompileFailure, SideGraph


def side(
    program: Callable[..., Any],
    *args: Any,
    train: bool = False,
    compiler: SideCompiler | None = None,
    dynamic: bool | None = None,
) -> list[SideGraph]:
    """The graphs of one run; in training with backward of the mean square."""
    torch.set_num_threads(1)
    torch.compiler.reset()
    # A set of the class's own: what one kernel includes (an error buffer), every later one of the process does.
    MetalKernel.headers = OrderedSet(["utils"])
    compiler = compiler or SideCompiler()
    compiled = torch.compile(program, backend=compiler, dynamic=dynamic)
    if train:
        with sdpa_kernel(SDPBackend.MATH):
            compiled(*args).square().mean().backward()
    else:
        with torch.no_grad():
            compiled(*args)
    return compiler.graphs


def failures(graphs: list[SideGraph]) -> list[CompileFailure]:
    return [failure for graph in graphs for failure in graph.failures]


def externs(graphs: list[SideGraph]) -> set[str]:
    return {extern.op for graph in graphs for extern in graph.externs}


def kernels(graphs: list[SideGraph]) -> int:
    return sum(len(graph.kernels) for graph in graphs)
