"""Bfloats as integers of 16 bits, with their arithmetic in float: LLVM 22 fails on its own on x86-64.

Its optimizer ends the process where a bfloat's bits are taken, and without it comparisons are wrong.  A sum, product
or quotient of two bfloats in float, rounded once more, is what rounding once gives: a float has more than twice the
digits and two.
"""

import re
import struct

from opcheck.kernels.ir_templates import fill

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
#: What no name of a function has.
_UNNAMED = re.compile("[^a-z0-9]")

#: The numbers of the functions here, as words of their templates.
_CONSTANTS = {f"i{number}": number for number in (1, 16, 64, 32767, 32768)}


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


def _call(kind: str, match: re.Match[str], functions: dict[str, str]) -> str:
    """Return the call in place of an instruction, and add what it calls."""
    groups = match.groupdict()
    count = re.match(r"<(\d+) x", groups["t"])
    lanes, op, other = int(count[1]) if count else 0, groups["op"], groups.get("u") or ""
    label = f"v{lanes}" if lanes else "b"
    types = {
        word: f"<{lanes} x {element}>" if lanes else element
        for word, element in {"S": "i16", "F": "float", "I": "i32", "B": "i1"}.items()
    }
    name = f"opcheck.{'fcmp.' * (kind == 'compare')}{op}.{label}{other and '.'}{_UNNAMED.sub('', other)}"
    words = {
        **types,
        **{word: f"splat (i32 {number})" if lanes else number for word, number in _CONSTANTS.items()},
        "zero": "zeroinitializer" if lanes else "0.0",
        "sign": "splat (i16 -32768)" if lanes else "-32768",
        "label": label,
        "name": name,
        "other": other,
        "op": "bitcast" if other == types["F"] else op,
    }
    for helper in ("wide", "narrow"):
        functions.setdefault(helper + label, fill(f"bfloat.{helper}", **words))
    if kind == "compare":
        ones = "splat (float 1.0)" if lanes else "1.0"
        functions["one" + label] = f"@opcheck.one.{label} = global {types['F']} {ones}"
    functions.setdefault(name, fill(f"bfloat.{kind}", **words))
    passed = ", ".join(
        f"{other if kind == 'to' else types['S']} {_operand(groups[each])}" for each in "ab" if groups.get(each)
    )
    result = {"from": other, "compare": types["B"]}.get(kind, types["S"])
    return f"= call {result} @{name}({passed})"
