"""Joins kernels to one Metal library, as Inductor compiles them, and checks it with libclang."""

import functools
import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from opcheck.capture.naming import package_folder
from opcheck.common import documents
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.files import inside, write_text
from opcheck.common.grouping import group_values
from opcheck.common.python_source import split_lines
from opcheck.common.text import plural
from opcheck.common.yaml_text import load_shipped
from opcheck.features.compile.compile_records import CompiledVariants, CompileFailure, MetalKernel, SideGraph
from opcheck.model.records import SourceLocation

#: our Metal standard library
INCLUDE = Path(__file__).parent / "include"

#: Metal's own macros, for Clang and for GCC, of Metal 3.1, the first with bfloat.
DEFINES = ("-D__METAL__", "-D__METAL_VERSION__=310")

_LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")


class KernelLibrary(NamedTuple):
    """The text of a library, and each kernel's first line in it, counted from 1."""

    text: str
    starts: tuple[int, ...]


def join_kernels(kernels: Sequence[MetalKernel]) -> KernelLibrary:
    """Return all kernels of a graph below the headers that they include."""
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
    folder = package_folder("torch") / "include"
    return folder if (folder / "c10" / "metal" / "utils.h").is_file() else None


def require_headers(include: Path | None, done: str) -> None:
    """Refuse work on kernels without Metal's headers.

    Raises:
        UsageError: torch has no Metal headers.
    """
    if (include or torch_headers()) is None:
        problem = f"the kernels cannot be {done}: torch has no Metal headers here"
        hint = "install a torch from PyPI, 2.7 or newer"
        raise UsageError(problem, context="torch/include/c10/metal", hint=hint)


#: What a report does not prove.
NOT_CHECKED: dict[str, Any] = load_shipped(Path(__file__).parents[1] / "not_checked.yaml")
NOT_PROVEN: str = NOT_CHECKED["clang"]

#: One target for every host: long has 64 bits, as in Metal, and no header of the host is read.
_ARGUMENTS = (
    *("-x", "c++", "-std=c++20", "-target", "x86_64-unknown-linux-gnu"),
    *("-ffreestanding", "-nostdinc", "-nostdinc++", "-fsigned-char", "-ferror-limit=0"),
    *DEFINES,
    "-Dconstant=const",  # read-only
)
_FILE = "kernels.metal"
_WORD = re.compile(r"[a-z][a-z0-9]*")
#: clang.cindex.Diagnostic.Error
_ERROR = 3
#: metal_stdlib makes this of the word
_DOUBLE = "unknown type name 'metal_has_no_double'"


class _KernelLine(NamedTuple):
    kernel: MetalKernel
    line: int
    text: str


def check_kernels(compiled: CompiledVariants, include: Path | None = None) -> CompiledVariants:
    """Return the variants, with Clang's errors in the kernels among the failures of their graphs.

    Args:
        compiled: the variants with their kernels.
        include: the ``torch/include`` of the release that wrote the kernels; None: of the installed torch.

    Raises:
        UsageError: libclang is not installed, or torch has no Metal headers.
    """
    clang = index(include)

    def with_errors(graph: SideGraph) -> SideGraph:
        return replace(graph, failures=(*graph.failures, *_check(clang, graph.kernels, include)))

    tried = tuple(each.with_graphs(with_errors) for each in compiled.tried)
    return replace(compiled, tried=tried, not_checked=(*compiled.not_checked, NOT_PROVEN))


def check(graph: SideGraph, include: Path | None = None) -> tuple[CompileFailure, ...]:
    """Return what Clang finds wrong in the kernels of one graph, which Metal compiles as one library.

    Args:
        graph: the graph with its kernels.
        include: as for ``checked``.

    Raises:
        UsageError: libclang is not installed, or torch has no Metal headers.
    """
    return tuple(_check(index(include), graph.kernels, include))


def index(include: Path | None = None) -> Any:
    """Return Clang's index; call it before work begins where kernels are to be checked.

    Raises:
        UsageError: libclang is not installed, or torch has no Metal headers.
    """
    require_headers(include, "checked")
    try:
        from clang import cindex
    except ImportError as error:
        raise _no_libclang(error) from error
    try:
        return cindex.Index.create()
    except cindex.LibclangError as error:
        raise _no_libclang(error) from error


def _no_libclang(error: Exception) -> UsageError:
    problem = "the kernels cannot be checked: libclang is not there"
    hint = "pip install 'opcheck[metal]'"
    return UsageError(problem, context=next(iter(str(error).splitlines()), ""), hint=hint)


def _check(clang: Any, kernels: Sequence[MetalKernel], include: Path | None) -> Iterator[CompileFailure]:
    """Yield the failures of kernels from templates, which bring their own headers, and of the others."""
    for kernel in kernels:
        if "#include" in kernel.source:
            yield from _library(clang, (kernel,), include)
    others = [kernel for kernel in kernels if "#include" not in kernel.source]
    yield from _library(clang, others, include)


def _library(clang: Any, kernels: Sequence[MetalKernel], include: Path | None) -> Iterator[CompileFailure]:
    if not kernels:
        return
    text = join_kernels(kernels)
    unit = clang.parse(
        _FILE,
        args=[*_ARGUMENTS, "-isystem", str(INCLUDE), "-isystem", str(include or torch_headers())],
        unsaved_files=[
            (_FILE, text.text),
            *((str(path), content) for path, content in single_precision_headers(include).items()),
        ],
    )
    failures: dict[CompileFailure, None] = {}
    for diagnostic in unit.diagnostics:
        if diagnostic.severity < _ERROR:
            continue
        place = _place(diagnostic, kernels, text)
        message = diagnostic.spelling.replace(_DOUBLE, "no double")
        if place is not None:
            failure = CompileFailure(
                kind="shader",
                message=f"{place.kernel.name}, line {place.line}: {message}: {place.text}",
                op=place.kernel.name,
                location=_blamed_line(place),
            )
            failures[failure] = None
        elif not failures:
            # In a header, and no kernel leads there: ours does not go with that of this torch.  (After an error that
            # a kernel leads to, it is a second error of the same instantiation; Clang has no way for it.)
            header = getattr(diagnostic.location.file, "name", "")
            failures[CompileFailure(kind="harness", message=f"{message} ({header})", ours=True)] = None
    yield from failures


def _place(diagnostic: Any, kernels: Sequence[MetalKernel], text: KernelLibrary) -> _KernelLine | None:
    """Return the line of a kernel: of the error itself, else of the code that made Clang look into a header."""
    for child in (diagnostic, *diagnostic.children):
        file, line = child.location.file, child.location.line
        if file is None or file.name != _FILE or line < text.starts[0]:
            continue
        which = max(i for i, start in enumerate(text.starts) if start <= line)
        written = split_lines(text.text)[line - 1].strip()
        return _KernelLine(kernels[which], line - text.starts[which] + 1, written)
    return None


def _blamed_line(place: _KernelLine) -> SourceLocation | None:
    """Return the user's line of the node whose operator the kernel's line names; else of the kernel's first node."""
    nodes = [node for node in place.kernel.nodes if node.location]
    words = {*_WORD.findall(place.text)}
    named = [node for node in nodes if words & {*_WORD.findall(node.op)} - {"aten", "prims"}]
    return next((node.location for node in (*named, *nodes)), None)


#: Metal's argument tables (Metal Feature Set Tables, "Maximum number of entries in the buffer argument table").
BUFFERS = 31
#: bytes; the same tables, "Maximum total threadgroup memory allocation", of every Apple GPU.
THREADGROUP = 32 * 1024


def lint(graph: SideGraph) -> Iterator[CompileFailure]:
    """Yield what a Mac would refuse of this graph's kernels."""
    for kernel in graph.kernels:
        for message in (*_exceeded_limits(kernel), *_misused_names(kernel)):
            yield _refusal(message, (kernel,))
    for name, kernels in group_values((kernel.name, kernel) for kernel in graph.kernels).items():
        if len(kernels) > 1:
            count = f"{len(kernels)} kernels of one library are called {name}"
            yield _refusal(f"{count}: Metal takes a name once", kernels)


def _refusal(message: str, kernels: Sequence[MetalKernel]) -> CompileFailure:
    nodes = (node for kernel in kernels for node in kernel.nodes)
    line = next((node.location for node in nodes if node.location), None)
    return CompileFailure(kind="shader", message=message, op=kernels[0].name, location=line)


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
    scopes: ChainMap[str, str] = ChainMap()
    body = source.partition(") {\n")
    first = body[0].count("\n") + 2
    for number, line in enumerate(body[2].splitlines(), first):
        declared = _DECLARED.search(line)
        own = {declared["name"]: ""} if declared else {}
        is_loop = line.lstrip().startswith("for(")
        used = _NAME.findall(line[declared.end() :] if declared and not is_loop else line)
        known = {*scopes, *(own if is_loop else ())}
        # An outer variable of the same name is not what the initializer reads.
        missing = [use for use in used if use not in known or (use in own and not is_loop)]
        if missing and not line.lstrip().startswith("//"):
            yield number, missing[0]
        scopes = follow_braces(scopes, line)
        scopes.update(own)


def follow_braces(scopes: ChainMap[str, str], line: str) -> ChainMap[str, str]:
    """Return the scopes of C++ after a line."""
    for brace in re.findall(r"[{}]", line):
        if brace == "{":
            scopes = scopes.new_child()
        elif len(scopes.maps) > 1:
            scopes = scopes.parents
    return scopes


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
                place_in_graph = (f"graph{number}", graph.phase, f"{place:03}")
                parts = (variant.dtype, variant.run, *setting, *place_in_graph)
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
