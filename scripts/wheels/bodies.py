"""The operators that the C++ body of each composite calls, over all of its branches."""

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from opcheck.data.wheels.column import Registration, registrations
from opcheck.data.wheels.image import Image

#: in the order in which the dispatcher tries them (c10/core/DispatchKeySet.cpp, OperatorEntry.cpp).
KEYS = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")

#: torchgen's Operators.cpp: every call through the dispatcher is at::_ops::<operator>_<overload>::call.
OPERATOR = re.compile(r"__ZN2at4_ops(?P<length>\d+)(?P<rest>\w+)")
#: the kernel that the dispatcher enters with unboxed arguments.
_ENTRY = "wrap_kernel_functor_unboxed_"
#: a function of ATen (static functions, lambdas and methods of Tensor too), or code that the compiler outlined.
_FOLLOWED = re.compile(r"__ZZ?NK?R?2at|_?OUTLINED_FUNCTION")
#: their calls are the same in every body, or happen only on other devices.
_LEFT = re.compile(
    r"TensorIterator|DispatchStub|2at3cpu|2at4meta|2at8internal|2at7Context|2at7tracer|2at4impl|Functionalization"
)
#: entry, wrapper, body, a helper and a helper of that.
_DEPTH = 6


def bodies(image: Image, operators: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the operators that each composite of a library calls, sorted, by overload.

    Args:
        image: ``libtorch_cpu.dylib``.
        operators: the overloads to recognise, such as ``aten::add.Tensor``.

    Raises:
        OpListError: the registrations of the library cannot be read.
    """
    named = {op.partition("::")[2].replace(".", "_"): op for op in operators}
    entries: dict[str, tuple[int, int]] = {}
    for name, registration in native(image, lambda key: key in KEYS):
        rank = KEYS.index(registration.key)
        for at in unboxed(image, registration):
            if rank <= entries.get(name, (len(KEYS), 0))[0]:
                entries[name] = rank, at
    return {name: tuple(sorted(_called(image, at, named) - {name})) for name, (_, at) in sorted(entries.items())}


def _called(image: Image, entry: int, named: dict[str, str]) -> set[str]:
    called: set[str] = set()

    def follows(_: int, target: int) -> bool:
        symbols = image.names_at(target) if image.in_text(target) else ()
        operator = _operator(symbols)
        if operator is not None:
            called.add(named.get(operator, operator))
        return operator is None and bool(symbols) and _is_part(symbols[0])

    walk({entry}, lambda at: branches(image.code(at), at), follows, _DEPTH)
    return called


def walk(
    entries: Iterable[int],
    targets: Callable[[int], Iterable[int]],
    follows: Callable[[int, int], bool],
    depth: int = 1000,
) -> set[int]:
    """Return the functions that the entries lead to, with the entries.

    Args:
        entries: where to start.
        targets: what a function calls.
        follows: called with a function and one that it calls: whether to go on from there.
        depth: how many calls deep.
    """
    level, seen = {*entries}, set()
    for _ in range(depth):
        seen |= level
        level = {to for at in level for to in targets(at) if follows(at, to)} - seen
    return seen


def native(image: Image, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Registration]]:
    """Yield the overloads of ATen that a library registers for some dispatch keys, as ``aten::add.Tensor``."""
    for each in registrations(image):
        if each.namespace == "aten" and each.name and wanted(each.key):
            yield f"aten::{each.name.removeprefix('aten::')}", each


def unboxed(image: Image, registration: Registration) -> list[int]:
    """Return the functions that the dispatcher enters with unboxed arguments."""
    addresses = sorted(registration.addresses)
    return [at for at in addresses if any(_ENTRY in name for name in image.names_at(at))]


def _operator(symbols: tuple[str, ...]) -> str | None:
    for symbol in symbols:
        match = OPERATOR.match(symbol)
        if match:
            length = int(match["length"])
            name, method = match["rest"][:length], match["rest"][length:]
            if method.startswith(("4callE", "10redispatchE")):
                return name
    return None


def _is_part(symbol: str) -> bool:
    # Only the function's own name counts: the types of its arguments follow the first "E".
    own = symbol.partition("E")[0]
    return bool(_FOLLOWED.match(symbol)) and not _LEFT.search(own)


def branches(code: bytes, start: int) -> Iterator[int]:
    """Yield the targets of ``bl`` and ``b`` outside of the function (Arm A64: imm26 in words)."""
    words = np.frombuffer(code[: len(code) & ~3], dtype="<u4")
    kept = np.nonzero((words & np.uint32(0x7C000000)) == np.uint32(0x14000000))[0]
    offsets = (words[kept] & np.uint32(0x3FFFFFF)).astype(np.int64)
    offsets -= (offsets >> 25) << 26
    for target in (start + 4 * (kept + offsets)).tolist():
        if not start <= target < start + len(code):
            yield target
