"""The compiled Metal kernels that an operator's code can reach, where it computes by nothing else.

The reader follows the calls of each registered MPS kernel through the code of ``libtorch_cpu.dylib``, through the
DispatchStubs whose MPS pointer is set and into Objective-C blocks.  It collects the beginnings of kernels' names, and
notes whether the code can reach an MPSGraph or another operator.  It executes nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from opcheck.data.wheels.dispatcher import registrations
from opcheck.data.wheels.machine_code import Address, run
from opcheck.data.wheels.stubs import mps_kernels
from opcheck.kernels.kernel_names import WORDS, Named, parse
from scripts.wheels.bodies import branches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from opcheck.data.wheels.image import Image

#: at::_ops::<operator>: a call through the dispatcher.
_OPERATOR = re.compile(r"__ZN2at4_ops(?P<length>\d+)(?P<rest>\w+)")
#: Functions of ATen and of the standard library that pass a lambda on, blocks, and code that the compiler outlined.
_FOLLOWED = re.compile(r"_+ZZ?NK?R?2at|__ZNSt3__1|_?OUTLINED_FUNCTION|_+Z.*_block_invoke")
#: Their calls are the same for every operator.  TensorIterator casts inputs on the CPU only
#: (aten/src/ATen/TensorIterator.cpp, compute_types).
_LEFT = re.compile(
    r"TensorIterator|DispatchStub|2at3cpu|2at4meta|2at8internal|2at7Context|2at4impl|Functionalization"
)
_GRAPH = re.compile(r"unMPSGraph|executeMPSGraph|MPSCachedGraph")
#: Operators that make, resize or fill memory and compute nothing: the kernel still decides.
_MEMORY = re.compile(
    r"(?:empty|new_empty|resize|contiguous|expand|view|squeeze|unsqueeze|as_strided|fill_|zero_|set_|copy_|is_same_size|"
    r"result_type|item)\w*"
)
#: TensorIterator gives this function its operands; it casts numbers of float64 alone
#: (aten/src/ATen/native/mps/OperationUtils.mm, exec_binary_kernel).
_BINARY = "MetalShaderLibrary18exec_binary_kernel"
_INDICES = frozenset({"int32", "int64"})
_DEPTH = 9
#: The longest string that C++ keeps inside of the object (libc++, 64 bits) and builds from numbers in the code.
_WORD = 8
_TYPE = re.compile(rf"_({'|'.join(sorted(WORDS, key=len, reverse=True))})(?=_|$)")


class Route(NamedTuple):
    """The beginnings of the names of the kernels that an operator can reach, and the checks' texts beside them."""

    kernels: tuple[str, ...]
    texts: tuple[str, ...]
    #: it passes two tensors to the function that casts where their dtypes differ
    is_binary: bool


class _Facts(NamedTuple):
    calls: frozenset[int]
    strings: frozenset[str]
    operators: frozenset[str]
    graph: bool
    is_binary: bool


def bases(names: Iterable[str]) -> dict[str, set[str]]:
    """Return the names of kernels up to the layout or the first dtype, with the dtypes of the kernels that begin so.

    The host code of unary and binary kernels passes the part alone, and a function for all of them adds the layout.
    """
    dtypes: dict[str, set[str]] = defaultdict(set)
    formed: dict[str, list[tuple[str, Named]]] = defaultdict(list)
    for name in names:
        if match := _TYPE.search(name):
            kernel, base = parse(name), name[: match.start()]
            if kernel.form:
                formed[kernel.operation].append((base, kernel))
            else:
                dtypes[base] |= {WORDS[word] for word in _TYPE.findall(name)}
    for operation, kernels in formed.items():
        seconds = {kernel.dtypes[1] for _, kernel in kernels if len(kernel.dtypes) > 1}
        for base, kernel in kernels:
            # The output is named first, except where it is cast, or where the second is the dtype of an index.
            is_first = len(kernel.dtypes) == 1 or "castout" in kernel.form or seconds <= _INDICES
            is_reduction = kernel.form.startswith("inner")
            at = slice(None) if is_reduction else slice(1) if is_first else slice(1, 2)
            for key in (operation, base):
                dtypes[key] |= {*kernel.dtypes[at]} & {*WORDS.values()}
    return dict(dtypes)


def built(route: Route, dtypes: Mapping[str, set[str]]) -> set[str]:
    """Return the dtypes of all kernels that begin like one of the route's, whatever layout follows in their names."""
    reached: set[str] = set()
    for base, of_base in dtypes.items():
        if any(base == name or base.startswith(f"{name}_") for name in route.kernels):
            reached |= of_base
    return reached


def routes(image: Image, names: Iterable[str]) -> dict[str, Route]:
    """Return the operators that compute by compiled Metal kernels alone.

    Args:
        image: ``libtorch_cpu.dylib``.
        names: of its compiled kernels.

    Raises:
        OpListError: the registrations of the library cannot be read.
    """
    known = bases(names)
    reader = _Reader(image)
    results = {}
    for registration in registrations(image):
        if registration.namespace == "aten" and registration.name and registration.key == "MPS":
            route = reader.route(registration.addresses, known)
            if route:
                results[f"aten::{registration.name.removeprefix('aten::')}"] = route
    return results


class _Reader:
    """Reads each function of a library once."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._facts: dict[int, _Facts] = {}
        self._stubs = mps_kernels(image)

    def route(self, addresses: Iterable[int], known: Mapping[str, set[str]]) -> Route | None:
        seen = {at for at in addresses if self._image.in_text(at)}
        level = list(seen)
        strings: set[str] = set()
        is_binary = False
        for _ in range(_DEPTH):
            below: set[int] = set()
            for at in level:
                facts = self._read(at)
                if facts.graph or not all(map(_MEMORY.fullmatch, facts.operators)):
                    return None
                strings |= facts.strings
                below |= facts.calls
                is_binary |= facts.is_binary
            level = sorted(below - seen)
            seen |= below
        kernels = {
            name
            for name in known
            if {name, f"{name}_"} & strings or any(s.startswith(f"{name}_{{") for s in strings)
        }
        texts = sorted(text for text in strings if "not implemented for" in text)
        return Route(tuple(sorted(kernels)), tuple(texts), is_binary) if kernels else None

    def _read(self, at: int) -> _Facts:
        if at not in self._facts:
            calls: set[int] = set()
            strings: set[str] = set()
            operators: set[str] = set()
            graph = False
            is_binary = any(_BINARY in name for name in self._image.names_at(at))
            code = self._image.code(at)
            addresses = (event.value for event in run(code, at) if isinstance(event, Address))
            for target in (*addresses, *branches(code, at)):
                if not self._image.in_text(target):
                    if target in self._stubs:
                        calls.add(self._stubs[target])
                    else:
                        strings.add(self._image.string(target) or "")
                    continue
                symbol = next(iter(self._image.names_at(target)), "")
                graph |= bool(_GRAPH.search(symbol))
                if (match := _OPERATOR.match(symbol)) and not is_binary:
                    operators.add(match["rest"][: int(match["length"])])
                elif _FOLLOWED.match(symbol) and not _LEFT.search(symbol.partition("E")[0]):
                    calls.add(target)
            strings |= set(immediates(code))
            self._facts[at] = _Facts(
                frozenset(calls), frozenset(strings), frozenset(operators), graph, is_binary
            )
        return self._facts[at]


def immediates(code: bytes) -> Iterator[str]:
    """Yield the short names that the code builds in registers (Arm A64: MOVZ and MOVK, imm16 at bit 5)."""
    words = np.frombuffer(code[: len(code) & ~3], dtype="<u4")
    kind = words & np.uint32(0x7F800000)
    registers: dict[int, int] = {}
    values = []
    for word in words[(kind == 0x52800000) | (kind == 0x72800000)].tolist():
        register, shift = word & 31, 16 * (word >> 21 & 3)
        extends = word & 0x20000000
        old = registers.pop(register, 0)
        if not extends:
            # A later MOVZ begins another value; what a MOVK extends is only a part of one.
            values.append(old)
            old = 0
        registers[register] = old & ~(0xFFFF << shift) | (word >> 5 & 0xFFFF) << shift
    for value in (*values, *registers.values()):
        text = value.to_bytes(_WORD, "little").rstrip(b"\0")
        if len(text) > 1 and re.fullmatch(rb"[a-z0-9_]+", text):
            yield text.decode()
