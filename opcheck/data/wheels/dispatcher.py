"""The library's registrations with the dispatcher: every ``m.impl`` and every ``m.fallback``."""

import re
from typing import NamedTuple

from opcheck.common.errors import OpListError
from opcheck.data.wheels.image import Address, Image, LinkedCall, Store, run

#: torch/library.h: TORCH_LIBRARY_IMPL(ns, key, m) makes a function of this name; "_" is all
#: namespaces, and the number counts the blocks of a file.
_INIT = re.compile(r"TORCH_LIBRARY_IMPL_init_(?P<namespace>\w+?)_(?P<key>[A-Z]\w*)_\d+E")
#: aten/src/ATen/mps/MPSFallback.mm opens its blocks in plain ``namespace at``; the generated
#: RegisterMPS.cpp in an anonymous namespace below it.
_MPS_FALLBACK_FILE = "__ZN2atL"
_IMPL = "__ZNR5torch7Library5_implE"
_FALLBACK = "__ZNR5torch7Library9_fallbackE"


class Registration(NamedTuple):
    """A kernel that the library registers; ``symbols`` names the functions that it consists of."""

    namespace: str
    key: str
    #: None for the fallback of a whole key.
    name: str | None
    symbols: frozenset[str]
    #: the registration comes from MPSFallback.mm, by the mangled name of its block.
    from_mps_fallback_file: bool
    #: where these functions are: in torch <= 2.0 the wrappers of several dispatch keys share their names.
    addresses: frozenset[int] = frozenset()


def registrations(image: Image) -> tuple[Registration, ...]:
    """Return every registration of the library, in the order of the blocks' addresses.

    Raises:
        OpListError: the library has no registrations, or one whose name is not a constant.
    """
    targets = _registering_functions(image)
    entries: list[Registration] = []
    for address, symbol in image.matching("TORCH_LIBRARY_IMPL_init_"):
        match = _INIT.search(symbol)
        if match is None or ".cold" in symbol:
            continue
        entries.extend(_read_block(image, address, symbol, match, targets))
    return tuple(entries)


def _registering_functions(image: Image) -> dict[int, str]:
    targets = {
        address: prefix
        for prefix in (_IMPL, _FALLBACK)
        for address, name in image.matching(prefix)
        if ".cold" not in name
    }
    if set(targets.values()) != {_IMPL, _FALLBACK}:
        raise OpListError(
            "the library does not define torch::Library::_impl and _fallback",
            context="libtorch_cpu.dylib",
            hint="torch/library.h has changed, or the symbols are stripped; the reader must learn it",
        )
    return targets


def _read_block(
    image: Image, address: int, symbol: str, match: re.Match[str], targets: dict[int, str]
) -> list[Registration]:
    entries: list[Registration] = []
    touched: set[int] = set()
    for event in run(image.code(address), address):
        match event:
            case Address(value):
                touched.add(value)
            case Store(value):
                # mps_fallback's address stays in a callee-saved register from one impl to the
                # next: the store, not the materialisation, shows that it is used again.
                touched.add(value)
            case LinkedCall(target, registers) if target in targets:
                name = _name(image, registers, symbol) if targets[target] == _IMPL else None
                code = frozenset(at for at in touched if image.in_text(at))
                names = frozenset(name for at in code for name in image.names_at(at))
                is_fallback = symbol.startswith(_MPS_FALLBACK_FILE)
                entries.append(
                    Registration(match["namespace"], match["key"], name, names, is_fallback, code)
                )
                touched = set()
            case LinkedCall(target):
                # torch <= 2.0 builds the kernel in CppFunction::makeFromBoxedFunction<&fn>().
                touched.add(target)
    return entries


def _name(image: Image, registers: dict[int, int], symbol: str) -> str:
    # Itanium C++ ABI, AAPCS64: x0 is the Library, x1 the name.
    name = image.string(registers[1]) if 1 in registers else None
    if not name:
        raise OpListError(
            "a registration whose operator name is not a constant",
            context=symbol,
            hint="the compiler has changed how it builds the call; the reader must learn it",
        )
    return name


# -- the overloads that the library declares (``m.def``) in the ``aten`` namespace -----------------------------

#: torch/library.h: TORCH_LIBRARY(aten, m) (the generated RegisterSchema.cpp) and
#: TORCH_LIBRARY_FRAGMENT(aten, m) (aten/src/ATen/native/RNN.cpp: quantized_lstm and others).
_BLOCKS = ("TORCH_LIBRARY_init_aten", "TORCH_LIBRARY_FRAGMENT_init_aten_")
_SCHEMA = re.compile(r"(?:aten::)?(\w+(?:\.\w+)?)\(.*->")


def find_declared(image: Image) -> frozenset[str]:
    """Return every ``aten`` overload whose schema string a declaring block refers to."""
    texts = (
        image.string(event.value)
        for block in _BLOCKS
        for address, _ in image.matching(block)
        for event in run(image.code(address), address)
        if isinstance(event, Address)
    )
    return frozenset(
        f"aten::{match[1]}" for text in texts if text and (match := _SCHEMA.match(text))
    )
