"""The functions of AIR as LLVM assembly for this machine, each made from its name and signature.

Mathematical functions are this machine's, evaluated in double and rounded once: no GPU has them so
exact, and what hangs on their last digits is not to be judged by them.  What Metal leaves open is
defined here all the same, so that nothing traps: division by zero gives 0, a float that fits no
integer is clamped.
"""

import re
from pathlib import Path

from opcheck.common import documents
from opcheck.kernels.ir_templates import TEMPLATES, fill

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
_CALLED = re.compile(r"\bcall [^@\n]*@([\w.]+)\(")
_FUNCTION = re.compile(r"^define .*?@(?P<name>[\w.]+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_DECLARATION = re.compile(r"^declare .*?@(?P<name>\w+)\(.*$", re.MULTILINE)
_TEXT = documents.read_text(Path(__file__).with_name("helpers.ll"))
#: The functions of helpers.ll by their names, and the declarations of those outside of the module.
HELPERS, _OUTSIDE = ({match["name"]: match[0] for match in form.finditer(_TEXT)} for form in (_FUNCTION, _DECLARATION))


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
    function = base if base in _OUTSIDE else f"opcheck.{base}"
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
    bits = 8 * _BYTES[result]
    return fill("nextafter", T=result, bits=f"i{bits}", lowest=-(1 << bits - 1))


def _integers(base: str, suffixes: list[str], result: str, _parameters: Types) -> str | None:
    if not re.fullmatch(r"i\d+", result) or f"integer.{base}" not in TEMPLATES:
        return None
    sign = suffixes[0] if len(suffixes) > 1 else "s"
    if (base, sign) == ("abs", "u"):
        return f"  ret {result} %0"
    bits, extend = int(result[1:]), "sext" if sign == "s" else "zext"
    return fill(f"integer.{base}", T=result, S=sign, W=f"i{2 * bits}", extend=extend, bits=bits)


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
        wide = f"  %f = {_cast('fpext', kind)} {kind} %0 to float\n"
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
    if base != "atomic" or suffixes[0] not in {"global", "local"}:
        return None
    action = suffixes[1]
    kind = {"load": (result,), "cmpxchg": parameters[2:]}.get(action, parameters[1:])[0]
    if f"atomic.{action}" in TEMPLATES:
        return fill(f"atomic.{action}", T=kind, bits=f"i{8 * _BYTES[kind]}")
    floating = kind in _FLOATS
    if action in {"add", "sub", "and", "or", "xor"}:
        change = f"{'f' * (floating and action in {'add', 'sub'})}{action} {kind} %old, %1"
    elif action in {"min", "max"}:
        sign = suffixes[2] if len(suffixes) > 3 else "s"
        name = f"{sign}{action}.{kind}" if not floating else f"{action}num.f32"
        change = f"call {kind} @llvm.{name}({kind} %old, {kind} %1)"
    elif action == "xchg":
        change = f"bitcast {kind} %1 to {kind}"
    else:
        return None
    return fill("atomic.change", T=kind, change=change, returned="void" if result == "void" else f"{kind} %old")


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
    return fill("exchange", T=kind, value=value, size=size or _slot(kind))


def _take(kind: str, index: str, name: str) -> str:
    return fill("take", T=kind, index=index, name=name, size=_slot(kind))


#: Where a fold of integers begins, and a fold of floats.
_IDENTITIES = {"sum": ("0", "-0.0"), "product": ("1", "1.0"), "and": ("-1", ""), "or": ("0", ""), "xor": ("0", "")}
#: What fmin and fmax leave out.
_NAN = {"half": "0xH7E00", "bfloat": "0xR7FC0", "float": "0x7FF8000000000000"}


def _identity(name: str, kind: str, sign: str) -> str:
    if name in _IDENTITIES:
        return _IDENTITIES[name][kind in _FLOATS]
    if kind in _FLOATS:
        return _NAN[kind]
    half = 1 << int(kind[1:]) - 1
    least, most = (0, -1) if sign == "u" else (-half, half - 1)
    return str(most if name == "min" else least)


def _combine(name: str, kind: str, sign: str) -> str:
    floating = kind in _FLOATS
    if name in _IDENTITIES:
        instruction = {"sum": "add", "product": "mul"}.get(name, name)
        return f"  %new = {'f' * floating}{instruction} {kind} %total, %x"
    function = f"{name}num" if floating else f"{sign or 's'}{name}"
    if kind == "bfloat":
        return fill("fold.bfloat", function=function)
    suffix = {"half": "f16", "float": "f32"}.get(kind, kind)
    return f"  %new = call {kind} @llvm.{function}.{suffix}({kind} %total, {kind} %x)"


def _simd(base: str, suffixes: list[str], _result: str, parameters: Types) -> str | None:
    """Define what the lanes of a simdgroup do together, by one exchange of values."""
    if not base.startswith("simd_"):
        return None
    sign = suffixes[0] if len(suffixes) > 1 else ""
    action = base.removeprefix("simd_")
    kind = parameters[0] if parameters else "i32"
    if action == "is_first":
        return f"{_exchange('i32', '0')}\n{fill('is_first')}"
    if action in {"any", "all"}:
        name = "or" if action == "any" else "and"
        ending = "  %b = trunc i32 %r to i1\n  ret i1 %b"
        return f"  %wide = sext i1 %0 to i32\n{_fold('i32', '%wide', name, '', '', ending)}"
    if action.startswith(("shuffle", "broadcast")):
        return _shuffle(action, kind)
    name = action.rpartition("_")[2]
    bound = {"prefix_exclusive": "ult", "prefix_inclusive": "ule"}.get(action.rpartition("_")[0], "")
    if name not in {*_IDENTITIES, "min", "max"} or kind.startswith("<") or (name != action and not bound):
        return None
    return _fold(kind, "%0", name, sign, bound, f"  ret {kind} %r")


def _fold(kind: str, value: str, name: str, sign: str, bound: str, ending: str) -> str:
    """Fold the values of the active lanes into %r: all of them, or of prefixes those before a lane."""
    step, prefix = _slot(kind), "%total" if bound == "ult" else "%f"
    return fill(
        "fold",
        T=kind,
        exchange=_exchange(kind, value),
        function=f"@opcheck.fold.{name}{sign}{bound}.{kind}",
        step=step if bound else 0,
        ending=ending,
        identity=_identity(name, kind, sign),
        taken=_take(kind, "%i", "x"),
        combined=_combine(name, kind, sign),
        each=fill("fold.prefix", T=kind, step=step, prefix=prefix) if bound else "",
        last="" if bound else f"  store {kind} %f, ptr %kept, align 1",
    )


def _shuffle(action: str, kind: str) -> str | None:
    if f"lane.{action}" not in TEMPLATES:
        return None
    index, size = fill(f"lane.{action}"), _slot(kind)
    if "fill" not in action:
        taken = _take(kind, "%in", "value")
        return fill("shuffled", T=kind, exchange=_exchange(kind, "%0"), index=index, taken=taken)
    if 2 * size > _WIDEST:
        return None
    exchange = _exchange(f"[2 x {kind}]", "%q", 2 * size)
    return fill("filled", T=kind, exchange=exchange, index=index, both=2 * size, size=size)


def _matrices(base: str, _suffixes: list[str], result: str, parameters: Types) -> str | None:
    if not base.startswith("simdgroup_matrix_8x8_"):
        return None
    action = base.removeprefix("simdgroup_matrix_8x8_")
    whole = parameters[0] if action == "store" else result
    vector = VECTOR.fullmatch(whole)
    if vector is None:
        return None
    kind = vector[2]
    if action == "multiply_accumulate":
        return _product(whole, kind, parameters)
    if action == "init_filled":
        return fill("matrix.two", T=whole, K=kind, first="%0", second="%0")
    two = fill("matrix.two", T=whole, K=kind, first="%x0", second="%x1")
    if action == "init_diag":
        zero = {"half": "0xH0000", "bfloat": "0xR0000", "float": "0.0"}[kind]
        return "\n".join([fill("matrix.place"), fill("matrix.diagonal", K=kind, zero=zero), two])
    if action not in {"load", "store"}:
        return None
    at = 1 if action == "store" else 0
    addresses = _addresses(kind, at, strided=parameters[at + 1].startswith("<"))
    moved = fill(f"matrix.{action}", T=whole, K=kind)
    return "\n".join([fill("matrix.place"), *addresses, moved, *([two] if action == "load" else [])])


def _addresses(kind: str, at: int, *, strided: bool) -> list[str]:
    """Compute the addresses of a lane's two elements, %p0 and %p1.

    Args:
        kind: the elements' type.
        at: the number of the parameter that is the matrix's address.
        strided: whether the parameters behind it are those of MSL 4.0: extents, the strides of columns
            and rows, the origin.  Before, they were the stride of rows, the origin, and a transposition.
    """
    if not strided:
        words = {"rows": f"%{at + 1}", "columns": "1", "origin": f"%{at + 2}", "swapped": f"%{at + 3}"}
        return [fill("matrix.addresses", K=kind, at=at, **words)]
    words = {"rows": "%sy", "columns": "%sx", "origin": f"%{at + 3}", "swapped": "false"}
    return [fill("matrix.strides", at=at + 2), fill("matrix.addresses", K=kind, at=at, **words)]


def _product(result: str, kind: str, parameters: Types) -> str | None:
    vectors = [VECTOR.fullmatch(whole) for whole in parameters]
    operands = [
        fill("matrix.operand", at=at, T=vector[0], K=vector[2], extend=_cast("fpext", vector[2]))
        for at, vector in enumerate(vectors)
        if vector
    ]
    if len(operands) < len(vectors):
        return None
    return "\n".join([*operands, fill("matrix.product", T=result, K=kind, truncate=_cast("fptrunc", kind))])


def _cast(instruction: str, kind: str) -> str:
    """Return what converts a type to float, or float to it."""
    return instruction if kind != "float" else "bitcast"


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
    declared = [declaration for name, declaration in _OUTSIDE.items() if name in called]
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
