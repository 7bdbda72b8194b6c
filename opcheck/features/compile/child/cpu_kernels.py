"""Runs Inductor's graphs for mps on the CPU: its own wrapper, compiled kernels, and the CPU's operators."""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from opcheck.common.replacing import replace_attributes
from opcheck.features.compile.check.metal_check import join_kernels
from opcheck.features.compile.child.graph_records import GENERATED, HEADER
from opcheck.features.compile.compile_records import MetalKernel
from opcheck.features.compile.metal_runner import CompilerError, shared_library
from opcheck.tracing.torch_private import compilation

#: Memory that the threads of a threadgroup share; the arrays that take it as a parameter have no semicolon.
_SHARED = re.compile(r"^(?P<indent>\s*)threadgroup (?=.*;\s*$)", re.MULTILINE)
_POSITIONS = re.compile(r"\[\[(?P<which>thread_position_in_\w+)\]\]")
_GRID, _GROUP = "thread_position_in_grid", "thread_position_in_threadgroup"

#: c10/metal/error.h, ErrorMessages: a count, then messages, each after the names of a file and a function
_ERRORS, _MESSAGE, _MESSAGE_SIZE = 32 << 10, 4 + 128 + 128, 250
_MOST_THREADS = 1024


class CpuKernelError(RuntimeError):
    """A kernel does what a GPU does not allow, or reports an error of its own."""


def compile_kernels(kernels: Sequence[tuple[str, str, list[str]]]) -> dict[str, CpuKernel]:
    """Return what ``compile_mps_shaders`` of torch/_inductor/runtime/runtime_utils.py gives, on the CPU.

    Raises:
        CompilerError: the compiler refuses the kernels.
        KernelError: several have one name.
    """
    name, count = Counter(name for name, _, _ in kernels).most_common(1)[0]
    if count > 1:
        raise CpuKernelError(f"{count} kernels of one library are called {name}")
    records = [MetalKernel(name=name, source=source, headers=(*headers,)) for name, source, headers in kernels]
    text = join_kernels(records).text
    entries = "".join(f"OPCHECK_ENTRY({kernel.name})\n" for kernel in records)
    shared = _SHARED.sub(r"\g<indent>static ", text)
    loaded = ctypes.CDLL(str(shared_library(f"{shared}\n{entries}")))
    return {kernel.name: CpuKernel(kernel, loaded) for kernel in records}


def compile_kernel(source: str) -> CpuKernel:
    """Return what ``compile_mps_shader`` of torch/_inductor/runtime/runtime_utils.py gives, on the CPU.

    The library that it replaces has a single kernel, which releases up to 2.11 call as
    ``library.generated_kernel`` and later ones as ``library``.

    Raises:
        CompilerError: the compiler refuses the kernel, or it is that of a template.
    """
    name = re.search(r"kernel void (\w+)", source)
    if name is None or name[1] != GENERATED:
        raise CompilerError(f"the kernel of a template is not run: {name[1] if name else ''}")
    headers = HEADER.findall(source)
    function = compile_kernels([(GENERATED, HEADER.sub("", source), headers)])[GENERATED]
    function.generated_kernel = function
    return function


class CpuKernel:
    """One kernel, called as ``torch.mps.compile_shader``'s functions are."""

    #: kernels that were called in this process, each as often as it was
    called = 0
    #: itself, where it replaces a library of a single kernel
    generated_kernel: CpuKernel

    def __init__(self, kernel: MetalKernel, loaded: ctypes.CDLL) -> None:
        positions = _POSITIONS.findall(kernel.source)
        if positions not in ([_GRID], [_GRID, _GROUP]):
            raise CpuKernelError(f"{kernel.name} asks for {', '.join(positions)}")
        self._name = kernel.name
        self._run = loaded[f"opcheck_{kernel.name}"]
        self._run.restype = ctypes.c_char_p
        #: whether its threads need each other
        self._together = _GROUP in positions

    def __call__(
        self,
        *args: Any,
        threads: Sequence[int],
        group_size: Sequence[int] | None = None,
        error_buf_idx: int | None = None,
    ) -> None:
        """Run the kernel over a grid of threads.

        Raises:
            KernelError: its threads do not all reach a barrier, the threadgroup is too large, or it reports an error.
        """
        CpuKernel.called += 1
        values = list(args)
        errors = ctypes.create_string_buffer(_ERRORS)
        if error_buf_idx is not None:
            values.insert(error_buf_idx, errors)
        kept = [_argument(value) for value in values]
        pointers = (ctypes.c_void_p * len(kept))(*(pointer for pointer, _ in kept))
        group = _three(group_size or [1])
        if math.prod(group) > _MOST_THREADS:
            raise CpuKernelError(f"{self._name}: threadgroups of {math.prod(group)} threads")
        problem = self._run(pointers, _three(threads), group, int(self._together), 0)
        if problem:
            raise CpuKernelError(f"{self._name}: {problem.decode()}")
        if int.from_bytes(errors.raw[:4], "little"):
            message = errors.raw[_MESSAGE : _MESSAGE + _MESSAGE_SIZE].split(b"\0")[0]
            raise CpuKernelError(f"{self._name}: {message.decode(errors='replace')}")


def _argument(value: Any) -> tuple[int, Any]:
    """Return where the kernel reads or writes it, and what must live as long."""
    if isinstance(value, torch.Tensor):
        # A number in double is bound as float (aten/src/ATen/native/mps/OperationUtils.mm, mtl_setArg).
        tensor = value.float() if value.dtype == torch.float64 and not value.dim() else value
        return tensor.data_ptr(), tensor
    if isinstance(value, ctypes.Array):
        return ctypes.addressof(value), value
    number = ctypes.c_float(value) if isinstance(value, float) else ctypes.c_long(value)
    return ctypes.addressof(number), number


def _three(sizes: Sequence[int]) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*sizes, *[1] * (3 - len(sizes)))


_MPS = re.compile(r"(?P<quote>['\"])mps(?P<index>:\d+)?(?P=quote)")
#: What an operator gives back on the CPU may have other strides than on mps; the kernels after it count on those.
_RESULT = re.compile(r"^(?P<indent>\s*)assert_size_stride\((?P<name>buf\d+), ", re.MULTILINE)
#: Up to 2.11 each kernel is compiled apart; so is that of a template, flex_attention's, in later releases.
_ALONE = re.compile(r"= compile_mps_shader\(")
_ATTENTION = "torch.ops.aten._scaled_dot_product_attention_math_for_mps.default"
_ON_CPU = (
    (_MPS, "'cpu'"),
    (_ALONE, "= opcheck_compiled("),
    (_RESULT, r"\g<indent>\g<name> = opcheck_strided(\g<name>, "),
    (re.compile(re.escape(_ATTENTION)), "torch.ops.aten._scaled_dot_product_attention_math.default"),
)
_PRELUDE = (
    "from opcheck.features.compile.child.cpu_kernels import restride as opcheck_strided\n"
    "from opcheck.features.compile.child.cpu_kernels import compile_kernel as opcheck_compiled\n"
)


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Make what Inductor compiles for mps inside the block callable with CPU tensors."""
    step = compilation.load_wrapper()
    load = step.value()

    def load_rewritten(self: Any, wrapper: Any) -> Any:
        for pattern, replacement in _ON_CPU:
            wrapper.value = pattern.sub(replacement, wrapper.value)
        wrapper.value = _PRELUDE + wrapper.value
        return load(self, wrapper)

    changes: list[tuple[Any, str, Any]] = [(*step, load_rewritten)]
    if shaders := compilation.compile_shaders():
        changes.append((*shaders, compile_kernels))
    with replace_attributes(changes):
        yield


def restride(value: Any, size: Sequence[int], stride: Sequence[int], *_: Any) -> Any:
    """Return the tensor in the strides that Inductor expects of mps."""
    if not isinstance(value, torch.Tensor) or value.stride() == tuple(stride):
        return value
    return torch.empty_strided(size, stride, dtype=value.dtype).copy_(value)


def callable_on_cpu(compiled: Any, gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """Make a function of the graph's own inputs: the constants that ``on_mps`` lifted are added."""
    nodes = gm.graph.find_nodes(op="get_attr")
    values = [getattr(gm, str(node.target), None) for node in nodes]
    constants = [value for value in values if isinstance(value, torch.Tensor)]

    def run(*args: Any) -> Any:
        return compiled([*args, *constants])

    return run
