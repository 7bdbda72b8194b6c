"""Makes lowered kernels fast: one loop over threads that do not need each other, coroutines of those that do.

A kernel without barriers becomes a loop whose body LLVM inlines and makes vectors of.  Where threads wait for each
other, each is a coroutine of LLVM: it keeps what it needs later in a frame of a few words and returns to threads.cpp,
which resumes it when the others have come as far.
"""

import ctypes.util
import re
from typing import Any

from opcheck.kernels import intrinsics, lowering
from opcheck.kernels.air import THREADGROUP, KernelParameter
from opcheck.kernels.lowering import Lowered

#: Functions of a double that glibc has for vectors (libmvec).
_VECTORS = (
    *("exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "cbrt"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "pow", "atan2"),
)
_VARIANT = (
    'attributes #{} = {{ nounwind willreturn memory(none) "vector-function-abi-variant"="{}" }}'
)
_MVEC = "libmvec.so.1"
#: Calls that wait for the other threads, with what they leave in memory before, and take from it after.
_WAITS = re.compile(
    r"^  (?:(?P<value>%[\w.]+) = )?(?:tail )?call \w+ @(?P<name>opcheck_(?:barrier|simdgroup_barrier|exchange))"
    r"\((?P<arguments>[^\n]*)\)[^\n]*$"
)
#: Those that wait inside of threads.cpp; kernels that call them stay fibers.
_FIBERS = ("@opcheck_matrix(", "@opcheck_step(")
_LABEL = re.compile(r"^(?P<name>[\w.]+):")
_BODY = re.compile(r"^define [^\n]*@opcheck\.body\([^\n]*\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_SHARED = re.compile(
    r"^(@\S+ = )(?:internal |private |unnamed_addr |local_unnamed_addr )*global (.+?) (?:undef|zeroinitializer|poison)",
    re.MULTILINE,
)
_HELPER = re.compile(r"^define void @opcheck\.grid\(.*?^\}\n", re.MULTILINE | re.DOTALL)
_ALLOCA = re.compile(r"^  %\S+ = alloca ")

_BEGIN = """  %coro.id = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)
  %coro.size = call i64 @llvm.coro.size.i64()
  %coro.room = call ptr @opcheck_frame(i64 %coro.size)
  %coro.frame = call ptr @llvm.coro.begin(token %coro.id, ptr %coro.room)
  call void @opcheck_begin(ptr %coro.frame)
"""
_END = """coro.done:
  call void @opcheck_wait(i32 4)
  br label %coro.suspend
coro.suspend:
  call void @llvm.coro.end(ptr %coro.frame, i1 false, token none)
  ret void
}
"""
_DECLARED = """
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare void @llvm.coro.end(ptr, i1, token)
declare ptr @opcheck_frame(i64)
declare void @opcheck_begin(ptr)
declare void @opcheck_wait(i32)
declare void @opcheck_deposit(ptr, i32)
declare ptr @opcheck_collect(ptr, ptr)
"""


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

    def optimize(self, lowered: Lowered, name: str, arguments: tuple[KernelParameter, ...]) -> Any:
        """Return the optimized module of a kernel.

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
        if not lowered.together:
            grid = _HELPER.search(text)
            assert grid is not None
            text = text.replace(grid[0], _grid(text, name, arguments))
            return self._run_passes(self._with_vectors(text))
        if not is_resumable(lowered):
            return self._run_passes(text)
        return self._run_passes(_resumable(str(self._run_passes(text))))

    def _run_passes(self, text: str) -> Any:
        llvm = self._llvm
        module = llvm.parse_assembly(text)
        module.verify()
        module.triple = llvm.get_process_triple()
        module.data_layout = str(self._target.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = tuning.slp_vectorization = True
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
            lines.append(
                f"@llvm.compiler.used = appending global [{len(used)} x ptr] [{', '.join(used)}]"
            )
        return "\n".join([text, *lines, ""])


def is_resumable(lowered: Lowered) -> bool:
    """Return whether the threads of a kernel become coroutines."""
    return lowered.together and not any(name in lowered.text for name in _FIBERS)


#: The extents of a threadgroup, of the groups and of the grid, and the numbers of groups of lanes, by their places.
_FIXED = (*range(9, 18), 21, 22)
_LOOPS = """  br label %zs
zs:
  %z = phi i32 [ %n2, %entry ], [ %z1, %ze ]
  br label %ys
ys:
  %y = phi i32 [ %n1, %zs ], [ %y1, %ye ]
  br label %xs
xs:
  %x = phi i32 [ %n0, %ys ], [ %x1, %xs ]
  %n3 = urem i32 %x, %n9
  %n4 = urem i32 %y, %n10
  %n5 = urem i32 %z, %n11
  %d6 = udiv i32 %x, %n9
  %d7 = udiv i32 %y, %n10
  %d8 = udiv i32 %z, %n11
  %i0 = mul i32 %n5, %n10
  %i1 = add i32 %i0, %n4
  %i2 = mul i32 %i1, %n9
  %n18 = add i32 %i2, %n3
  %n19 = and i32 %n18, 31
  %n20 = lshr i32 %n18, 5
"""
_NEXT = """  %x1 = add nuw i32 %x, 1
  %xd = icmp uge i32 %x1, %n6
  br i1 %xd, label %ye, label %xs
ye:
  %y1 = add nuw i32 %y, 1
  %yd = icmp uge i32 %y1, %n7
  br i1 %yd, label %ze, label %ys
ze:
  %z1 = add nuw i32 %z, 1
  %zd = icmp uge i32 %z1, %n8
  br i1 %zd, label %done, label %zs
done:
  ret void
}
"""
#: Where the loops have the numbers of a thread that are not read from memory.
_MOVED = {0: "%x", 1: "%y", 2: "%z", 6: "%d6", 7: "%d7", 8: "%d8"}


#: Runs all threads but the last without their number of elements, which only the last has to look at.
_MOST = "@opcheck.most = internal constant i32 -1"
_SPLIT = """  %end = getelementptr i32, ptr %numbers, i32 6
  %count = load i32, ptr %end
  %last = sub i32 %count, 1
  %few = icmp ult i32 %count, 2
  br i1 %few, label %rest, label %whole
whole:
  store i32 %last, ptr %end
  call void @opcheck.rows({passed})
  store i32 %last, ptr %numbers
  store i32 %count, ptr %end
  br label %rest
rest:
  call void @opcheck.rest({passed})
  store i32 0, ptr %numbers
"""


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
        slot = argument.location + (
            lowering.THREADGROUP_PLACE if argument.space == THREADGROUP else 0
        )
        loads += [
            f"  %b{place} = getelementptr ptr, ptr %buffers, i32 {slot}",
            f"  %p{place} = load ptr, ptr %b{place}",
        ]
        parameters.append(f"ptr noalias %p{place}")
        passed.append(f"ptr %p{place}")
        if (argument.name, argument.type) == ("numel", "uint") and "_dense_" in name:
            most = passed[-1]
    plain = ", ".join(parameter.replace(" noalias", "") for parameter in parameters)
    fixed = [
        line
        for at in (0, 1, 2, 6, 7, 8, *_FIXED)
        for line in (
            f"  %a{at} = getelementptr i32, ptr %numbers, i32 {at}",
            f"  %n{at} = load i32, ptr %a{at}",
        )
    ]

    def rows(label: str, operands: list[str]) -> list[str]:
        call = f"  call void @{name}({', '.join(operands)})\n"
        return [
            f"define internal void @opcheck.{label}({', '.join(parameters)}) noinline {{", "entry:", *fixed,
            f"{_LOOPS}" + "\n".join([*lines, call + _NEXT]),
        ]  # fmt: skip

    body, functions = [f"  call void @opcheck.rows({plain})"], rows("rows", passed)
    if most:
        shortened = ["ptr @opcheck.most" if each == most else each for each in passed]
        body = [_SPLIT.format(passed=plain)]
        functions = [_MOST, *rows("rows", shortened), *rows("rest", passed)]
    return "\n".join([
        "", "define void @opcheck.grid(ptr %buffers, ptr %numbers) {", *loads, *body, "  ret void", "}", "", *functions
    ])  # fmt: skip


def _resumable(text: str) -> str:
    """Return a module whose body is a coroutine that returns where it waited for other threads."""
    body = _BODY.search(text)
    assert body is not None
    head, *lines = body[0].splitlines()
    head = re.sub(r"\)[^)]*\{$", ") presplitcoroutine {", head)
    result, label, begun, points = [head], "entry", False, 0
    renamed: dict[str, str] = {}
    for line in lines[:-1]:
        match = _LABEL.match(line)
        if match:
            label = match["name"]
        elif not begun and not _ALLOCA.match(line):
            result.append(_BEGIN.rstrip("\n"))
            begun = True
        wait = _WAITS.match(line)
        if wait is None:
            result.append("  br label %coro.done" if line == "  ret void" else line)
            continue
        points += 1
        renamed[label] = f"coro.resumed{points}"
        result += _suspension(wait, points)
    resumed = "\n".join([*result, _END])
    for old, new in renamed.items():
        resumed = re.sub(rf"(\[ [^\]\n]+, %){re.escape(old)} \]", rf"\1{new} ]", resumed)
    text = text.replace(body[0], resumed + _DECLARED)
    return re.sub(
        r"^declare [^\n]*@opcheck_(?:barrier|exchange|simdgroup_barrier)\(.*\n",
        "",
        text,
        flags=re.MULTILINE,
    )


def _suspension(wait: re.Match[str], point: int) -> list[str]:
    """Return the lines that wait in place of a call."""
    before, after = ["  call void @opcheck_wait(i32 1)"], []
    if wait["name"] != "opcheck_barrier":
        value, size, here, lane = "null", "i32 0", "", ""
        if wait["name"] == "opcheck_exchange":
            value, size, here, lane = (
                part.split()[-1] for part in intrinsics.split(wait["arguments"])
            )
            size = f"i32 {size}"
            after = [f"  {wait['value']} = call ptr @opcheck_collect(ptr {here}, ptr {lane})"]
        before = [f"  call void @opcheck_deposit(ptr {value}, {size})"]
    return [
        *before,
        f"  %coro.s{point} = call i8 @llvm.coro.suspend(token none, i1 false)",
        f"  switch i8 %coro.s{point}, label %coro.suspend [i8 0, label %coro.resumed{point}",
        "    i8 1, label %coro.suspend]",
        f"coro.resumed{point}:",
        *after,
    ]
