"""Bfloats as integers of 16 bits, with their arithmetic in float: LLVM 22 fails on its own on x86-64.

Its optimizer ends the process where a bfloat's bits are taken, and without it comparisons are wrong.  A sum, product
or quotient of two bfloats in float, rounded once more, is what rounding once gives: a float has more than twice the
digits and two.
"""

import re
import struct

_TYPE = r"(?P<t>bfloat|<\d+ x bfloat>)"
_TOKEN = re.compile(r"\bbfloat\b")
#: What each instruction becomes: a call of a function with a name, of operands with types.
_BINARY = re.compile(rf"= (?P<op>fadd|fsub|fmul|fdiv|frem) {_TYPE} (?P<a>[^,]+), (?P<b>.+)")
_COMPARED = re.compile(rf"= fcmp (?P<op>\w+) {_TYPE} (?P<a>[^,]+), (?P<b>.+)")
_NEGATED = re.compile(rf"= fneg {_TYPE} (?P<a>.+)")
_FROM = re.compile(rf"= (?P<op>fpext|fptosi|fptoui) {_TYPE} (?P<a>\S+) to (?P<u>.+)")
_TO = re.compile(rf"= (?P<op>fptrunc|sitofp|uitofp) (?P<u><\d+ x \w+>|\w+) (?P<a>\S+) to {_TYPE}")
_NUMBER = r"(?P<n>[-+]?\d+\.\d*(?:e[-+]?\d+)?|0x[0-9A-F]{16}|0xR[0-9A-F]{4})"
#: Numbers that are bfloats wherever they are, by their type before them, and in a choice by the way.
_NUMBERS = (
    re.compile(r"(?P<before>)(?P<n>0xR[0-9A-F]{4})"),
    re.compile(rf"(?P<before>\bbfloat ){_NUMBER}"),
)
_CHOICE = re.compile(rf"(?P<before>\[ ){_NUMBER}(?=,)")
_ALONE = re.compile(_NUMBER)

#: A float as a bfloat, to the nearest even; where denormals are flushed they are equal to zero.
_NARROW = """  %bits = bitcast F %x to I
  %nan = fcmp uno F %x, zeroinitializer
  %high = lshr I %bits, {16}
  %last = and I %high, {1}
  %bias = add I %last, {32767}
  %sum = add I %bits, %bias
  %near = lshr I %sum, {16}
  %quiet = or I %high, {64}
  %chosen = select B %nan, I %quiet, I %near
  %zero = fcmp oeq F %x, zeroinitializer
  %sign = and I %high, {32768}
  %flushed = select B %zero, I %sign, I %chosen
  %r = trunc I %flushed to S
  ret S %r
"""
_WIDEN = """  %z = zext S %x to I
  %s = shl I %z, {16}
  %r = bitcast I %s to F
  ret F %r
"""
_WIDE, _SHORT = "call F @opcheck.wide.L(S %{})", "call S @opcheck.narrow.L(F %{})"


def soften(text: str) -> str:
    """Return a module in LLVM's assembly without bfloats."""
    if not _TOKEN.search(text):
        return text
    functions: dict[str, str] = {}
    lines = [
        _TOKEN.sub("i16", _line(line, functions)) if _TOKEN.search(line) else line
        for line in text.splitlines()
    ]
    return "\n".join([*lines, *functions.values(), ""])


def _line(line: str, functions: dict[str, str]) -> str:
    for pattern in _NUMBERS:
        line = pattern.sub(_replace_number, line)
    if "= phi bfloat" in line:
        return _CHOICE.sub(_replace_number, line)
    for pattern in (_BINARY, _COMPARED, _NEGATED, _FROM, _TO):
        match = pattern.search(line)
        if match:
            return line[: match.start()] + _call(match, functions)
    return line


def _replace_number(match: re.Match[str]) -> str:
    return match["before"] + _integer(match["n"])


def _integer(number: str) -> str:
    """Return the bits of a bfloat's constant as a signed integer."""
    if number.startswith("0xR"):
        bits = int(number[3:], 16)
    else:
        is_hex = number.startswith("0x")
        packed = bytes.fromhex(number[2:]) if is_hex else struct.pack(">d", float(number))
        (value,) = struct.unpack(">d", packed)
        bits = int.from_bytes(struct.pack(">f", value)[:2], "big")
    return str(bits - (1 << 16) if bits >> 15 else bits)


def _operand(operand: str) -> str:
    match = _ALONE.fullmatch(operand.strip())
    return _integer(match["n"]) if match else operand


def _call(match: re.Match[str], functions: dict[str, str]) -> str:
    """Return the call in place of an instruction, and add what it calls."""
    groups = match.groupdict()
    count = re.match(r"<(\d+) x", groups["t"])
    lanes = int(count[1]) if count else 0
    op, other = groups.get("op") or "fneg", groups.get("u", "")
    name = f"opcheck.{op}.{_label(lanes)}{'.' + re.sub('[^a-z0-9]', '', other) if other else ''}"
    operands = [_operand(groups[each]) for each in "ab" if groups.get(each)]
    result, of = "S", "S"
    narrowed = f"%r = {_SHORT.format('f')}"
    of_float = other in {"float", _kind_of("float", lanes)}
    if match.re is _BINARY:
        body = [f"%f = {op} F %x, %y", narrowed]
    elif match.re is _COMPARED:
        result, name = "B", f"opcheck.fcmp.{op}.{_label(lanes)}"
        # LLVM compares bits, with denormals that the processor takes for zero; a product it compares as a float.
        kind, one = _kind_of("float", lanes), f"@opcheck.one.{_label(lanes)}"
        ones = "splat (float 1.0)" if lanes else "1.0"
        functions[one] = f"{one} = global {kind} {ones}"
        body = [f"%one = load F, ptr {one}", *(f"%{each}0 = fmul F %{each}, %one" for each in "xy")]
        body.append(f"%r = fcmp {op} F %x0, %y0")
    elif match.re is _NEGATED:
        body = ["%r = xor S %a, {-32768}"]
    elif match.re is _FROM:
        result = other
        body = ["%r = bitcast F %x to F" if of_float else f"%r = {op} F %x to {other}"]
    else:
        of = other
        body = ["%f = bitcast F %a to F" if of_float else f"%f = {op} {other} %a to F", narrowed]
    if of == "S" and match.re is not _NEGATED:
        widened = [f"%{to} = {_WIDE.format(source)}" for to, source in zip("xy", "ab", strict=True)]
        body = [*widened[: len(operands)], *body]
    head = ", ".join(f"{of} %{each}" for each in "ab"[: len(operands)])
    lines = "".join(f"  {line}\n" for line in [*body, f"ret {result} %r"])
    for function, made_of, passed, returned in (
        ("opcheck.wide", _WIDEN, "S %x", "F"), ("opcheck.narrow", _NARROW, "F %x", "S")
    ):  # fmt: skip
        full = f"{function}.{_label(lanes)}"
        functions.setdefault(full, _define(full, returned, passed, made_of, lanes))
    functions.setdefault(name, _define(name, result, head, lines, lanes))
    passed = ", ".join(f"{_types(of, lanes)} {operand}" for operand in operands)
    return f"= call {_types(result, lanes)} @{name}({passed})"


def _label(lanes: int) -> str:
    return f"v{lanes}" if lanes else "b"


def _kind_of(kind: str, lanes: int) -> str:
    return f"<{lanes} x {kind}>" if lanes else kind


def _types(text: str, lanes: int) -> str:
    """Put types in place of S, F, I and B, the label in place of L, and constants of each lane."""
    for letter, kind in (("S", "i16"), ("F", "float"), ("I", "i32"), ("B", "i1")):
        text = re.sub(rf"\b{letter}\b", _kind_of(kind, lanes), text)
    text = text.replace(".L(", f".{_label(lanes)}(")
    if not lanes:
        text = text.replace("zeroinitializer", "0.0")
        return re.sub(r"\{(-?\d+)\}", r"\1", text)

    def splat(match: re.Match[str]) -> str:
        kind = "i16" if match[1] == "-32768" else "i32"
        return f"splat ({kind} {match[1]})"

    return re.sub(r"\{(-?\d+)\}", splat, text)


def _define(name: str, result: str, parameters: str, body: str, lanes: int) -> str:
    head = f"define internal {result} @{name}({parameters}) nounwind"
    return f"{_types(head, lanes)} {{\n{_types(body, lanes)}}}\n"
