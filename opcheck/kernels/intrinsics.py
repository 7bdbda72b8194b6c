"""The functions of AIR as LLVM assembly for this machine, each made from its name and signature.

Mathematical functions are this machine's, evaluated in double and rounded once: no GPU has them so
exact, and what hangs on their last digits is not to be judged by them.  What Metal leaves open is
defined here all the same, so that nothing traps: division by zero gives 0, a float that fits no
integer is clamped.
"""

import re
from collections.abc import Callable
from pathlib import Path

from opcheck.common import documents

#: LLVM's types of the parameters of a function.
Types = tuple[str, ...]
_BYTES = {"half": 2, "bfloat": 2, "float": 4, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8}
VECTOR = re.compile(r"<(\d+) x ([a-z0-9]+)>")
_FLOATS = ("half", "bfloat", "float")

#: Functions that LLVM has under another name, exactly rounded.
_EXACT = {
    **dict.fromkeys(("fabs", "floor", "ceil", "trunc", "rint", "round", "sqrt", "fma"), ""),
    "fmin": "minnum",
    "fmax": "maxnum",
    "copysign": "",
}
#: Functions from outside of the module -> their types: of the C library, called in double, and of threads.cpp.
_MATHEMATICS = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "log10", "cbrt"), "double {}(double)"),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan"), "double {}(double)"),
    **dict.fromkeys(("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), "double {}(double)"),
    **dict.fromkeys(("pow", "fmod", "atan2"), "double {}(double, double)"),
    "ldexp": "double {}(double, i32)",
}
_OUTSIDE = {
    **_MATHEMATICS,
    "opcheck_barrier": "void {}()",
    "opcheck_step": "void {}()",
    "opcheck_simdgroup_barrier": "void {}()",
    "opcheck_exchange": "ptr {}(ptr, i32)",
    "opcheck_folded": "ptr {}(ptr)",
    "opcheck_here": "i32 {}()",
    "opcheck_lane": "i32 {}()",
    "opcheck_matrix": "void {}(ptr, ptr, ptr, ptr)",
}
_CALLED = re.compile(r"\bcall [^@\n]*@([\w.]+)\(")
_FUNCTION = re.compile(r"^define .*?@(?P<name>[\w.]+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
#: The functions of helpers.ll, by their names.
HELPERS = {
    match["name"]: match[0] for match in _FUNCTION.finditer(documents.read_text(Path(__file__).with_name("helpers.ll")))
}


def define(name: str, result: str, parameters: Types) -> str | None:
    """Return the definition of an AIR function; None where this module has none.

    Args:
        name: such as ``air.fma.f32``, without ``@``.
        result: LLVM's type of the result.
        parameters: those of its parameters.
    """
    if not name.startswith("air."):
        return None
    base, *suffixes = name.removeprefix("air.").split(".")
    for rule in _RULES:
        text = rule(base, suffixes, result, parameters)
        if text is not None:
            head = ", ".join(f"{kind} %{place}" for place, kind in enumerate(parameters))
            return f"define internal {result} @{name}({head}) nounwind {{\n{text}\n}}\n"
    vector = VECTOR.fullmatch(result) or next(filter(None, (VECTOR.fullmatch(kind) for kind in parameters)), None)
    return _by_element(name, vector, result, parameters) if vector else None


def _by_element(name: str, vector: re.Match[str], result: str, parameters: Types) -> str | None:
    """Define a vector function by one call per element."""
    count = int(vector[1])
    element = VECTOR.fullmatch(result)
    if not element:
        return None
    kinds = [m[2] if (m := VECTOR.fullmatch(kind)) else kind for kind in parameters]
    scalar_name = re.sub(r"\.v\d+(?=[a-z])", ".", name)
    scalar = define(scalar_name, element[2], tuple(kinds))
    if scalar is None:
        return None
    lines, value = [], "poison"
    for i in range(count):
        arguments = []
        for place, (kind, whole) in enumerate(zip(kinds, parameters, strict=True)):
            if kind == whole:
                arguments.append(f"{kind} %{place}")
                continue
            lines.append(f"  %e{i}.{place} = extractelement {whole} %{place}, i32 {i}")
            arguments.append(f"{kind} %e{i}.{place}")
        lines.append(f"  %r{i} = call {element[2]} @{scalar_name}({', '.join(arguments)})")
        lines.append(f"  %v{i} = insertelement {result} {value}, {element[2]} %r{i}, i32 {i}")
        value = f"%v{i}"
    head = ", ".join(f"{kind} %{place}" for place, kind in enumerate(parameters))
    body = "\n".join([*lines, f"  ret {result} {value}"])
    return f"{scalar}define internal {result} @{name}({head}) nounwind {{\n{body}\n}}\n"


def _mathematics(base: str, _suffixes: list[str], result: str, parameters: Types) -> str | None:
    if result not in _FLOATS:
        return None
    base = base.removeprefix("precise_")
    if f"opcheck.{base}" not in HELPERS:
        base = base.removeprefix("fast_")
    arguments = ", ".join(f"{kind} %{place}" for place, kind in enumerate(parameters))
    suffix = {"half": "f16", "bfloat": "", "float": "f32"}[result]
    # LLVM calls a function of the C library for fma of half, which has none.
    if base in _EXACT and not (base == "fma" and result != "float"):
        function = _EXACT[base] or base
        if result == "bfloat":
            return _by_float(function, len(parameters))
        return f"  %r = call {result} @llvm.{function}.{suffix}({arguments})\n  ret {result} %r"
    function = base if base in _MATHEMATICS else f"opcheck.{base}"
    if function not in _OUTSIDE and function not in HELPERS:
        return None
    lines, passed = [], []
    for place, kind in enumerate(parameters):
        if kind in _FLOATS:
            lines.append(f"  %d{place} = fpext {kind} %{place} to double")
        passed.append(f"double %d{place}" if kind in _FLOATS else f"{kind} %{place}")
    lines.append(f"  %x = call double @{function}({', '.join(passed)})")
    if result == "float":
        lines += ["  %r = fptrunc double %x to float", "  ret float %r"]
    else:
        # To odd first, so that rounding twice is rounding once.
        lines += ["  %f = call float @opcheck.odd(double %x)", f"  %r = fptrunc float %f to {result}"]
        lines.append(f"  ret {result} %r")
    return "\n".join(lines)


def _by_float(function: str, count: int) -> str:
    """Return the body of an exact function of bfloats, by way of floats."""
    lines = [f"  %f{place} = fpext bfloat %{place} to float" for place in range(count)]
    passed = ", ".join(f"float %f{place}" for place in range(count))
    lines.append(f"  %f = call float @llvm.{function}.f32({passed})")
    return "\n".join([*lines, "  %r = fptrunc float %f to bfloat", "  ret bfloat %r"])


def _next_after(base: str, _suffixes: list[str], result: str, _parameters: Types) -> str | None:
    if base != "nextafter" or result not in _FLOATS:
        return None
    bits = f"i{8 * _BYTES[result]}"
    least = "1"
    return f"""  %nan = fcmp uno {result} %0, %1
  %same = fcmp oeq {result} %0, %1
  %sum = fadd {result} %0, %1
  %b = bitcast {result} %0 to {bits}
  %to = bitcast {result} %1 to {bits}
  %zero = fcmp oeq {result} %0, 0.0
  %sign = and {bits} %to, {-(1 << (8 * _BYTES[result] - 1))}
  %tiny = or {bits} %sign, {least}
  %less = fcmp olt {result} %0, %1
  %minus = icmp slt {bits} %b, 0
  %grow = xor i1 %less, %minus
  %more = add {bits} %b, 1
  %fewer = sub {bits} %b, 1
  %step = select i1 %grow, {bits} %more, {bits} %fewer
  %next = select i1 %zero, {bits} %tiny, {bits} %step
  %value = bitcast {bits} %next to {result}
  %equal = select i1 %same, {result} %1, {result} %value
  %r = select i1 %nan, {result} %sum, {result} %equal
  ret {result} %r"""


#: Functions of integers of type T, whose sign S is s or u: what LLVM calls for them.
_OF_INTEGERS = {
    "min": "%r = call T @llvm.Smin.T(T %0, T %1)",
    "max": "%r = call T @llvm.Smax.T(T %0, T %1)",
    "clz": "%r = call T @llvm.ctlz.T(T %0, i1 false)",
    "ctz": "%r = call T @llvm.cttz.T(T %0, i1 false)",
    "popcount": "%r = call T @llvm.ctpop.T(T %0)",
    "reverse_bits": "%r = call T @llvm.bitreverse.T(T %0)",
    "clamp": "%a = call T @llvm.Smax.T(T %0, T %1)\n  %r = call T @llvm.Smin.T(T %a, T %2)",
    "add_sat": "%r = call T @llvm.Sadd.sat.T(T %0, T %1)",
    "sub_sat": "%r = call T @llvm.Ssub.sat.T(T %0, T %1)",
    "rotate": "%r = call T @llvm.fshl.T(T %0, T %0, T %1)",
    "abs": "%r = call T @llvm.abs.T(T %0, i1 false)",
    "mul_hi": "%a = E T %0 to W\n  %b = E T %1 to W\n  %c = mul W %a, %b\n  %d = lshr W %c, B\n  %r = trunc W %d to T",
}
_PLACEHOLDER = re.compile(r"\b[TWEB]\b|(?<=llvm\.)S(?=[a-z])")


def _integers(base: str, suffixes: list[str], result: str, _parameters: Types) -> str | None:
    if not re.fullmatch(r"i\d+", result) or base not in _OF_INTEGERS:
        return None
    sign = suffixes[0] if len(suffixes) > 1 else "s"
    if (base, sign) == ("abs", "u"):
        return f"  ret {result} %0"
    bits = int(result[1:])
    values = {"T": result, "S": sign, "W": f"i{2 * bits}", "E": "sext" if sign == "s" else "zext", "B": str(bits)}
    text = _PLACEHOLDER.sub(lambda match: values[match[0]], _OF_INTEGERS[base])
    return f"  {text}\n  ret {result} %r"


def _any_all(base: str, _suffixes: list[str], result: str, parameters: Types) -> str | None:
    if base not in {"any", "all"} or result != "i1":
        return None
    vector = VECTOR.fullmatch(parameters[0])
    name = "or" if base == "any" else "and"
    if vector is None:
        return "  ret i1 %0"
    return f"  %r = call i1 @llvm.vector.reduce.{name}.v{vector[1]}i1({parameters[0]} %0)\n  ret i1 %r"


def _dot(base: str, _suffixes: list[str], result: str, parameters: Types) -> str | None:
    if base != "dot":
        return None
    vector = VECTOR.fullmatch(parameters[0])
    if vector is None:
        return None
    lines = [f"  %p = fmul {parameters[0]} %0, %1"]
    total = ""
    for i in range(int(vector[1])):
        lines.append(f"  %e{i} = extractelement {parameters[0]} %p, i32 {i}")
        if total:
            lines.append(f"  %s{i} = fadd {result} {total}, %e{i}")
        total = f"%s{i}" if total else f"%e{i}"
    return "\n".join([*lines, f"  ret {result} {total}"])


def _convert(base: str, suffixes: list[str], result: str, parameters: Types) -> str | None:
    """Define a conversion: ``air.convert.f.f32.s.i32`` converts a signed 32-bit integer to a 32-bit float."""
    if base != "convert" or len(suffixes) < 4 or result.startswith("<"):
        return None
    to, source, kind = suffixes[0], suffixes[2], parameters[0]
    cast = ""
    if to == "f" and source == "f":
        if kind == result:
            return f"  ret {result} %0"
        if {kind, result} == {"half", "bfloat"}:
            return f"  %f = fpext {kind} %0 to float\n  %r = fptrunc float %f to {result}\n  ret {result} %r"
        cast = "fpext" if _BYTES[kind] < _BYTES[result] else "fptrunc"
    elif to == "f":
        cast = "sitofp" if source == "s" else "uitofp"
    elif source == "f":
        if result == "i1":
            return f"  %r = fcmp une {kind} %0, 0.0\n  ret i1 %r"
        wide = f"  %f = {'fpext' if kind != 'float' else 'bitcast'} {kind} %0 to float\n"
        return f"{wide}  %r = call {result} @llvm.fpto{to}i.sat.{result}.f32(float %f)\n  ret {result} %r"
    elif result == "i1":
        return f"  %r = icmp ne {kind} %0, 0\n  ret i1 %r"
    else:
        have, want = int(kind[1:]), int(result[1:])
        if have == want:
            return f"  ret {result} %0"
        cast = "trunc" if want < have else "sext" if source == "s" and have > 1 else "zext"
    return f"  %r = {cast} {kind} %0 to {result}\n  ret {result} %r"


def _barriers(base: str, suffixes: list[str], result: str, _parameters: Types) -> str | None:
    if (base, suffixes) == ("wg", ["barrier"]):
        return f"  call void @opcheck_barrier() {_TOGETHER}\n  ret void"
    if (base, suffixes) == ("simdgroup", ["barrier"]):
        return f"  call void @opcheck_simdgroup_barrier() {_TOGETHER}\n  ret void"
    if base == "atomic" and suffixes == ["fence"]:
        return "  ret void"
    if base in {"get_simdgroup_size", "get_threads_per_simdgroup"}:
        return f"  ret {result} 32"
    return None


def _atomics(base: str, suffixes: list[str], result: str, parameters: Types) -> str | None:
    """Define atomics as plain loads and stores: one thread of the system runs all threads of the kernel."""
    if base != "atomic" or suffixes[0] not in {"global", "local"}:
        return None
    action = suffixes[1]
    kind = parameters[1] if action != "load" else result
    if action == "load":
        return f"  %r = load {result}, ptr %0\n  ret {result} %r"
    if action == "store":
        return f"  store {kind} %1, ptr %0\n  ret void"
    if action == "cmpxchg":
        kind = parameters[2]
        bits = f"i{8 * _BYTES[kind]}"
        return (
            f"  %old = load {bits}, ptr %0\n  %expected = load {bits}, ptr %1\n"
            f"  %new = bitcast {kind} %2 to {bits}\n  %same = icmp eq {bits} %old, %expected\n"
            f"  %kept = select i1 %same, {bits} %new, {bits} %old\n  store {bits} %kept, ptr %0\n"
            f"  store {bits} %old, ptr %1\n  %r = bitcast {bits} %old to {kind}\n  ret {kind} %r"
        )
    lines = [f"  %old = load {kind}, ptr %0"]
    floating = kind in _FLOATS
    simple = {"add": "fadd" if floating else "add", "sub": "fsub" if floating else "sub"}
    simple |= {name: name for name in ("and", "or", "xor")}
    if action in simple:
        lines.append(f"  %new = {simple[action]} {kind} %old, %1")
    elif action in {"min", "max"}:
        sign = suffixes[2] if len(suffixes) > 3 else "s"
        name = f"{sign}{action}.{kind}" if not floating else f"{action}num.f32"
        lines.append(f"  %new = call {kind} @llvm.{name}({kind} %old, {kind} %1)")
    elif action == "xchg":
        lines.append(f"  %new = bitcast {kind} %1 to {kind}")
    else:
        return None
    lines.append(f"  store {kind} %new, ptr %0")
    lines.append("  ret void" if result == "void" else f"  ret {kind} %old")
    return "\n".join(lines)


#: Calls that stay where they are: lanes that wait in the same place resume together.
_TOGETHER = "convergent nomerge"
#: The most bytes that a lane exchanges at once (threads.cpp, kWidest).
_WIDEST = 16


def _slot(kind: str) -> int:
    """Return the bytes of a value that lanes exchange: a vector of three takes the place of four."""
    vector = VECTOR.fullmatch(kind)
    if vector is None:
        return _BYTES[kind]
    count = int(vector[1])
    return _BYTES[vector[2]] * (4 if count == 3 else count)


def _exchange(kind: str, value: str, size: int = 0) -> str:
    """Deposit a value; then %here has the active lanes' bits, %lane the own, %all the values."""
    return f"""  %slot = alloca {kind}, align 16
  store {kind} {value}, ptr %slot
  %all = call ptr @opcheck_exchange(ptr %slot, i32 {size or _slot(kind)}) {_TOGETHER}
  %here = call i32 @opcheck_here() {_TOGETHER}
  %lane = call i32 @opcheck_lane() {_TOGETHER}
"""


def _take(kind: str, index: str, name: str) -> str:
    return f"""  %{name}.at = mul i32 {index}, {_slot(kind)}
  %{name}.ptr = getelementptr i8, ptr %all, i32 %{name}.at
  %{name} = load {kind}, ptr %{name}.ptr, align 1
"""


_IDENTITY: dict[str, Callable[[str, str], str]] = {
    "sum": lambda kind, _sign: "-0.0" if kind in _FLOATS else "0",
    "product": lambda kind, _sign: "1.0" if kind in _FLOATS else "1",
    "and": lambda _kind, _sign: "-1",
    "or": lambda _kind, _sign: "0",
    "xor": lambda _kind, _sign: "0",
    "min": lambda kind, sign: _limit(kind, sign, largest=True),
    "max": lambda kind, sign: _limit(kind, sign, largest=False),
}


def _limit(kind: str, sign: str, *, largest: bool) -> str:
    if kind in _FLOATS:
        # NaN is what fmin and fmax leave out.
        return {"half": "0xH7E00", "bfloat": "0xR7FC0", "float": "0x7FF8000000000000"}[kind]
    width = int(kind[1:])
    if sign == "u":
        return "-1" if largest else "0"
    return str((1 << (width - 1)) - 1 if largest else -(1 << (width - 1)))


def _combine(name: str, kind: str, sign: str) -> str:
    floating = kind in _FLOATS
    if name in {"sum", "product"}:
        instruction = {"sum": "add", "product": "mul"}[name]
        return f"  %new = {'f' if floating else ''}{instruction} {kind} %total, %x\n"
    if name in {"and", "or", "xor"}:
        return f"  %new = {name} {kind} %total, %x\n"
    function = f"{name}num" if floating else f"{sign or 's'}{name}"
    if kind == "bfloat":
        return (
            "  %ft = fpext bfloat %total to float\n  %fx = fpext bfloat %x to float\n"
            f"  %fn = call float @llvm.{function}.f32(float %ft, float %fx)\n"
            "  %new = fptrunc float %fn to bfloat\n"
        )
    suffix = {"half": "f16", "float": "f32"}.get(kind, kind)
    return f"  %new = call {kind} @llvm.{function}.{suffix}({kind} %total, {kind} %x)\n"


def _simd(base: str, suffixes: list[str], _result: str, parameters: Types) -> str | None:
    """Define what the lanes of a simdgroup do together, by one exchange of values."""
    if not base.startswith("simd_"):
        return None
    sign = suffixes[0] if len(suffixes) > 1 else ""
    action = base.removeprefix("simd_")
    kind = parameters[0] if parameters else "i32"
    if action == "is_first":
        return (
            f"{_exchange('i32', '0')}  %first = call i32 @llvm.cttz.i32(i32 %here, i1 false)\n"
            "  %r = icmp eq i32 %first, %lane\n  ret i1 %r"
        )
    if action in {"any", "all"}:
        name = "or" if action == "any" else "and"
        ending = "  %b = trunc i32 %r to i1\n  ret i1 %b"
        return f"  %wide = sext i1 %0 to i32\n{_fold('i32', '%wide', name, '', '', ending)}"
    if action.startswith(("shuffle", "broadcast")):
        return _shuffle(action, kind)
    name = action.rpartition("_")[2]
    bound = {"prefix_exclusive": "ult", "prefix_inclusive": "ule"}.get(action.rpartition("_")[0], "")
    if name not in _IDENTITY or kind.startswith("<") or (name != action and not bound):
        return None
    return _fold(kind, "%0", name, sign, bound, f"  ret {kind} %r")


def _fold(kind: str, value: str, name: str, sign: str, bound: str, ending: str) -> str:
    """Fold the values of the active lanes, in their order, into %r: all of them, or of prefixes those before a lane.

    A function computes what each lane reads, once for all; its definition follows, up to its last line.
    """
    function = f"@opcheck.fold.{name}{sign}{bound}.{kind}"
    own = f"  %at = mul i32 %lane, {_slot(kind) if bound else 0}\n  %mine = getelementptr i8, ptr %kept, i32 %at\n"
    each = (
        f"  %put.at = mul i32 %i, {_slot(kind)}\n  %put = getelementptr i8, ptr %kept, i32 %put.at\n"
        f"  store {kind} {'%total' if bound == 'ult' else '%f'}, ptr %put, align 1\n"
    )
    last = "" if bound else f"  store {kind} %f, ptr %kept, align 1\n"
    fold = (
        f"define internal void {function}(ptr %all, i32 %here, ptr %kept) nounwind {{\n"
        "entry:\n  br label %loop\nloop:\n"
        "  %i = phi i32 [ 0, %entry ], [ %next, %loop ]\n"
        f"  %total = phi {kind} [ {_IDENTITY[name](kind, sign)}, %entry ], [ %f, %loop ]\n"
        f"{_take(kind, '%i', 'x')}{_combine(name, kind, sign)}"
        "  %shifted = lshr i32 %here, %i\n  %on = trunc i32 %shifted to i1\n"
        f"  %f = select i1 %on, {kind} %new, {kind} %total\n{each if bound else ''}"
        "  %next = add i32 %i, 1\n  %end = icmp eq i32 %next, 32\n"
        f"  br i1 %end, label %done, label %loop\ndone:\n{last}  ret void"
    )
    return (
        f"{_exchange(kind, value)}  %kept = call ptr @opcheck_folded(ptr {function}) {_TOGETHER}\n"
        f"{own}  %r = load {kind}, ptr %mine, align 1\n{ending}\n}}\n{fold}"
    )


def _shuffle(action: str, kind: str) -> str | None:
    if action == "broadcast_first":
        index = "  %to = call i32 @llvm.cttz.i32(i32 %here, i1 false)\n"
    else:
        wide = "  %amount = zext i16 %1 to i32\n"
        if action.startswith("shuffle_and_fill"):
            wide = "  %amount = zext i16 %2 to i32\n  %modulo = zext i16 %3 to i32\n"
        index = wide + {
            "shuffle": "  %to = add i32 %amount, 0\n",
            "broadcast": "  %to = add i32 %amount, 0\n",
            "shuffle_xor": "  %to = xor i32 %lane, %amount\n",
            "shuffle_down": "  %to = add i32 %lane, %amount\n",
            "shuffle_up": "  %to = sub i32 %lane, %amount\n",
            "shuffle_rotate_down": "  %to = add i32 %lane, %amount\n",
            "shuffle_rotate_up": "  %to = sub i32 %lane, %amount\n",
            "shuffle_and_fill_down": _FILL.format("add", "uge", "sub"),
            "shuffle_and_fill_up": _FILL.format("sub", "slt0", "add").replace(
                "icmp slt0 i32 %moved, %modulo", "icmp slt i32 %moved, 0"
            ),
        }.get(action, "")
        if index == wide:
            return None
    if "fill" not in action:
        taken = _take(kind, "%in", "value")
        return f"{_exchange(kind, '%0')}{index}  %in = and i32 %to, 31\n{taken}  ret {kind} %value"
    size, pair = _slot(kind), f"[2 x {kind}]"
    if 2 * size > _WIDEST:
        return None
    return (
        f"  %p = insertvalue {pair} poison, {kind} %0, 0\n  %q = insertvalue {pair} %p, {kind} %1, 1\n"
        f"{_exchange(pair, '%q', size=2 * size)}{index}  %in = and i32 %to, 31\n  %at = mul i32 %in, {2 * size}\n"
        f"  %second = select i1 %out, i32 {size}, i32 0\n  %spot = add i32 %at, %second\n"
        f"  %ptr = getelementptr i8, ptr %all, i32 %spot\n  %value = load {kind}, ptr %ptr, align 1\n"
        f"  ret {kind} %value"
    )  # fmt: skip


#: Within a segment of %modulo lanes: %out where the other lane lies outside, %to its number.
_FILL = """  %place = urem i32 %lane, %modulo
  %base = sub i32 %lane, %place
  %moved = {0} i32 %place, %amount
  %out = icmp {1} i32 %moved, %modulo
  %wrapped = {2} i32 %moved, %modulo
  %within = select i1 %out, i32 %wrapped, i32 %moved
  %to = add i32 %base, %within
"""


#: The row and the columns of a lane's two elements of an 8x8 matrix.
_PLACE = """  %row = call i32 @opcheck.row()
  %column = call i32 @opcheck.column()
  %second = add i32 %column, 1
"""


def _matrices(base: str, _suffixes: list[str], result: str, parameters: Types) -> str | None:
    if not base.startswith("simdgroup_matrix_8x8_"):
        return None
    action = base.removeprefix("simdgroup_matrix_8x8_")
    if action == "multiply_accumulate":
        return _product(result, parameters)
    whole = parameters[0] if action == "store" else result
    vector = VECTOR.fullmatch(whole)
    if vector is None:
        return None
    kind = vector[2]
    two = (
        f"  %v0 = insertelement {whole} zeroinitializer, {kind} %x0, i32 0\n"
        f"  %v1 = insertelement {whole} %v0, {kind} %x1, i32 1\n  ret {whole} %v1"
    )
    if action == "init_filled":
        return two.replace("%x0", "%0").replace("%x1", "%0")
    if action == "init_diag":
        zero = {"half": "0xH0000", "bfloat": "0xR0000", "float": "0.0"}[kind]
        return (
            f"{_PLACE}  %d0 = icmp eq i32 %row, %column\n  %d1 = icmp eq i32 %row, %second\n"
            f"  %x0 = select i1 %d0, {kind} %0, {kind} {zero}\n"
            f"  %x1 = select i1 %d1, {kind} %0, {kind} {zero}\n{two}"
        )
    if action not in {"load", "store"}:
        return None
    at = 1 if action == "store" else 0
    text = _PLACE + _addresses(kind, at, strided=parameters[at + 1].startswith("<"))
    for place in (0, 1):
        if action == "load":
            text += f"  %x{place} = load {kind}, ptr %p{place}\n"
        else:
            text += f"  %x{place} = extractelement {whole} %0, i32 {place}\n"
            text += f"  store {kind} %x{place}, ptr %p{place}\n"
    return text + (two if action == "load" else "  ret void")


def _addresses(kind: str, at: int, *, strided: bool) -> str:
    """Compute the addresses of a lane's two elements, %p0 and %p1.

    Args:
        kind: the elements' type.
        at: the number of the parameter that is the matrix's address.
        strided: whether the parameters behind it are those of MSL 4.0: extents, the strides of columns
            and rows, the origin.  Before, they were the stride of rows, the origin, and a transposition.
    """
    origin = at + (3 if strided else 2)
    text = ""
    if strided:
        text += f"  %sx = extractelement <2 x i64> %{at + 2}, i32 0\n"
        text += f"  %sy = extractelement <2 x i64> %{at + 2}, i32 1\n"
    columns, rows = ("%sx", "%sy") if strided else ("1", f"%{at + 1}")
    rest = f"<2 x i64> %{origin}, i64 {rows}, i64 {columns}, i1 {'false' if strided else f'%{at + 3}'}"
    for place, column in enumerate(("%column", "%second")):
        text += f"  %n{place} = call i64 @opcheck.element(i32 %row, i32 {column}, {rest})\n"
        text += f"  %p{place} = getelementptr {kind}, ptr %{at}, i64 %n{place}\n"
    return text


def _product(result: str, parameters: Types) -> str | None:
    lines = []
    for place, whole in enumerate(parameters):
        vector = VECTOR.fullmatch(whole)
        if vector is None:
            return None
        lines.append(f"  %s{place} = alloca [2 x float]")
        for i in (0, 1):
            lines.append(f"  %e{place}.{i} = extractelement {whole} %{place}, i32 {i}")
            value = f"%e{place}.{i}"
            if vector[2] != "float":
                lines.append(f"  %f{place}.{i} = fpext {vector[2]} {value} to float")
                value = f"%f{place}.{i}"
            lines.append(f"  %q{place}.{i} = getelementptr float, ptr %s{place}, i32 {i}")
            lines.append(f"  store float {value}, ptr %q{place}.{i}")
    lines.append("  %s9 = alloca [2 x float]")
    lines.append("  call void @opcheck_matrix(ptr %s0, ptr %s1, ptr %s2, ptr %s9)")
    out = VECTOR.fullmatch(result)
    if out is None:
        return None
    value = "zeroinitializer"
    for i in (0, 1):
        lines.append(f"  %o{i} = getelementptr float, ptr %s9, i32 {i}")
        lines.append(f"  %l{i} = load float, ptr %o{i}")
        element = f"%l{i}"
        if out[2] != "float":
            lines.append(f"  %t{i} = fptrunc float {element} to {out[2]}")
            element = f"%t{i}"
        lines.append(f"  %w{i} = insertelement {result} {value}, {out[2]} {element}, i32 {i}")
        value = f"%w{i}"
    return "\n".join([*lines, f"  ret {result} {value}"])


_RULES = (_mathematics, _next_after, _integers, _any_all, _dot, _convert, _barriers, _atomics, _simd, _matrices)


def helpers(text: str) -> str:
    """Return the functions of helpers.ll that definitions call, and those that these call."""
    called: dict[str, None] = {}
    todo = _CALLED.findall(text)
    while todo:
        name = todo.pop()
        if name in HELPERS and name not in called:
            called[name] = None
            todo += _CALLED.findall(HELPERS[name])
    return "".join(f"\n{HELPERS[name]}" for name in called)


def declarations(text: str) -> str:
    """Return the declarations of the functions outside of the module that definitions call."""
    called = set(_CALLED.findall(text))
    declared = [f"declare {form.format(f'@{name}')}" for name, form in _OUTSIDE.items() if name in called]
    for name in sorted(set(re.findall(r"call (\S+(?: x \S+)?|<[^>]*>) @(llvm\.[\w.]+)\(([^\n]*)\)", text))):
        result, function, arguments = name
        kinds = ", ".join(re.sub(r"\s+%?\S+$", "", part) for part in split(arguments))
        declared.append(f"declare {result} @{function}({kinds})")
    return "\n".join(dict.fromkeys(declared))


def split(arguments: str) -> list[str]:
    """Split the arguments of a call; a comma within a vector's type is no separator."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(arguments):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(arguments[start:at].strip())
            start = at + 1
    return [*parts, arguments[start:].strip()] if arguments.strip() else []
