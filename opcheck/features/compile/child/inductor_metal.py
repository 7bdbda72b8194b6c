"""Inductor's Metal backend, run on any machine.

torch.compile runs the program for real on the CPU.  Each graph that reaches Inductor, after AOTAutograd and its
partitioning, is copied, put on ``mps`` and compiled a second time: the backend is plain Python up to the call that
hands the source to Metal, which is answered here.  Autograd never sees ``mps``.

Where this torch lacks a name, ``compilation.missing_for_metal()`` names it and nothing is compiled.
"""

import contextlib
import ctypes
import itertools
import logging
import math
import re
import time
import warnings
from collections import ChainMap, Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from msgspec.structs import replace

from opcheck.common.replacing import replace_attributes
from opcheck.features.compile.check.metal_check import follow_braces
from opcheck.features.compile.child import graph_records
from opcheck.features.compile.child.cpu_kernels import callable_on_cpu, on_cpu
from opcheck.features.compile.compile_records import CompileFailure, Extern, MetalKernel, SideGraph
from opcheck.simulator.real_device import out_of_reach
from opcheck.tracing.torch_private import compilation

#: The split of reductions depends on the number of GPU cores; what is generated is for a GPU of so many (an M1's is
#: 7 or 8, an M4 Max's 40).
CORES = 10


def preload() -> None:
    """Import and prepare what every compilation needs, so that forks of this process have it.

    A first graph imports Inductor's lowerings and traces its patterns; that takes longer than a small graph itself.
    """
    with torch.no_grad():
        torch.compile(torch.sin, backend=SideCompiler())(torch.zeros(2))
    torch.compiler.reset()


class SideCompiler:
    """A backend for torch.compile that runs on the CPU and also compiles each graph for mps.

    With ``run_metal`` what it compiles for mps is what runs, as ``compile/execute`` runs it.  ``mode`` is that of
    torch.compile; ``ahead`` writes the C++ of AOTInductor around the kernels instead of Python.
    """

    def __init__(self, *, run_metal: bool = False, mode: str = "", ahead: bool = False) -> None:
        self.graphs: list[SideGraph] = []
        self._run_metal = run_metal
        self._mode = mode
        self._ahead = ahead
        self._attention: tuple[Extern, ...] = ()
        self._autocast = False

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        """Return what torch.compile calls with each graph of Dynamo's."""
        self._attention = graph_records.attention_of(gm)
        self._autocast = _autocast_here(gm)
        return compilation.compile_graph(gm, example_inputs, self._inner)

    def _inner(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        phases = {"is_inference": "inference", "is_backward": "backward"}
        phase = next((phases[name] for name in phases if kwargs.get(name)), "forward")
        made: list[Any] = []
        settings = compilation.mode_settings(self._mode)
        with on_cpu() if self._run_metal else contextlib.nullcontext(), compilation.inductor_config(settings):
            compile_step = compilation.compile_ahead if self._ahead else compilation.compile_inner
            graph = side_compile(gm, example_inputs, phase, kwargs, made, compile_step)
        if self._autocast:
            graph = replace(graph, notes=(*graph.notes, _OTHER_CASTS))
        if phase == "inference":
            graph = replace(graph, externs=(*graph.externs, *self._attention))
        self.graphs.append(graph)
        if not self._run_metal:
            _keep_fitting_strides(gm)
        call = callable_on_cpu(made[0], gm) if self._run_metal and made else gm.forward
        return compilation.box_arguments(call)


_OTHER_CASTS = "autocast casts for the CPU's list of operators here, for another one on mps"


def _autocast_here(gm: torch.fx.GraphModule) -> bool:
    """Let autocast for mps act on the CPU's tensors, since the program runs there; return whether the graph has any."""
    blocks = [node for node in gm.graph.nodes if getattr(node.target, "__name__", "") == _AUTOCAST]
    for node in blocks:
        node.args = tuple("cpu" if value == "mps" else value for value in node.args)
    if blocks:
        gm.recompile()
    return bool(blocks)


#: what Dynamo writes for ``with torch.autocast(...)`` (torch/amp/autocast_mode.py)
_AUTOCAST = "_enter_autocast"


def _keep_fitting_strides(gm: torch.fx.GraphModule) -> None:
    """Forget the strides that were promised for results whose rank on mps is another than here.

    AOTAutograd restrides what it saves for backward by them (_functorch/_aot_autograd/graph_compile.py, 2.13); the CPU
    saves the logsumexp of its attention where mps has the weights.
    """
    promised = compilation.result_strides()
    if not promised:
        return
    results: Any = gm.graph.output_node().args[0]
    for index, (result, strides) in enumerate(zip(results, promised, strict=False)):
        value = result.meta.get("val") if isinstance(result, torch.fx.Node) else None
        if strides and isinstance(value, torch.Tensor) and value.dim() != len(strides):
            promised[index] = None


def side_compile(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    phase: str,
    kwargs: dict[str, Any],
    made: list[Any],
    compile_step: Callable[..., Any] = compilation.compile_inner,
) -> SideGraph:
    """Compile a copy of the graph for mps, and append it to ``made``; whatever goes wrong is in the record."""
    start = time.perf_counter()
    kernels: list[MetalKernel] = []
    externs: Counter[Extern] = Counter()
    failures: list[CompileFailure] = []
    calls = sum(node.op == "call_function" for node in gm.graph.nodes)
    try:
        moved = graph_records.on_mps(gm)
        inputs = [
            value if graph_records.is_python_number(value) else graph_records.fake_on_mps(value)
            for value in graph_records.placeholder_values(moved, example_inputs)
        ]
        with _metal(kernels, externs):
            options = {name: kwargs[name] for name in _PASSED_ON if name in kwargs}
            made.append(compile_step(moved, inputs, **options))
    except Exception as error:  # anything that Inductor raises is what is looked for
        failures.append(graph_records.failure(error, gm))
    # A mode may require CUDA graphs, and mps has none.
    skipped = compilation.skipped_cuda_graphs(made[0]) if made else ""
    overloads = (o for n in gm.graph.nodes for o in (n.target, n.meta.get("original_aten")))
    aten = {o.overloadpacket.__name__ for o in overloads if getattr(o, "namespace", "") == "aten"}
    return SideGraph(
        phase=phase,
        nodes=calls,
        operators=tuple(sorted(aten)),
        kernels=tuple(kernels),
        externs=tuple(replace(extern, count=count) for extern, count in externs.items()),
        failures=tuple(failures),
        notes=(f"no CUDA graphs: {skipped}",) if skipped else (),
        seconds=time.perf_counter() - start,
    )


#: What Inductor's own call passes on to the second one.
_PASSED_ON = ("static_input_idxs", "is_backward", "is_inference", "graph_id")


@contextlib.contextmanager
def _metal(kernels: list[MetalKernel], externs: Counter[Extern]) -> Iterator[None]:
    """Collect Metal sources inside the block instead of compiling them."""
    kernel_step, extern_step = compilation.metal_step("kernel"), compilation.metal_step("comment")
    define, comment = kernel_step.value(), extern_step.value()
    masked_step, blocks = compilation.metal_step("masked"), MaskedBlocks()
    check_step, choice_step = compilation.metal_step("bounds"), compilation.metal_step("choice")

    def define_kernel(self: Any, written: str, schedule: Any, kernel: Any) -> Any:
        source = plain(written)
        # The same source is defined once, and called again by its name.
        known = source in compilation.defined_kernels()
        name = define(self, source, schedule, kernel)
        if not known:
            made = graph_records.kernel_of(str(name), source, schedule)
            notes = blocks.notes(kernel, written)
            # For AOTInductor the text has the headers' content without their names.
            headers = made.headers or tuple(sorted(getattr(kernel, "headers", ())))
            kernels.append(replace(made, notes=notes, headers=headers))
        return name

    def codegen_comment(self: Any, *args: Any, **kwargs: Any) -> Any:
        externs[graph_records.extern_of(self)] += 1
        return comment(self, *args, **kwargs)

    changes: list[tuple[Any, str, Any]] = [
        (*kernel_step, define_kernel),
        (*extern_step, codegen_comment),
        (*masked_step, staticmethod(blocks.following(masked_step.value()))),
        (*check_step, blocks.checking(check_step.value())),
        (*choice_step, staticmethod(blocks.choosing(choice_step.value()))),
        (*compilation.metal_step("shader"), _StandInLibrary),
        (torch.backends.mps, "get_core_count", lambda: CORES),
    ]
    if flex_step := compilation.flex_attention_shader():
        generate = flex_step.value()

        def codegen(self: Any, *args: Any, **kwargs: Any) -> Any:
            kernels.append(graph_records.flex_kernel(self))
            return generate(self, *args, **kwargs)

        changes.append((*flex_step, codegen))
    with (
        out_of_reach(),
        replace_attributes(changes),
        compilation.inductor_config({"force_disable_caches": True, "compile_threads": 1}),
        _device_guard(),
        _quiet(),
    ):
        yield


@contextlib.contextmanager
def _device_guard() -> Iterator[None]:
    """Let C++ find a guard for mps: Meta's, which does nothing.

    Seeds of random numbers and dynamic shapes ask for it.  The table is exported by libc10 (c10/core/impl/
    DeviceGuardImplInterface.h); where it is not found, those graphs fail as ours.
    """
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        table = (ctypes.c_void_p * _DEVICE_TYPES).in_dll(library, _GUARDS)
    except (OSError, ValueError):
        yield
        return
    before = table[_MPS]
    table[_MPS] = table[_META]
    try:
        yield
    finally:
        table[_MPS] = before


_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
#: c10/core/DeviceType.h
_DEVICE_TYPES, _MPS, _META = 20, 13, 14


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence Inductor's log of the errors it raises: the record has them."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class _StandInLibrary:
    """A stand-in for a compiled Metal library: it has every function, and refuses each call."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        """Return a function of the library."""
        return name


#: What the names of an inner block have in them while the kernel is written, so that no two levels share a name.
_LEVEL = re.compile(r"_level\d+_")
_NAME = re.compile(r"(?<![\w.])tmp\w*")
_DECLARED = re.compile(r"^\s*(?:[\w:]+\s+)+(?P<name>tmp\w*)\s*(?P<end>[=;\[])")


class _Block(NamedTuple):
    """The variable of a masked block, and the result of the body that it was written for."""

    variable: Any
    result: str


class MaskedBlocks:
    """What the masked blocks of each kernel compute."""

    def __init__(self) -> None:
        #: kernel -> id of a variable -> its block, which keeps the variable alive
        self._blocks: WeakKeyDictionary[Any, dict[int, _Block]] = WeakKeyDictionary()
        self._notes: WeakKeyDictionary[Any, dict[str, None]] = WeakKeyDictionary()
        #: the prefixes of names that the backend gave the blocks around this point
        self._prefixes: list[str] = []

    def following(self, masked: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``MetalOverrides.masked`` so that the result of each body that it writes is kept."""

        def follow(mask: Any, body: Callable[[], Any], other: Any) -> Any:
            results: list[str] = []

            def follow_body() -> Any:
                names = compilation.kernel_names()
                prefix = names.name_prefix
                if prefix in self._prefixes:
                    names.name_prefix = f"{prefix}_level{len(self._prefixes)}_"
                self._prefixes.append(prefix)
                try:
                    result = body()
                finally:
                    self._prefixes.pop()
                results.append(str(result))
                return result

            variable = masked(mask, follow_body, other)
            for result in results:
                self._keep(variable, result)
            return variable

        return follow

    def checking(self, check_bounds: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``MetalKernel.check_bounds`` so that an index that ends threads outside of its mask is noted."""

        def check(kernel: Any, expr: Any, size: Any, lower: Any, upper: Any) -> Any:
            if self._prefixes and bool(lower) != bool(upper):
                end = _ends_a_thread(kernel, expr, size)
                certainty = "leaves" if end else "may leave"
                note = f"a masked index {certainty} its {size} elements outside of the mask: {end or expr}"
                self._notes.setdefault(kernel, {})[plain(note)] = None
            return check_bounds(kernel, expr, size, lower, upper)

        return check

    def choosing(self, where: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``MetalOverrides.where`` so that a value is noted that the type of the other cannot represent."""

        def choose(condition: Any, first: Any, second: Any) -> Any:
            if _kind(first) < _kind(second) and not _is_whole(second):
                note = f"a choice casts {second} to the type of {first}, which cannot represent it"
                self._notes.setdefault(compilation.current_kernel(), {})[plain(note)] = None
            return where(condition, first, second)

        return choose

    def _keep(self, variable: Any, result: str) -> None:
        kernel = compilation.current_kernel()
        block = _Block(variable, result)
        first = self._blocks.setdefault(kernel, {}).setdefault(id(variable), block)
        if first.result != result:
            note = f"{variable} is {first.result} in a masked block, and replaces {result} of another"
            self._notes.setdefault(kernel, {})[plain(note)] = None

    def notes(self, kernel: Any, source: str) -> tuple[str, ...]:
        """Return what went wrong with the names of a kernel's blocks.

        Args:
            kernel: the kernel of Inductor's.
            source: its text, as it was written while it was followed.
        """
        names = map(plain, _hidden_names(source))
        hidden = (f"{name} of an outer masked block is hidden by that of an inner block" for name in names)
        return (*self._notes.get(kernel, {}), *dict.fromkeys(hidden))


def _kind(value: Any) -> int:
    """Return 0 for a truth value of a kernel, 1 for an integer, 2 for any other number."""
    dtype = value.dtype if hasattr(value, "dtype") else torch.tensor(value).dtype
    return 2 if dtype is None or dtype.is_floating_point else int(dtype != torch.bool)


def _is_whole(value: Any) -> bool:
    """Return whether a value of a kernel is a constant without a fraction."""
    bounds = getattr(value, "bounds", None)
    lower, upper = (value, value) if bounds is None else (bounds.lower, bounds.upper)
    return bool(lower == upper and lower == math.floor(lower))


def _ends_a_thread(kernel: Any, expr: Any, size: Any) -> str:
    """Return a corner of the kernel's loops with an index that is checked and lies outside, or empty.

    An index that depends on a tensor's values, or on symbolic sizes cannot be computed.
    """
    ranges = compilation.loop_ranges(kernel)
    symbols = sorted(expr.free_symbols, key=str)
    if not ranges.keys() >= set(symbols):
        return ""
    for corner in itertools.product(*((0, ranges[symbol] - 1) for symbol in symbols)):
        value = expr.subs(zip(symbols, corner, strict=True)).expand(identity=True)
        if (value < 0) == True or (value > size) == True:  # noqa: E712 - a relation of sympy's may stay open
            return f"{expr} is {value}"
    return ""


def plain(source: str) -> str:
    """Return a text with the names that the backend gives."""
    return _LEVEL.sub("", source)


def _hidden_names(source: str) -> Iterator[str]:
    """Yield the names that mean another variable once they are plain, by the scopes of C++."""
    if not _LEVEL.search(source):
        return
    scopes: ChainMap[str, str] = ChainMap()
    for line in source.splitlines():
        declared = _DECLARED.search(line)
        if declared:
            # In its own initializer a variable is declared already.
            scopes[plain(declared["name"])] = declared["name"]
        yield from (name for name in _NAME.findall(line) if scopes.get(plain(name), name) != name)
        scopes = follow_braces(scopes, line)
