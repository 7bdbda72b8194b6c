"""Bfloats as integers of 16 bits, with their arithmetic in float: LLVM 22 fails on its own on x86-64.

Its optimizer ends the process where a bfloat's bits are taken, and without it comparisons are wrong.  A sum, product
or quotient of two bfloats in float, rounded once more, is what rounding once gives: a float has more than twice the
digits and two.
"""

import re
import struct
from typing import NamedTuple

_TYPE = r"(?P<t>bfloat|<\d+ x bfloat>)"
_TOKEN = re.compile(r"\bbfloat\b")
#: By kind the instructions that become calls: of operands a and b, in the type t, from or to the type u.
_INSTRUCTIONS = {
    kind: re.compile(pattern)
    for kind, pattern in {
        "binary": rf"= (?P<op>fadd|fsub|fmul|fdiv|frem) {_TYPE} (?P<a>[^,]+), (?P<b>.+)",
        "compare": rf"= fcmp (?P<op>\w+) {_TYPE} (?P<a>[^,]+), (?P<b>.+)",
        "negate": rf"= (?P<op>fneg) {_TYPE} (?P<a>.+)",
        "from": rf"= (?P<op>fpext|fptosi|fptoui) {_TYPE} (?P<a>\S+) to (?P<u>.+)",
        "to": rf"= (?P<op>fptrunc|sitofp|uitofp) (?P<u><\d+ x \w+>|\w+) (?P<a>\S+) to {_TYPE}",
    }.items()
}
_NUMBER = r"(?P<n>[-+]?\d+\.\d*(?:e[-+]?\d+)?|0x[0-9A-F]{16}|0xR[0-9A-F]{4})"
#: Numbers that are bfloats wherever they are, by their type before them, and in a choice by the way.
_NUMBERS = (re.compile(r"(?P<before>)(?P<n>0xR[0-9A-F]{4})"), re.compile(rf"(?P<before>\bbfloat ){_NUMBER}"))
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
    lines = [_TOKEN.sub("i16", _line(line, functions)) if _TOKEN.search(line) else line for line in text.splitlines()]
    return "\n".join([*lines, *functions.values(), ""])


def _line(line: str, functions: dict[str, str]) -> str:
    for pattern in _NUMBERS:
        line = pattern.sub(_replace_number, line)
    if "= phi bfloat" in line:
        return _CHOICE.sub(_replace_number, line)
    for kind, pattern in _INSTRUCTIONS.items():
        match = pattern.search(line)
        if match:
            return line[: match.start()] + _call(kind, match, functions)
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


class SoftFunction(NamedTuple):
    """A function in place of an instruction; types are letters that ``_types`` replaces."""

    name: str
    #: the types of each operand and of the result
    operand: str
    result: str
    lines: list[str]


def _function(kind: str, op: str, other: str, lanes: int, functions: dict[str, str]) -> SoftFunction:
    """Return the function that an instruction becomes, of %x and %y in float or of %a, and add its constants."""
    name = f"opcheck.{op}.{_label(lanes)}{'.' + re.sub('[^a-z0-9]', '', other) if other else ''}"
    narrowed = f"%r = {_SHORT.format('f')}"
    of_float = other in {"float", _kind_of("float", lanes)}
    if kind == "binary":
        return SoftFunction(name, "S", "S", [f"%f = {op} F %x, %y", narrowed])
    if kind == "negate":
        return SoftFunction(name, "S", "S", ["%r = xor S %a, {-32768}"])
    if kind == "from":
        line = "%r = bitcast F %x to F" if of_float else f"%r = {op} F %x to {other}"
        return SoftFunction(name, "S", other, [line])
    if kind == "to":
        line = "%f = bitcast F %a to F" if of_float else f"%f = {op} {other} %a to F"
        return SoftFunction(name, other, "S", [line, narrowed])
    # LLVM compares bits, with denormals that the processor takes for zero; a product it compares as a float.
    factor = f"@opcheck.one.{_label(lanes)}"
    ones = "splat (float 1.0)" if lanes else "1.0"
    functions[factor] = f"{factor} = global {_kind_of('float', lanes)} {ones}"
    products = (f"%{each}0 = fmul F %{each}, %one" for each in "xy")
    lines = [f"%one = load F, ptr {factor}", *products, f"%r = fcmp {op} F %x0, %y0"]
    return SoftFunction(f"opcheck.fcmp.{op}.{_label(lanes)}", "S", "B", lines)


def _call(kind: str, match: re.Match[str], functions: dict[str, str]) -> str:
    """Return the call in place of an instruction, and add what it calls."""
    groups = match.groupdict()
    count = re.match(r"<(\d+) x", groups["t"])
    lanes = int(count[1]) if count else 0
    operands = [_operand(groups[each]) for each in "ab" if groups.get(each)]
    called = _function(kind, groups["op"], groups.get("u", ""), lanes, functions)
    lines = called.lines
    if called.operand == "S" and kind != "negate":
        widened = [f"%{to} = {_WIDE.format(source)}" for to, source in zip("xy", "ab", strict=True)]
        lines = [*widened[: len(operands)], *lines]
    head = ", ".join(f"{called.operand} %{each}" for each in "ab"[: len(operands)])
    body = "".join(f"  {line}\n" for line in [*lines, f"ret {called.result} %r"])
    for function, conversion, parameter, returned in (
        ("opcheck.wide", _WIDEN, "S %x", "F"), ("opcheck.narrow", _NARROW, "F %x", "S")
    ):  # fmt: skip
        full = f"{function}.{_label(lanes)}"
        functions.setdefault(full, _define(full, returned, parameter, conversion, lanes))
    functions.setdefault(called.name, _define(called.name, called.result, head, body, lanes))
    passed = ", ".join(f"{_types(called.operand, lanes)} {operand}" for operand in operands)
    return f"= call {_types(called.result, lanes)} @{called.name}({passed})"


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
