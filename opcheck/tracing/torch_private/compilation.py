"""Dynamo and Inductor. Each function imports them when it is called, so no capture does."""

import importlib
import importlib.util
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from opcheck.common.replacing import replace_attributes
from opcheck.common.yaml_text import load_shipped
from opcheck.tracing.torch_private import AttributePlace, lazily, place, require_names

_COUNTING = "counting what Dynamo compiled"
_GENERATING = "compiling graphs for Metal"
_RUNNING = "running kernels for Metal on the CPU"

# -- Dynamo ----------------------------------------------------------------------------------------


def reset_dynamo() -> None:
    """Forget what was compiled, and all that was counted. Required."""
    paths = (
        "torch._dynamo:reset",
        "torch._dynamo.utils:counters.clear",
        "torch._dynamo.utils:graph_break_reasons.clear",
        "torch._dynamo.utils:clear_compilation_metrics",
    )
    for step in [lazily(path, _COUNTING) for path in paths]:
        step()


def counters() -> Mapping[str, Mapping[str, int]]:
    """Return what Dynamo counts, in two levels. Required."""
    return lazily("torch._dynamo.utils:counters", _COUNTING)


def graph_breaks() -> Iterable[Any]:
    """Return why Dynamo left a graph: records with ``reason`` and ``user_stack``. Required."""
    return lazily("torch._dynamo.utils:graph_break_reasons", _COUNTING)


def compilation_metrics() -> Iterable[Any]:
    """Return a record for each compilation, with ``recompile_reason``. Required."""
    return lazily("torch._dynamo.utils:get_compilation_metrics", _COUNTING)()


def backends(**options: Any) -> list[str]:
    """Return the names of the backends of torch.compile. Required.

    Args:
        options: ``exclude_tags=()`` lists the backends for debugging, too.
    """
    return lazily("torch._dynamo:list_backends", _COUNTING)(**options)


def backend(name: str) -> Any:
    """Return the backend of this name; raises what torch.compile raises where there is none. Required."""
    return lazily("torch._dynamo:lookup_backend", _COUNTING)(name)


# -- Inductor --------------------------------------------------------------------------------------

#: The names for compiling a graph for Metal, and for writing AOTInductor's C++, by their names here.
_NAMES: dict[str, dict[str, str]] = load_shipped(Path(__file__).with_suffix(".yaml"))
_METAL, _AHEAD = _NAMES["metal"], _NAMES["ahead"]


def missing_for_metal() -> str:
    """Return the first name that is needed to compile for Metal and that this release lacks, or empty.

    Required to check what Inductor generates for Metal; nothing is compiled for Metal where it
    names one.
    """
    # The first import of Inductor warns of its own use of torch.jit.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lacking = (path for path in _METAL.values() if not _exists(path))
        return next(lacking, "").replace(":", ".")


def _exists(path: str) -> bool:
    try:
        pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True


def use_metal_backend(file: Path) -> None:
    """Let Inductor write Metal as another release does: its ``codegen/mps.py`` takes the place of the installed file.

    So does ``cpp_wrapper_mps.py`` next to it, where that release has it.  The rest of Inductor (its decompositions,
    lowerings and scheduler) stays that of the installed torch.  To be called before Inductor is imported, once in a
    process.  Required for a target of another release.

    Where an interface moved between the releases:

    - ``value_expr``, an operation that Inductor requires of every backend since 2.13; what older files write for
      ``index_expr`` is what it represents (torch/_inductor/codegen/mps.py, 2.13).
    - ``call_kernel`` takes ``deallocate_ws`` since 2.10 (torch/_inductor/codegen/simd.py), and
      ``_generate_kernel_call_helper`` ``inductor_meta`` and ``current_stream_idx`` since 2.11 and 2.12.
    - ``TritonMeta`` annotates an argument in 2.15 (runtime/hints.py).
    - The parts of a variance are texts in 2.7; since 2.8 each value has a dtype (codegen/common.py, CSEProxy).

    Raises:
        UnsupportedTorchError: the file cannot be used with the installed Inductor.
    """
    with require_names(_GENERATING), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = _replace_module(_METAL["scheduling"].partition(":")[0], file)
        _adapt(module.MetalOverrides, module.MetalKernel)
        wrapper = file.with_name("cpp_wrapper_mps.py")
        if wrapper.is_file():
            hints = importlib.import_module("torch._inductor.runtime.hints")
            vars(hints).setdefault("TritonMeta", dict)
            module = _replace_module(_AHEAD["wrapper"].partition(":")[0], wrapper)
            _drop_new_keywords(module.CppWrapperMps, "_generate_kernel_call_helper")


def _replace_module(name: str, file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    package = importlib.import_module(name.rpartition(".")[0])
    # What the file imports from imports it in turn (torch/_inductor/codegen/common.py).
    sys.modules[name] = module
    spec.loader.exec_module(module)
    vars(package)[name.rpartition(".")[2]] = module
    return module


def _adapt(overrides: Any, kernel: Any) -> None:
    """Give a released backend what the installed Inductor requires of it and its own release did not."""
    if "value_expr" not in vars(overrides):
        overrides.value_expr = staticmethod(overrides.index_expr)
    _drop_new_keywords(kernel, "call_kernel")
    if not hasattr(kernel, "headers"):  # 2.7
        reduce = kernel.reduction

        def reduction(self: Any, dtype: Any, src_dtype: Any, reduction_type: str, value: Any) -> Any:
            result = reduce(self, dtype, src_dtype, reduction_type, value)
            if not isinstance(result, tuple):
                return result
            return tuple(self.cse.generate(self.compute, str(part), dtype=torch.float32) for part in result)

        kernel.reduction = reduction


def _drop_new_keywords(owner: Any, name: str) -> None:
    """Let a method of an older release be called with keywords that it does not know."""
    method = getattr(owner, name)
    cached = inspect.signature(method).parameters

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return method(self, *arguments, **{key: keywords[key] for key in keywords if key in cached})

    setattr(owner, name, call)


def inductor_config(changes: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Return a context where Inductor has other settings. Required."""
    return lazily("torch._inductor.config:patch", _GENERATING)(changes)


def numpy_draws() -> AbstractContextManager[Any]:
    """Return a context where Dynamo leaves ``numpy.random`` to NumPy, not to torch's generator. Required."""
    return lazily("torch._dynamo.config:patch", _GENERATING)(use_numpy_random_stream=True)


def compile_graph(graph: torch.fx.GraphModule, inputs: Any, inner: Callable[..., Any]) -> Any:
    """Run AOTAutograd on a graph of Dynamo's; ``inner`` compiles the resulting graphs. Required."""
    return lazily(_METAL["outer"], _GENERATING)(graph, inputs, inner_compile=inner)


def compile_inner(graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
    """Compile a graph that AOTAutograd made. Required."""
    return lazily(_METAL["inner"], _GENERATING)(graph, inputs, **options)


def mode_settings(mode: str) -> Mapping[str, Any]:
    """Return the settings of Inductor that a mode of torch.compile represents. Required."""
    return lazily("torch._inductor:list_mode_options", _GENERATING)(mode or "default")


def skipped_cuda_graphs(compiled: Any) -> str:
    """Return why Inductor takes no CUDA graphs for its output. Optional: empty where it does not say."""
    return str(getattr(compiled, "disabled_cudagraphs_reason", None) or "")


def compile_ahead(graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> str:
    """Return the C++ that AOTInductor writes for a graph; nothing is compiled. Required.

    On a Mac Inductor finds the GPU by asking for it (torch/_inductor/utils.py, get_gpu_type).
    """
    written: list[str] = []
    ahead_of_time = True

    def compile_code(*arguments: Any, **_: Any) -> str:
        written.append(arguments[1])
        return ""

    device, compiler = (lazily(_AHEAD[name], _GENERATING) for name in ("device", "compiler"))
    changes: list[tuple[Any, str, Any]] = [
        (compiler, "compile", staticmethod(compile_code)),
        (device, "get_gpu_type", lambda: "mps"),
    ]
    context = lazily(_AHEAD["context"], _GENERATING)
    with (
        require_names(_GENERATING),
        replace_attributes(changes),
        context(ahead_of_time),
        inductor_config({"cpp_wrapper": True}),
    ):
        compile_inner(graph, inputs, aot_mode=True, cpp_wrapper=True, **options)
    return written[0]


def box_arguments(function: Callable[..., Any]) -> Any:
    """Return the function with its arguments as a list. Required."""
    return lazily(_METAL["boxed"], _GENERATING)(function)


def metal_step(name: str) -> AttributePlace:
    """Return a step of compiling for Metal, to replace it; ``steps`` are in compilation.yaml. Required."""
    owner, _, attribute = _NAMES["steps"][name].rpartition(".")
    return AttributePlace(lazily(owner, _GENERATING), attribute)


def loop_ranges(kernel: Any) -> dict[Any, Any]:
    """Return the length of each loop of a kernel, by its symbol. Required."""
    with require_names(_GENERATING):
        return {symbol: entry.length for symbol, entry in kernel.range_tree_nodes.items()}


def current_kernel() -> Any:
    """Return the kernel that is being written. Required."""
    # V.kernel represents it, and is one object.
    with require_names(_GENERATING):
        return lazily("torch._inductor.virtualized:V", _GENERATING).kernel


def kernel_names() -> Any:
    """Return what names the values of the kernel that is being written; it has a ``name_prefix``. Required."""
    with require_names(_GENERATING):
        return current_kernel().cse


def defined_kernels() -> Mapping[str, Any]:
    """Return the names of the kernels of the graph that is being compiled, by their source. Required."""
    return lazily("torch._inductor.virtualized:V.graph.wrapper_code.src_to_kernel", _GENERATING)


def compile_shaders() -> AttributePlace | None:
    """Return the step that hands all kernels to Metal, to replace it; 2.13 and 2.15 have it, 2.9 lacks it.

    Optional: where it is missing, kernels cannot be run on the CPU (``--run-metal``).
    """
    runtime = lazily("torch._inductor.runtime:runtime_utils", _RUNNING)
    name = "compile_mps_shaders"
    return AttributePlace(runtime, name) if hasattr(runtime, name) else None


def load_wrapper() -> AttributePlace:
    """Return the step that loads the Python code around the kernels, to replace it. Required."""
    lowering = lazily("torch._inductor.graph:GraphLowering", _RUNNING)
    with require_names(_RUNNING):
        return place(lowering, "_compile_to_module_lines")


def flex_attention_shader() -> AttributePlace | None:
    """Return the step that writes flex_attention's shader, which ``define_kernel`` does not see.

    Optional: it came with 2.13; without it, no kernel of flex_attention is checked.
    """
    path = "torch._inductor.codegen.metal_flex_attention_template:MetalFlexAttentionNode"
    try:
        return place(pkgutil.resolve_name(path), "codegen")
    except (ImportError, AttributeError):
        return None


def result_strides() -> list[Any] | None:
    """Return the strides that the inner compiler promised AOTAutograd for the results of this graph.

    Optional: outside of AOTAutograd there are none.
    """
    with require_names(_GENERATING):
        context = torch._guards.TracingContext.try_get()
    return context.output_strides if context else None
