"""Kernels compiled for this machine, kept by their content, and run over buffers.

An assertion of LLVM ends the process, and so may a kernel: only a child process loads this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from opcheck.common import documents
from opcheck.common.caches import load, require_private, store
from opcheck.data.wheels.metallib import Function
from opcheck.kernels import air, fibers, lowering
from opcheck.kernels.lowering import Lowered
from opcheck.kernels.optimizing import Optimizer

#: The files that a compiled kernel depends on.
_SOURCES = (
    *("air.py", "bfloats.py", "ir_templates.py", "intrinsics.py", "lowering.py", "kernel_machine.py", "lane_loops.py"),
    *("optimizing.py", "helpers.ll", "templates.ll", "positions.yaml"),
)


class KernelError(RuntimeError):
    """A kernel cannot be run, or does what a GPU does not allow; the message has the reason."""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel for this machine."""

    name: str
    arguments: tuple[air.KernelParameter, ...]
    together: bool
    #: whether its body runs the lanes of a simdgroup in a loop.
    looped: bool = False
    missing: tuple[str, ...] = ()
    object: bytes = b""
    #: whether denormal numbers become zero, and whether an operation may be fused or not.
    flushed: bool = False
    fusible: bool = False


class KernelMachine:
    """This machine as a GPU.

    Args:
        cache: where compiled kernels are kept.
        optimized: compile kernels that run often: it takes longer, and they are many times as fast.
    """

    def __init__(self, cache: Path, *, optimized: bool = False) -> None:
        self._llvm = llvm = air.binding()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features()
        self._features, self._cpu = features.flatten(), llvm.get_host_cpu_name()
        #: By the level of optimization: compiling takes three times as long at the second.
        self._targets = {level: self._target_machine(level) for level in (0, 2)}
        mathematics = ctypes.util.find_library("m")
        if mathematics:
            llvm.load_library_permanently(mathematics)
        self._cache = require_private(cache)
        self._optimizer = Optimizer(llvm, self._target_machine(2), self._features) if optimized else None
        self._objects = cache / "objects" / self._key()

    def _target_machine(self, level: int) -> Any:
        target = self._llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self._cpu, features=self._features, opt=level, jit=True, codemodel="jitdefault"
        )

    def _key(self) -> str:
        """Return the dependencies of an object, other than its bitcode."""
        sources = [documents.read(Path(__file__).with_name(name)) for name in _SOURCES]
        version = repr((self._llvm.llvm_version_info, self._cpu, self._features, self._optimizer is None))
        return hashlib.sha256(b"".join([version.encode(), *sources])).hexdigest()[:16]

    def _emit(self, text: str) -> bytes:
        module = self._llvm.parse_assembly(text)
        module.verify()
        target = self._targets[0]
        module.triple = self._llvm.get_process_triple()
        module.data_layout = str(target.target_data)
        emitted: bytes = target.emit_object(module)
        return emitted

    def _code(self, lowered: Lowered, name: str, arguments: tuple[air.KernelParameter, ...]) -> tuple[bytes, bool]:
        if self._optimizer is None:
            return self._emit(lowered.text), False
        optimized, looped = self._optimizer.optimize(lowered, name, arguments)
        return self._targets[2].emit_object(optimized), looped

    def _load(self, emitted: bytes) -> Any:
        engine = self._llvm.create_mcjit_compiler(self._llvm.parse_assembly(""), self._target_machine(0))
        engine.add_object_file(self._llvm.ObjectFileRef.from_data(emitted))
        engine.finalize_object()
        return engine

    def compile_cached(self, function: Function) -> Compiled:
        """Compile a kernel, or take it from the cache.

        Raises:
            KernelError: LLVM refuses it.
        """
        path = self._objects / function.digest[:2] / function.digest
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.msgpack.decode(load(path) or b"", type=Compiled)
        compiled = self.compile(str(air.parse(function.bitcode)), function.name)
        with contextlib.suppress(OSError):
            store(path, msgspec.msgpack.encode(compiled))
        return compiled

    def compile(self, text: str, name: str) -> Compiled:
        """Compile a kernel from AIR in LLVM's assembly.

        Raises:
            KernelError: LLVM refuses it.
        """
        try:
            arguments = air.arguments(text)
            lowered = lowering.lower(text, name, arguments)
            emitted, looped = (b"", False) if lowered.missing else self._code(lowered, name, arguments)
        except (RuntimeError, ValueError) as error:
            raise KernelError(f"not compiled: {str(error).strip().splitlines()[0]}") from error
        return Compiled(
            name=name,
            arguments=arguments,
            together=lowered.together,
            looped=looped,
            missing=lowered.missing,
            object=emitted,
            flushed=air.is_flushed(text),
            fusible=lowered.fusible,
        )

    def kernel(self, compiled: Compiled) -> Kernel:
        """Load a compiled kernel.

        Raises:
            KernelError: it calls functions that have no definition here.
            UsageError: its threads need each other, and there is no C++ compiler.
        """
        if compiled.missing:
            raise KernelError(f"no definition of {', '.join(compiled.missing)}")
        dispatch = self._dispatch() if compiled.together else None
        return Kernel(compiled, self._load(compiled.object), dispatch)

    def _dispatch(self) -> Any:
        path = fibers.library(self._cache)
        if path.name not in _LIBRARIES:
            self._llvm.load_library_permanently(str(path))
            dispatch = ctypes.CDLL(str(path)).opcheck_dispatch_lanes
            dispatch.restype = ctypes.c_char_p
            dispatch.argtypes = [*[ctypes.c_void_p] * 5, *[ctypes.c_int] * 2, ctypes.c_size_t]
            _LIBRARIES[path.name] = dispatch
        return _LIBRARIES[path.name]


#: What runs threads that need each other, by the name of the library: kernels find the first that is loaded.
_LIBRARIES: dict[str, Any] = {}
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_POISON = ctypes.CFUNCTYPE(None)


class Kernel:
    """A kernel that can be run.

    Args:
        compiled: what it is.
        engine: LLVM's, with the kernel's code.
        dispatch: runs threads that need each other; None where none do.
    """

    def __init__(self, compiled: Compiled, engine: Any, dispatch: Any) -> None:
        self.name, self.arguments = compiled.name, compiled.arguments
        self.fusible, self.together = compiled.fusible, dispatch is not None
        #: Whether denormal numbers are flushed, and whether the threads of a group run from the last to the first.
        self.flushed, self.backwards = compiled.flushed, False
        self._engine, self._dispatch = engine, dispatch
        #: The places of the buffers, by their names.
        self.places = {
            argument.name: lowering.place_of(argument) for argument in compiled.arguments if argument.is_buffer
        }
        entry = "opcheck.body" if dispatch else "opcheck.grid"
        self._address = engine.get_function_address(entry)
        self._frame = 0
        if compiled.looped:
            size = engine.get_global_value_address("opcheck.size")
            self._frame = ctypes.c_size_t.from_address(size).value
        self._poison = engine.get_function_address("opcheck.poison")
        self._grid = _RUN(self._address)

    @functools.cached_property
    def buffers(self) -> tuple[air.KernelParameter, ...]:
        """The arguments that are memory."""
        return tuple(argument for argument in self.arguments if argument.is_buffer)

    def fuse(self, *, fused: bool) -> None:
        """Choose whether a multiplication and an addition that may be fused are."""
        place = self._engine.get_global_value_address("opcheck.separate")
        ctypes.c_byte.from_address(place).value = not fused

    def run(
        self, buffers: Mapping[str, int] | Sequence[int], threads: Sequence[int], group: Sequence[int] = (1,)
    ) -> None:
        """Run it over a grid of threads.

        Args:
            buffers: the address of each, by the argument's name, or in their order.
            threads: the extents of the grid, at most three.
            group: those of a threadgroup.

        Raises:
            KernelError: a buffer lacks an address, or the threads do not all reach a barrier.
        """
        if not isinstance(buffers, Mapping):
            buffers = dict(zip(self.places, buffers, strict=False))
        lacking = [name for name in self.places if name not in buffers]
        if lacking:
            raise KernelError(f"nothing is bound to {', '.join(lacking)}")
        arranged = ArrangedLaunch(self, threads, group)
        for name, place in self.places.items():
            arranged.pointers[place] = buffers[name]
        arranged.run()

    def execute(self, arranged: ArrangedLaunch) -> None:
        """Run an arranged launch.

        Raises:
            KernelError: the threads do not all reach a barrier.
        """
        # Flushing is a mode of a thread of this processor; half's numbers keep their denormals in it.
        if self.flushed and not torch.set_flush_denormal(True):
            raise KernelError("this processor cannot flush denormal numbers")
        try:
            if self._dispatch is None:
                _POISON(self._poison)()
                self._grid(*arranged.of_grid)
                return
            how, backwards = (2 if self._frame else 1), int(self.backwards)
            problem = self._dispatch(self._address, self._poison, *arranged.of_groups, how, backwards, self._frame)
        finally:
            torch.set_flush_denormal(False)
        if problem:
            raise KernelError(problem.decode())


class ArrangedLaunch:
    """A launch of a kernel whose pointers can be changed: what it is called with, in memory.

    Args:
        kernel: the kernel.
        threads: the extents of the grid, at most three.
        group: those of a threadgroup.
    """

    def __init__(self, kernel: Kernel, threads: Sequence[int], group: Sequence[int]) -> None:
        self.kernel = kernel
        extents, sizes = _three(threads), _three(group)
        self._is_empty = not all(extents)
        #: By the places of the buffers.
        self.pointers = (ctypes.c_void_p * lowering.PLACES)()
        grid, of_group = (ctypes.c_uint * 3)(*extents), (ctypes.c_uint * 3)(*sizes)
        self.of_groups = (self.pointers, grid, of_group)
        numbers = (ctypes.c_uint * lowering.NUMBERS)()
        at = lowering.POSITIONS
        numbers[at["threads_per_simdgroup"]] = 32
        for axis in range(3):
            numbers[at["threads_per_threadgroup"] + axis] = sizes[axis]
            numbers[at["threads_per_grid"] + axis] = extents[axis]
            # Where the loop of an optimized kernel ends.
            numbers[at["threadgroup_position_in_grid"] + axis] = extents[axis]
            numbers[at["threadgroups_per_grid"] + axis] = -(-extents[axis] // sizes[axis])
        numbers[at["simdgroups_per_threadgroup"]] = -(-sizes[0] * sizes[1] * sizes[2] // 32)
        self._numbers = numbers
        self.of_grid = (ctypes.addressof(self.pointers), ctypes.addressof(numbers))

    def run(self) -> None:
        """Run it.

        Raises:
            KernelError: the threads do not all reach a barrier.
        """
        if not self._is_empty:
            self.kernel.execute(self)


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    first, second, third, *_ = (*extents, 1, 1)
    return first, second, third
