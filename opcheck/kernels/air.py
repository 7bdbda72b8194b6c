"""Reads AIR: a kernel's arguments, from the metadata, and its code without the parts that vary.

``!air.kernel`` names one node per kernel: the function, its outputs, its arguments.  An argument's
node is its index, its kind, and then keys with their values (Metal's own, in no public document;
seen alike in every release from 2.7.1 to 2.15.0).
"""

import hashlib
import re
from typing import Any

import msgspec

from opcheck.common.errors import explain_missing

#: ``!12 = !{...}``, and the text in the braces.
_NODE = re.compile(r"^!(\d+) = (?:distinct )?!\{(.*)\}$", re.MULTILINE)
_KERNEL = re.compile(r"^!air\.kernel = !\{!(\d+)", re.MULTILINE)
#: An operand: a string, another node, a number, or a function.
_OPERAND = re.compile(r'!"((?:[^"\\]|\\.)*)"|!(\d+)|i\d+ (-?\d+)|ptr @([^,}]+)')
_LOCATION, _SPACE, _SIZE = "air.location_index", "air.address_space", "air.arg_type_size"
_FIELDS = "air.struct_type_info"
_INDIRECT = "air.indirect_argument"
_BUFFERS = ("air.buffer", "air.indirect_buffer")
_FLUSHED = '!"air.compile.denorms_disable"'
#: The address spaces of memory that no kernel writes to, and of threadgroup memory.
CONSTANT, THREADGROUP = 2, 3


class Field(msgspec.Struct, frozen=True):
    """A field of a struct: its offset and size in bytes, its length as an array, type and name."""

    offset: int
    size: int
    length: int
    type: str
    name: str


class KernelParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a kernel: a buffer, or a position of the thread."""

    kind: str
    name: str = ""
    type: str = ""
    location: int = -1
    space: int = 0
    size: int = 0
    written: bool = False
    fields: tuple[Field, ...] = ()

    @property
    def is_buffer(self) -> bool:
        """True if the host binds memory to the argument."""
        return self.kind in _BUFFERS


def parse(bitcode: bytes) -> Any:
    """Parse a kernel's bitcode with LLVM.

    Raises:
        UsageError: llvmlite is not installed.
        RuntimeError: the bitcode is damaged.
    """
    return binding().parse_bitcode(bitcode)


def binding() -> Any:
    """Return the module ``llvmlite.binding``.

    Raises:
        UsageError: llvmlite is not installed.
    """
    hint = "pip install 'opcheck[kernels]'"
    with explain_missing("reading kernels needs", "llvmlite", context="opcheck kernels", hint=hint):
        import llvmlite.binding as llvm
    return llvm


def arguments(text: str) -> tuple[KernelParameter, ...]:
    """Return the arguments of a module's kernel, in the order of its parameters.

    Args:
        text: the module in LLVM's assembly.

    Raises:
        ValueError: the module has no kernel.
    """
    kernel = _KERNEL.search(text)
    if kernel is None:
        raise ValueError("the module has no !air.kernel")
    nodes = {match[1]: match[2] for match in _NODE.finditer(text)}
    _, _, listed, *_ = _operands(nodes[kernel[1]])
    return tuple(_argument(nodes[str(number)], nodes) for number in _operands(nodes[str(listed)]))


def is_flushed(text: str) -> bool:
    """Return True if a module was compiled so that denormal numbers of float32 may become zero.

    Args:
        text: the module in LLVM's assembly; ``!air.compile_options`` lists the option.
    """
    return _FLUSHED in text


def _operands(node: str) -> list[str | int]:
    operands: list[str | int] = []
    for string, reference, number, function in _OPERAND.findall(node):
        operands.append(int(reference or number) if reference or number else string or function)
    return operands


def _argument(node: str, nodes: dict[str, str]) -> KernelParameter:
    _, kind, *rest = _operands(node)
    values: dict[str, str | int] = {}
    for place, operand in enumerate(rest[:-1]):
        if isinstance(operand, str) and operand.startswith("air."):
            values[operand] = rest[place + 1]
    fields = _fields(nodes[str(values[_FIELDS])], nodes) if _FIELDS in values else ()
    return KernelParameter(
        kind=str(kind),
        name=str(values.get("air.arg_name", "")),
        type=str(values.get("air.arg_type_name", "")),
        location=int(values.get(_LOCATION, -1)),
        space=int(values.get(_SPACE, 0)),
        size=int(values.get(_SIZE, 0)),
        written="air.read_write" in rest or "air.write" in rest,
        fields=fields,
    )


def _fields(node: str, nodes: dict[str, str]) -> tuple[Field, ...]:
    """Return the fields of a struct's node: offset, size, array length, type, name of each.

    The node of a field that is a struct comes before these five; its fields take the struct's
    place.  A ``metal::array`` is a struct of one array, ``__elems``: the field takes its length and
    its type.
    """
    operands, fields, at = _operands(node), [], 0
    while at < len(operands):
        nested: tuple[Field, ...] = ()
        if operands[at] == _FIELDS:
            nested = _fields(nodes[str(operands[at + 1])], nodes)
            at += 2
        offset, size, length, kind, name = operands[at : at + 5]
        at += 5
        if len(nested) == 1 and nested[0].length:
            length, kind = nested[0].length, nested[0].type
        elif length:
            size = int(size) * int(length)  # of an array of C the node has the size of one element
        if operands[at : at + 1] == [_INDIRECT]:
            at += 2
        if len(nested) > 1 and not length:
            fields += [msgspec.structs.replace(field, offset=int(offset) + field.offset) for field in nested]
            continue
        fields.append(Field(int(offset), int(size), int(length), str(kind), str(name)))
    return tuple(fields)


_METADATA = re.compile(r", ![a-z._]+ !\d+|^!.*$|^; .*$|^source_filename.*$|^target .*$", re.MULTILINE)
_NUMBERED = re.compile(r" #\d+")


def code_digest(text: str) -> str:
    """Return a digest of a module's text without metadata and attribute numbers."""
    code = _NUMBERED.sub("", _METADATA.sub("", text))
    lines = (line for line in code.splitlines() if line and not line.startswith("attributes"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
