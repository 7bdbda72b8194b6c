"""Finds what Metal refuses in kernels that Inductor writes without complaint; reads their source, and needs no Mac."""

import re
from collections import Counter
from collections.abc import Iterator

from opcheck.features.compile.compile_records import CompileFailure, MetalKernel, SideGraph

#: Metal's argument tables (Metal Feature Set Tables, "Maximum number of entries in the buffer argument table").
BUFFERS = 31
#: bytes; the same tables, "Maximum total threadgroup memory allocation", of every Apple GPU.
THREADGROUP = 32 * 1024


def lint(graph: SideGraph) -> Iterator[CompileFailure]:
    """Yield what a Mac would refuse of this graph's kernels."""
    names = Counter(kernel.name for kernel in graph.kernels)
    for kernel in graph.kernels:
        line = next((node.location for node in kernel.nodes if node.location), None)
        for message in (*_exceeded_limits(kernel), *_misused_names(kernel)):
            yield CompileFailure(kind="shader", message=message, op=kernel.name, location=line)
    for name, count in names.items():
        if count > 1:
            kernels = [kernel for kernel in graph.kernels if kernel.name == name]
            line = next(
                (node.location for alike in kernels for node in alike.nodes if node.location), None
            )
            yield CompileFailure(
                kind="shader",
                message=f"{count} kernels of one library are called {name}: Metal takes a name once",
                op=name,
                location=line,
            )


def _exceeded_limits(kernel: MetalKernel) -> Iterator[str]:
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


def _misused_names(kernel: MetalKernel) -> Iterator[str]:
    # A template brings its own headers, and is written by hand.
    if "#include" in kernel.source:
        return
    for number, name in undeclared_names(kernel.source):
        yield f"{kernel.name}, line {number}: {name} is used where it is not declared"
        return


#: What kernels declare: variables of the loop, values, accumulators, sizes.
_DECLARED = re.compile(
    r"\b(?:auto|bool|u?char|u?short|u?int|u?long|half|bfloat|float[23]?)\s+(?P<name>\w+)\s*(?=[=;\[])"
)
_NAME = re.compile(r"(?<![\w.])(?:tmp\w+|[rxyz]\d*_?\d+)\b(?!\()")


def undeclared_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines, from 1 on, of a generated kernel that use a value where it is not declared, with its name.

    Scopes are those of the braces.  A declaration that reads its own name is such a use.
    """
    scopes: list[set[str]] = [set()]
    body = source.partition(") {\n")
    first = body[0].count("\n") + 2
    for number, line in enumerate(body[2].splitlines(), first):
        declared = _DECLARED.search(line)
        name = declared["name"] if declared else ""
        is_loop = line.lstrip().startswith("for(")
        start = declared.end() if declared else 0
        used = _NAME.findall(line[start:] if declared and not is_loop else line)
        known = set().union(*scopes) | ({name} if is_loop else set())
        # An outer variable of the same name is not what the initializer reads.
        missing = [use for use in used if use not in known or (use == name and not is_loop)]
        if missing and not line.lstrip().startswith("//"):
            yield number, missing[0]
        if name and not is_loop:
            scopes[-1].add(name)
        for brace in re.findall(r"[{}]", line):
            if brace == "{":
                scopes.append({name} if is_loop else set())
            elif len(scopes) > 1:
                scopes.pop()
