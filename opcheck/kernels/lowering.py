"""AIR as LLVM assembly of this machine: no address spaces, no Metal, one way to call every kernel.

A kernel is called with an array of pointers, one for each place that a buffer can be bound to,
and an array of 32-bit numbers, the positions of its thread: so no calling convention of vectors
matters, and one signature serves them all.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opcheck.common.yaml_text import load_shipped
from opcheck.kernels import bfloats, intrinsics
from opcheck.kernels.air import THREADGROUP, KernelParameter, is_flushed
from opcheck.kernels.ir_templates import fill

#: Places of the array of pointers: 31 buffers of device memory, then 31 of threadgroup memory.
PLACES, THREADGROUP_PLACE = 64, 32

#: The numbers of a thread, each by three or alone: threads.cpp fills them in the same order.
POSITIONS: dict[str, int] = load_shipped(__file__, "positions.yaml")
NUMBERS = 23

#: In a line, in this order.  Divisions of another precision (arcp, afn) are the GPU's choice: IEEE's
#: here, so the flags go, with calling conventions and what hangs on metadata.
_REWRITES = (
    (re.compile(r" addrspace\(\d+\)"), ""),
    (re.compile(r", ![a-zA-Z._]+ !\d+"), ""),
    (re.compile(r" (?:reassoc|nnan|ninf|nsz|arcp|contract|afn|fast|fastcc)\b"), ""),
    (re.compile(r"\baddrspacecast\b"), "bitcast"),
)
#: Kernels load vectors from rows that begin anywhere, which instructions of x86 for aligned data refuse.
_ALIGNED = re.compile(r"\balign \d+")
_ACCESS = re.compile(r"^  (?:%\S+ = load|store|(?:tail )?call void @llvm\.mem)")
_MEMORY = re.compile(r"@llvm\.(mem\w+)((?:\.p\d)+)\.")
#: Lines that begin so have no effect on the code.
_DROPPED = ("!", "target ", "source_filename", "; ")
#: Functions of LLVM that do nothing.
_IDLE = re.compile(r"@llvm\.(?:lifetime|experimental\.noalias|assume|dbg)\b")
#: A bfloat that was computed, or comes from several places: not a bfloat that is loaded or made of bits, and stored.
_STORED = re.compile(r"^  store bfloat (?P<value>%[\w.]+), (?P<place>ptr .*)")
_COMPUTED = r"^  {} = (?:phi|select|f[a-z]+|(?:tail )?call) "
_FUSIBLE = "llvm.fmuladd."
_DECLARED = re.compile(r"declare (?P<result>.+?) @(?P<name>[\w.]+)\((?P<parameters>.*)\)")
_DIVISION = re.compile(
    r"= (?P<name>[su]div|[su]rem)(?: exact)? (?P<kind>i\d+|<\d+ x i\d+>) (?P<first>[^,]+), "
    r"(?P<second>.*)"
)
_SHARED = re.compile(
    r"^@(?P<name>\S+) = .*?\bglobal (?P<kind>.+?) (?:undef|zeroinitializer|poison)(?:,|$)", re.MULTILINE
)
#: Kernels whose lanes read what others overwrite, with no barrier in between: they rely on lanes in
#: lockstep, as GPUs have them.
_IN_STEP = re.compile(r"eigh_jacobi_")
_SHARED_STORE = re.compile(r"^  store .*, ptr addrspace\(3\) ")
_TOGETHER = re.compile(r"call \w+ @opcheck_")
_FUNCTION = re.compile(r"@([\w.]+)\(")


class Lowered(NamedTuple):
    """Assembly of this machine, or what it lacks."""

    text: str
    #: AIR's functions that have no definition here; then there is no text.
    missing: tuple[str, ...]
    #: whether its threads need each other: barriers, simdgroups.
    together: bool
    #: whether it has a multiplication and an addition that a compiler may fuse.
    fusible: bool = False


def lower(text: str, name: str, arguments: tuple[KernelParameter, ...]) -> Lowered:
    """Rewrite a kernel's module, and add ``opcheck.body`` and ``opcheck.shared``.

    ``opcheck.body(buffers, numbers)`` runs one thread, ``opcheck.grid(buffers, numbers)`` all of a
    grid, for threads that do not need each other, and ``opcheck.poison()`` fills the memory of a
    threadgroup with ones, which are NaN: it is not initialized on a GPU.  While the byte
    ``opcheck.separate`` is not zero, ``llvm.fmuladd`` rounds twice instead of once: a compiler may do both.

    Args:
        text: AIR in LLVM's assembly.
        name: of the kernel.
        arguments: of the kernel.
    """
    lines, declared = _rewritten(_count_steps(text) if _IN_STEP.match(name) else text)
    if is_flushed(text):
        lines = _flush("\n".join(lines))
    definitions, missing = [], []
    kept = {}
    for function, (result, parameters) in declared.items():
        if function.startswith(_FUSIBLE):
            definitions += _fuse(function, kind(result))
        elif function.startswith("llvm."):
            marked = [f"{kind(p)} immarg" if "immarg" in p else kind(p) for p in parameters]
            kept[function] = f"declare {kind(result)} @{function}({', '.join(marked)})"
        if function.startswith("llvm."):
            continue
        kinds = tuple(kind(parameter) for parameter in parameters)
        definition = intrinsics.define(function, kind(result), kinds)
        if definition is None:
            missing.append(function)
        else:
            definitions.append(definition)
    if missing:
        return Lowered("", tuple(missing), together=False)
    fusible = any(function.startswith(_FUSIBLE) for function in declared)
    if fusible:
        definitions.append("@opcheck.separate = global i8 0\n!0 = !{}\n")
    text, divisions = _guard("\n".join(lines).replace(f"@{_FUSIBLE}", "@opcheck.fmuladd."))
    text = "\n".join([text, *_unique(definitions), _body(text, name, arguments), _poison(text)])
    text += divisions + intrinsics.HELPERS["opcheck.grid"]
    text += intrinsics.helpers(text)
    for line in intrinsics.declarations(text).splitlines():
        function_name = _FUNCTION.search(line) if line.startswith("declare") else None
        kept.setdefault(function_name[1] if function_name else line, line)
    together = bool(_TOGETHER.search(text))
    return Lowered(bfloats.soften("\n".join([text, *kept.values(), ""])), (), together, fusible)


def _fuse(function: str, whole: str) -> list[str]:
    """Define a multiplication and an addition that is fused, or not, by ``opcheck.separate``."""
    suffix = function.removeprefix(_FUSIBLE)
    fused = intrinsics.define(f"air.fma.{suffix}", whole, (whole,) * 3) or ""
    return [fused, fill("fmuladd", T=whole, suffix=suffix)]


def _count_steps(text: str) -> str:
    """Let the lanes of a simdgroup wait for each other before each store to threadgroup memory."""
    return "".join(
        f"  call void @opcheck_step()\n{line}" if _SHARED_STORE.match(line) else line
        for line in text.splitlines(keepends=True)
    )


def _flush(text: str) -> list[str]:
    """Let a bfloat that is stored lose its denormals, but not a bfloat that was loaded, or is made of bits.

    Apple's GPUs represent a bfloat16 as a float32 and flush it where they convert it back: pytorch/pytorch#193897
    measured it for every value, and #195206 found it where a result has two ways and arithmetic is on either.
    """
    lines = []
    for number, line in enumerate(text.splitlines()):
        stored = _STORED.match(line)
        if stored and re.search(_COMPUTED.format(re.escape(stored["value"])), text, re.MULTILINE):
            lines.append(f"  %flushed{number} = call bfloat @opcheck.flushed(bfloat {stored['value']})")
            line = f"  store bfloat %flushed{number}, {stored['place']}"  # noqa: PLW2901
        lines.append(line)
    return lines


def _rewritten(text: str) -> tuple[list[str], dict[str, tuple[str, list[str]]]]:
    """Return the lines of the module's code, and the functions that it declares: result, parameters."""
    lines, declared = [], {}
    for line in text.splitlines():
        if not line or line.startswith(_DROPPED):
            continue
        if line.startswith("attributes "):
            # They promise what is false of the definitions here (memory(none), willreturn).
            lines.append(f"{line.partition('=')[0]}= {{ nounwind }}")
            continue
        if "@llvm." in line:
            if _IDLE.search(line):
                continue
            line = _MEMORY.sub(lambda m: f"@llvm.{m[1]}{'.p0' * m[2].count('.')}.", line)  # noqa: PLW2901
        if _ACCESS.match(line):
            line = _ALIGNED.sub("align 1", line)  # noqa: PLW2901
        for pattern, replacement in _REWRITES:
            line = pattern.sub(replacement, line)  # noqa: PLW2901  (each works on the last one's)
        match = _DECLARED.match(line)
        if match:
            declared[match["name"]] = match["result"], intrinsics.split(match["parameters"])
        else:
            lines.append(line.replace("define weak_odr void", "define void"))
    return lines, declared


def _unique(definitions: list[str]) -> list[str]:
    """Return each definition once: a vector function brings its scalar function, which may be there by itself."""
    unique: dict[str, str] = {}
    for text in definitions:
        for part in re.split(r"(?=^define )", text, flags=re.MULTILINE):
            if part:
                head = re.search(r"@([\w.]+)\(", part)
                unique.setdefault(head[1] if head else part, part)
    return list(unique.values())


def kind(text: str) -> str:
    """Return a parameter's type without the attributes around it."""
    vector = re.search(r"<\d+ x [a-z0-9]+>", text)
    if vector:
        return vector[0]
    word = re.search(r"\b(ptr|void|half|bfloat|float|double|i\d+)\b", text)
    return word[0] if word else text


def _guard(text: str) -> tuple[str, str]:
    """Replace every division by a call of a function that does not trap on 0, or on the least by -1."""
    used: set[tuple[str, str]] = set()

    def call(match: re.Match[str]) -> str:
        name, operand_type = match["name"], match["kind"]
        used.add((name, operand_type))
        operands = f"{operand_type} {match['first']}, {operand_type} {match['second']}"
        return f"= call {operand_type} @opcheck.{name}.{_label(operand_type)}({operands})"

    text = _DIVISION.sub(call, text)
    return text, "".join(f"\n{_division(name, kind)}\n" for name, kind in sorted(used))


def _label(operand_type: str) -> str:
    return operand_type.strip("<>").replace(" ", "")


def _division(name: str, operand_type: str) -> str:
    vector = intrinsics.VECTOR.fullmatch(operand_type)
    bits, count = (vector[2], vector[1]) if vector else (operand_type, "")
    numbers = {"none": 0, "negative": -1, "one": 1, "lowest": -(1 << (int(bits[1:]) - 1))}
    return fill(
        "division",
        T=operand_type,
        name=name,
        label=_label(operand_type),
        flag=f"<{count} x i1>" if count else "i1",
        trapping="%both" if name.startswith("s") else "%zero",
        **{word: f"splat ({bits} {value})" if count else value for word, value in numbers.items()},
    )


def _parameters(text: str, name: str) -> list[str]:
    match = re.search(rf"^define [^\n]*@{re.escape(name)}\((.*)\)[^\n]*\{{$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"the module does not define {name}")
    return intrinsics.split(match[1])


def parameter_types(
    text: str, name: str, arguments: tuple[KernelParameter, ...]
) -> Iterator[tuple[KernelParameter, str]]:
    """Yield the arguments of a module's kernel, each with its type in LLVM's assembly."""
    pairs = zip(arguments, _parameters(text, name), strict=True)
    yield from ((argument, kind(parameter)) for argument, parameter in pairs)


def number_of(argument: KernelParameter) -> int:
    """Return the place of an argument among the numbers of a thread.

    Raises:
        ValueError: it is of an unknown kind.
    """
    number = POSITIONS.get(argument.kind.removeprefix("air."))
    if number is None:
        raise ValueError(f"an argument of an unknown kind: {argument.kind}")
    return number


def place_of(argument: KernelParameter) -> int:
    """Return the place of a buffer among the pointers of a launch."""
    return argument.location + THREADGROUP_PLACE * (argument.space == THREADGROUP)


def load_pointer(place: int, argument: KernelParameter) -> list[str]:
    """Return the lines that read the address of an argument, %p and its place."""
    return [
        f"  %b{place} = getelementptr ptr, ptr %buffers, i32 {place_of(argument)}",
        f"  %p{place} = load ptr, ptr %b{place}",
    ]


def load_number(number: int, label: object) -> list[str]:
    """Return the lines that read a number of a thread, %n and a label."""
    return [f"  %a{label} = getelementptr i32, ptr %numbers, i32 {number}", f"  %n{label} = load i32, ptr %a{label}"]


def _body(text: str, name: str, arguments: tuple[KernelParameter, ...]) -> str:
    lines, passed = ["entry:"], []
    for place, (argument, argument_type) in enumerate(parameter_types(text, name, arguments)):
        if argument.is_buffer:
            lines += load_pointer(place, argument)
            passed.append(f"ptr %p{place}")
            continue
        number = number_of(argument)
        for i in range(3):
            lines += load_number(number + i, f"{place}.{i}")
        lines += position(place, [f"%n{place}.{i}" for i in range(3)], argument_type)
        passed.append(f"{argument_type} %v{place}")
    body = "\n".join([*lines, f"  call void @{name}({', '.join(passed)})", "  ret void"])
    return f"\ndefine void @opcheck.body(ptr %buffers, ptr %numbers) {{\n{body}\n}}\n"


def position(place: int, numbers: Sequence[str], argument_type: str) -> list[str]:
    """Return the lines that make an argument, %v and its place, of up to three 32-bit numbers."""
    vector = intrinsics.VECTOR.fullmatch(argument_type)
    bits, count = (vector[2], int(vector[1])) if vector else (argument_type, 1)
    cast = "bitcast" if bits == "i32" else "trunc" if int(bits[1:]) < 32 else "zext"
    lines, value = [], "poison"
    for i, number in enumerate(numbers[:count]):
        lines.append(f"  %t{place}.{i} = {cast} i32 {number} to {bits}")
        last = f"%v{place}" if i + 1 == count else f"%w{place}.{i}"
        if vector:
            lines.append(f"  {last} = insertelement {argument_type} {value}, {bits} %t{place}.{i}, i32 {i}")
            value = last
    return lines if vector else [*lines, f"  %v{place} = bitcast {argument_type} %t{place}.0 to {argument_type}"]


def _poison(text: str) -> str:
    shared = enumerate(_SHARED.finditer(text))
    lines = (fill("poison", at=number, T=match["kind"], name=match["name"]) for number, match in shared)
    body = "\n".join([*lines, "  ret void"])
    return f"\ndefine void @opcheck.poison() {{\n{body}\n}}\n"
