"""What is found out about compiling a program: records that travel from the child process to the report."""

from __future__ import annotations

from opcheck.model import Record, SourceLocation


class Failure(Record, frozen=True, kw_only=True):
    """Why something did not compile, run or agree."""

    #: dtype, operator, shader, graph_break, recompile, model, timeout, harness ...
    kind: str
    message: str
    #: operator or FX node at which it happened
    op: str = ""
    location: SourceLocation | None = None
    #: what stopped it is opcheck's own way of doing it, not PyTorch's and not the program's
    ours: bool = False


class FusedNode(Record, frozen=True, kw_only=True):
    """One operator of the graph that a kernel computes."""

    name: str
    op: str
    location: SourceLocation | None = None


class Kernel(Record, frozen=True, kw_only=True):
    """One Metal kernel as Inductor writes it."""

    name: str
    source: str
    #: files of c10/metal that it includes
    headers: tuple[str, ...] = ()
    nodes: tuple[FusedNode, ...] = ()
    #: buffers that it is bound to: Metal takes 31
    buffers: int = 0
    #: bytes of threadgroup memory that it declares: Metal gives 32 KiB
    threadgroup_bytes: int = 0


class Extern(Record, frozen=True, kw_only=True):
    """An operator that Inductor does not generate: it calls the eager one."""

    op: str
    dtypes: tuple[str, ...] = ()
    location: SourceLocation | None = None
    count: int = 1


class SideGraph(Record, frozen=True, kw_only=True):
    """One graph that reached Inductor, compiled a second time for mps."""

    #: inference, forward, backward
    phase: str
    nodes: int
    kernels: tuple[Kernel, ...] = ()
    externs: tuple[Extern, ...] = ()
    failures: tuple[Failure, ...] = ()
    #: seconds that the second compilation took
    seconds: float = 0.0
