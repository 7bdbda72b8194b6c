"""Inductor's Metal backend, run on any machine: the one file with its private names.

torch.compile runs the program for real on the CPU.  Each graph that reaches Inductor, after AOTAutograd and its
partitioning, is copied, put on ``mps`` and compiled a second time: the backend is plain Python up to the call that
hands the source to Metal, which is answered here.  Autograd never sees ``mps``.

Tried on torch 2.13.0; where a name is missing, ``missing()`` says so and nothing is compiled.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import msgspec
import torch

from opcheck.compiler.execute.inductor import callable_on_cpu, on_cpu
from opcheck.compiler.failures import failure
from opcheck.compiler.generated import extern_of, flex_kernel, kernel_of
from opcheck.compiler.on_mps import fake_on_mps, on_mps, placeholder_values
from opcheck.compiler.records import Extern, Failure, Kernel, SideGraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


#: The split of reductions asks for the number of GPU cores; what is generated is for a GPU of so many (an M1's is
#: 7 or 8, an M4 Max's 40).
CORES = 10


class _Names(NamedTuple):
    aot: Any
    compile_fx: Any
    mps: Any
    runtime: Any
    config: Any
    ir: Any


def missing() -> str:
    """The first private name that this torch lacks; empty where all are there."""
    try:
        # The first import of Inductor warns of its own use of torch.jit.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names = _names()
    except (ImportError, AttributeError) as error:
        return str(error)
    wanted = (
        (names.mps, "MetalScheduling"),
        (names.aot, "make_boxed_func"),
        (names.compile_fx, "compile_fx_inner"),
        (names.runtime, "compile_mps_shader"),
        (names.ir, "ExternKernel"),
    )
    lacking = [f"{place.__name__}.{name}" for place, name in wanted if not hasattr(place, name)]
    return next(iter(lacking), "")


def _names() -> _Names:
    import torch._functorch.aot_autograd  # noqa: PLC0415
    import torch._inductor.codegen.mps  # noqa: PLC0415
    import torch._inductor.compile_fx  # noqa: PLC0415
    import torch._inductor.config  # noqa: PLC0415
    import torch._inductor.ir  # noqa: PLC0415
    import torch._inductor.runtime.runtime_utils  # noqa: PLC0415

    inductor = torch._inductor
    return _Names(
        torch._functorch.aot_autograd,
        inductor.compile_fx,
        inductor.codegen.mps,
        inductor.runtime.runtime_utils,
        inductor.config,
        inductor.ir,
    )


def preload() -> None:
    """Import and prepare what every compilation needs, so that forks of this process have it.

    A first graph imports Inductor's lowerings and traces its patterns; that takes longer than a small graph itself.
    """
    with torch.no_grad():
        torch.compile(torch.sin, backend=SideCompiler())(torch.zeros(2))
    torch.compiler.reset()


class SideCompiler:
    """A backend for torch.compile that runs on the CPU and compiles each graph for mps beside.

    With ``run_metal`` what it compiles for mps is what runs, as ``compile/execute`` runs it.
    """

    def __init__(self, *, run_metal: bool = False) -> None:
        self.graphs: list[SideGraph] = []
        self._run_metal = run_metal

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        """What torch.compile calls with each graph of Dynamo's."""
        return _names().compile_fx.compile_fx(gm, example_inputs, inner_compile=self._inner)

    def _inner(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        phase = "backward" if kwargs.get("is_backward") else "forward"
        phase = "inference" if kwargs.get("is_inference") else phase
        made: list[Any] = []
        with on_cpu() if self._run_metal else contextlib.nullcontext():
            self.graphs.append(side_compile(gm, example_inputs, phase, kwargs, made))
        if not self._run_metal:
            _keep_fitting_strides(gm)
        call = callable_on_cpu(made[0], gm) if self._run_metal and made else gm.forward
        return _names().aot.make_boxed_func(call)


def _keep_fitting_strides(gm: torch.fx.GraphModule) -> None:
    """Forget the strides that were told for results which on mps have another rank than here.

    AOTAutograd restrides what it saves for backward by them (_functorch/_aot_autograd/graph_compile.py, 2.13); the CPU
    saves the logsumexp of its attention where mps has the weights.
    """
    context = torch._guards.TracingContext.try_get()
    told = context.output_strides if context else None
    if not told:
        return
    results: Any = gm.graph.output_node().args[0]
    for index, (result, strides) in enumerate(zip(results, told, strict=False)):
        value = result.meta.get("val") if isinstance(result, torch.fx.Node) else None
        if strides and isinstance(value, torch.Tensor) and value.dim() != len(strides):
            told[index] = None


def side_compile(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    phase: str,
    kwargs: dict[str, Any],
    made: list[Any],
) -> SideGraph:
    """Compile a copy of the graph for mps, and append it to ``made``; whatever goes wrong is in the record."""
    start = time.perf_counter()
    seen = _Seen()
    failures: list[Failure] = []
    calls = sum(node.op == "call_function" for node in gm.graph.nodes)
    try:
        moved = on_mps(gm)
        inputs = [fake_on_mps(value) for value in placeholder_values(moved, example_inputs)]
        with _metal(seen):
            made.append(_names().compile_fx.compile_fx_inner(moved, inputs, **_kept(kwargs)))
    except Exception as error:  # noqa: BLE001 - anything that Inductor raises is what is looked for
        failures.append(failure(error, gm))
    return SideGraph(
        phase=phase,
        nodes=calls,
        kernels=tuple(seen.kernels),
        externs=seen.grouped(),
        failures=tuple(failures),
        seconds=time.perf_counter() - start,
    )


def _kept(kwargs: dict[str, Any]) -> dict[str, Any]:
    names = ("static_input_idxs", "is_backward", "is_inference", "graph_id")
    return {name: kwargs[name] for name in names if name in kwargs}


class _Seen:
    """What one side compilation generates."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.externs: list[Extern] = []

    def grouped(self) -> tuple[Extern, ...]:
        """The externs of one operator, dtype and line together."""
        counts = Counter(self.externs)
        return tuple(
            msgspec.structs.replace(extern, count=count) for extern, count in counts.items()
        )


@contextlib.contextmanager
def _metal(seen: _Seen) -> Iterator[None]:
    """For the length of the block, Metal sources are taken, not compiled."""
    names = _names()
    define = names.mps.MetalScheduling.define_kernel

    def define_kernel(self: Any, source: str, schedule: Any, kernel: Any) -> Any:
        # The same source is defined once, and called again by its name.
        known = source in names.mps.V.graph.wrapper_code.src_to_kernel
        name = define(self, source, schedule, kernel)
        if not known:
            seen.kernels.append(kernel_of(str(name), source, schedule, kernel))
        return name

    codegen = names.ir.ExternKernel.codegen_comment

    def codegen_comment(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.externs.append(extern_of(self))
        return codegen(self, *args, **kwargs)

    flex = _flex_node()
    generate = getattr(flex, "codegen", None)

    def flex_codegen(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.kernels.append(flex_kernel(self))
        return generate(self, *args, **kwargs)  # type: ignore[misc]  # it is there, or this is not

    with contextlib.ExitStack() as stack:
        if flex is not None:
            stack.enter_context(mock.patch.object(flex, "codegen", flex_codegen))
        stack.enter_context(
            names.config.patch({"force_disable_caches": True, "compile_threads": 1})
        )
        for place, name, value in (
            (names.mps.MetalScheduling, "define_kernel", define_kernel),
            (names.ir.ExternKernel, "codegen_comment", codegen_comment),
            (names.runtime, "compile_mps_shader", _Library),
            (torch.backends.mps, "get_core_count", lambda: CORES),
        ):
            stack.enter_context(mock.patch.object(place, name, value))
        stack.enter_context(_device_guard())
        stack.enter_context(_quiet("torch._inductor", "torch._subclasses"))
        yield


def _flex_node() -> Any:
    """Where flex_attention writes its shader, which is of a template and goes past define_kernel."""
    try:
        from torch._inductor.codegen import metal_flex_attention_template as template  # noqa: PLC0415
    except ImportError:  # it came with 2.13
        return None
    return getattr(template, "MetalFlexAttentionNode", None)


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
def _quiet(*names: str) -> Iterator[None]:
    """Inductor logs what it raises; it is in the record."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class _Library:
    """Stands for a compiled Metal library: it has every function, and none can be called."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        """A function of the library."""
        return name
