"""Makes lowered kernels fast: loops over the threads, whose bodies LLVM inlines and makes vectors of.

A kernel without barriers is one loop; where threads wait for each other, lane_loops.py has one from wait to wait.
"""

import ctypes.util
import re
from typing import Any

from opcheck.kernels import lane_loops, lowering
from opcheck.kernels.air import KernelParameter
from opcheck.kernels.ir_templates import fill
from opcheck.kernels.lowering import Lowered

#: Functions of a double that glibc has for vectors (libmvec).
_VECTORS = (
    *("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "cbrt"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "pow", "atan2"),
)
_VARIANT = 'attributes #{} = {{ nounwind willreturn memory(none) "vector-function-abi-variant"="{}" }}'
_MVEC = "libmvec.so.1"
#: Those that wait inside of threads.cpp; kernels that call them stay fibers.
_FIBERS = ("@opcheck_matrix(", "@opcheck_step(")
_BODY = re.compile(r"^define void @opcheck\.body\(.*?^\}\n", re.MULTILINE | re.DOTALL)
_SHARED = re.compile(
    r"^(@\S+ = )(?:internal |private |unnamed_addr |local_unnamed_addr )*global (.+?) (?:undef|zeroinitializer|poison)",
    re.MULTILINE,
)
_HELPER = re.compile(r"^define void @opcheck\.grid\(.*?^\}\n", re.MULTILINE | re.DOTALL)


class Optimizer:
    """LLVM's passes for this machine.

    Args:
        llvm: the module ``llvmlite.binding``.
        target: the machine that code is made for.
        features: those of its processor, as LLVM writes them.
    """

    def __init__(self, llvm: Any, target: Any, features: str) -> None:
        self._llvm, self._target = llvm, target
        #: The letters and the lanes of glibc's functions of vectors; none where it has none for this processor.
        self._widths: tuple[tuple[str, int], ...] = ()
        if "+avx2," in f"{features}," and ctypes.util.find_library("mvec"):
            llvm.load_library_permanently(_MVEC)
            self._widths = (("d", 4), ("e", 8)) if "+avx512f," in f"{features}," else (("d", 4),)

    def optimize(self, lowered: Lowered, name: str, arguments: tuple[KernelParameter, ...]) -> tuple[Any, bool]:
        """Return the optimized module of a kernel, and whether its body runs many lanes.

        Raises:
            RuntimeError: LLVM refuses it.
        """
        text = re.sub(
            r"^(define (?:internal |weak_odr )?[^\n]*@(?!opcheck\.)[^\n]*) \{$",
            r"\1 alwaysinline {",
            lowered.text.replace(" nounwind {", " nounwind alwaysinline {"),
            flags=re.MULTILINE,
        )
        text = text.replace(f"define void @{name}(", f"define internal void @{name}(")
        # Memory that nothing else can see is not read again after a call that waits.
        text = _SHARED.sub(r"\1global \2 zeroinitializer", text)
        grid, body = _HELPER.search(text), _BODY.search(text)
        assert grid is not None
        assert body is not None
        if not lowered.together:
            text = text.replace(grid[0], _grid(text, name, arguments))
            return self._run_passes(self._with_vectors(text)), False
        text = text.replace(grid[0], "")
        if any(name in text for name in _FIBERS):
            return self._run_passes(text), False
        wrapped = text.replace(body[0], lane_loops.wrap(text, name, arguments))
        try:
            loops = lane_loops.split(self._run_passes(wrapped, vectors=False), arguments)
        except lane_loops.UnsplitError:
            return self._run_passes(text), False
        return self._run_passes(self._with_vectors(loops)), True

    def _run_passes(self, text: str, *, vectors: bool = True) -> Any:
        llvm = self._llvm
        module = llvm.parse_assembly(text)
        module.verify()
        module.triple = llvm.get_process_triple()
        module.data_layout = str(self._target.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = tuning.slp_vectorization = vectors
        passes = llvm.create_pass_builder(self._target, tuning)
        passes.getModulePassManager().run(module, passes)
        return module

    def _with_vectors(self, text: str) -> str:
        """Let calls of the C library's functions become calls of its functions of vectors."""
        used, lines = [], []
        for number, function in enumerate(_VECTORS if self._widths else ()):
            call = re.compile(rf"(call double @{function}\([^\n]*\))$", re.MULTILINE)
            if not call.search(text):
                continue
            text = call.sub(rf"\1 #{9000 + number}", text)
            parts, variants = "vv" if function in {"pow", "atan2"} else "v", []
            for letter, lanes in self._widths:
                vector = f"_ZGV{letter}N{lanes}{parts}_{function}"
                kinds = ", ".join([f"<{lanes} x double>"] * len(parts))
                used.append(f"ptr @{vector}")
                variants.append(f"_ZGV_LLVM_N{lanes}{parts}_{function}({vector})")
                lines.append(f"declare <{lanes} x double> @{vector}({kinds})")
            lines.append(_VARIANT.format(9000 + number, ",".join(variants)))
        if used:
            lines.append(f"@llvm.compiler.used = appending global [{len(used)} x ptr] [{', '.join(used)}]")
        return "\n".join([text, *lines, ""])


#: The extents of a threadgroup, of the groups and of the grid, and the numbers of groups of lanes, by their places.
_FIXED = (*range(9, 18), 21, 22)
#: Where the loops have the numbers of a thread that are not read from memory.
_MOVED = {0: "%x", 1: "%y", 2: "%z", 6: "%d6", 7: "%d7", 8: "%d8"}


#: A number of elements that no thread has to look at.
_MOST = "@opcheck.most = internal constant i32 -1"


def _grid(text: str, name: str, arguments: tuple[KernelParameter, ...]) -> str:
    """Return a loop over the threads from the numbers 0 to 2, up to 6 to 8; buffers do not overlap.

    Where each thread computes the same number of elements, but the last fewer, the loop over the others has no
    branches for it: LLVM makes vectors of the innermost loops alone, and the last thread has a loop of its own.
    """
    loads, parameters, passed, lines = [], ["ptr noalias %numbers"], [], []
    most = ""
    for place, (argument, kind) in enumerate(lowering.parameter_types(text, name, arguments)):
        if not argument.is_buffer:
            first = lowering.number_of(argument)
            numbers = [_MOVED.get(at, f"%n{at}") for at in range(first, first + 3)]
            lines += lowering.position(place, numbers, kind)
            passed.append(f"{kind} %v{place}")
            continue
        loads += lowering.load_pointer(place, argument)
        parameters.append(f"ptr noalias %p{place}")
        passed.append(f"ptr %p{place}")
        if (argument.name, argument.type) == ("numel", "uint") and "_dense_" in name:
            most = passed[-1]
    plain = ", ".join(parameter.replace(" noalias", "") for parameter in parameters)
    fixed = [line for at in (0, 1, 2, 6, 7, 8, *_FIXED) for line in lowering.load_number(at, at)]
    words = {"parameters": ", ".join(parameters), "fixed": "\n".join(fixed), "lines": "\n".join(lines), "kernel": name}

    def rows(label: str, operands: list[str]) -> str:
        return fill("rows", label=label, passed=", ".join(operands), **words)

    body, functions = f"  call void @opcheck.rows({plain})", [rows("rows", passed)]
    if most:
        shortened = ["ptr @opcheck.most" if each == most else each for each in passed]
        body, functions = fill("split", passed=plain), [_MOST, rows("rows", shortened), rows("rest", passed)]
    return "\n".join(["", fill("grid", loads="\n".join(loads), body=body), *functions, ""])
