"""The registrations of the compiled part of an extension library (torchvision, torchaudio).

Unlike libtorch_cpu, an extension imports the registering functions, so it calls them through stubs.
Since torchaudio 2.10 and torchvision 0.29 these functions belong to PyTorch's stable ABI.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

from opcheck.common.errors import OpListError
from opcheck.data.wheels.image import Image
from opcheck.data.wheels.machine_code import Address, LinkedCall, run

#: torch/library.h: TORCH_LIBRARY_IMPL(ns, key, m), TORCH_LIBRARY(ns, m), TORCH_LIBRARY_FRAGMENT.
_IMPL_BLOCK = re.compile(
    r"\dTORCH_LIBRARY_IMPL_init_(?P<namespace>\w+?)_(?P<key>[A-Z][A-Za-z0-9]*)_\d+E?RN5torch"
)
_DEF_BLOCK = re.compile(
    r"\dTORCH_LIBRARY_(?:FRAGMENT_)?init_(?P<namespace>\w+?)(?:_\d+)?E?RN5torch"
)
_SCHEMA = re.compile(r"(?:\w+::)?(?P<name>\w+(?:\.\w+)?)\(.*->", re.DOTALL)

_IMPL = "__ZNR5torch7Library5_implE"
#: ``m.def("name", &function)``: a template of the extension's own, with two forwarded arguments;
#: with one, ``m.def("name(Tensor self) -> Tensor")``, it only declares.
_DEF_WITH_KERNEL, _TWO_ARGUMENTS = "__ZNR5torch7Library3defIR", "RS0_OT_OT0_"
#: The function that the template calls; where the template is inlined, the name is built at run time.
_DEF_INLINED = "__ZNR5torch7Library4_defEONSt3__17variant"
#: torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/stable/c/shim.h: the stable ABI.
_STABLE_BLOCK = "_aoti_torch_library_init_"
_STABLE_IMPL_BLOCK = "_aoti_torch_library_init_impl"
_STABLE_DEF = "_aoti_torch_library_def"
_STABLE_IMPL = ("_torch_library_impl", "_aoti_torch_library_impl")

#: A kernel that is given without a key (torch/library.h: CppFunction of ``def``).
_CATCH_ALL = "CompositeImplicitAutograd"


class Registered(NamedTuple):
    """A declaration (``key`` is empty) or a kernel."""

    namespace: str
    key: str
    name: str


def find_registered(image: Image) -> tuple[Registered, ...]:
    """Return every declaration and kernel of an extension's library.

    Raises:
        OpListError: the library registers in a way that this reader does not know.
    """
    registrations: list[Registered] = []
    for address, names in sorted(image.symbols.items()):
        if image.in_text(address) and not any(".cold" in name for name in names):
            registrations += _read_function(image, address, names)
    return tuple(sorted(set(registrations)))


def _read_function(image: Image, address: int, names: tuple[str, ...]) -> Iterator[Registered]:
    block = next((m for name in names if (m := _IMPL_BLOCK.search(name))), None)
    declares = next((m for name in names if (m := _DEF_BLOCK.search(name))), None)
    function = _RegisteringFunction(
        symbol=names[0],
        impl=(block["namespace"], block["key"]) if block else None,
        declares=declares["namespace"] if declares else "",
    )
    for event in run(image.code(address), address):
        if isinstance(event, Address) and function.declares:
            yield from _find_declared(function.declares, image.string(event.value))
        elif isinstance(event, LinkedCall):
            target = _target(image, event.target)
            if target:
                registers = event.registers
                words = (registers.get(r) for r in (0, 1))
                first, second = (None if w is None else image.string(w) for w in words)
                yield from function.call(target, first, second)


class _RegisteringFunction:
    """The registrations that the calls of a function make."""

    def __init__(self, *, symbol: str, impl: tuple[str, str] | None, declares: str) -> None:
        self.symbol = symbol
        #: namespace and key, of a TORCH_LIBRARY_IMPL block.
        self.impl = impl
        #: namespace, of a TORCH_LIBRARY or TORCH_LIBRARY_FRAGMENT block.
        self.declares = declares
        #: namespace and key of the last block of the stable ABI that was opened.
        self.stable = ("", "")

    def call(self, target: str, first: str | None, second: str | None) -> Iterator[Registered]:
        """Record a call; ``first`` and ``second`` are its arguments where they are constant strings."""
        if target.startswith(_STABLE_BLOCK):
            key = second if target == _STABLE_IMPL_BLOCK else ""
            if first is None or key is None:
                _fail("a namespace or a dispatch key that is not a constant", self.symbol)
            self.stable = (first, key)
        elif target == _STABLE_DEF:
            yield from _find_declared(self.stable[0], second) or _fail(
                "a declaration whose schema is not a constant", self.symbol
            )
        elif target in _STABLE_IMPL:
            yield Registered(*self.stable, _bare(second, self.symbol))
        elif target == _IMPL:
            if self.impl is None:
                _fail("a kernel outside of a TORCH_LIBRARY_IMPL block", self.symbol)
            yield Registered(*self.impl, _bare(second, self.symbol))
        elif self.declares:
            if target == _DEF_INLINED:
                _fail("a kernel that is given with its declaration, inlined", self.symbol)
            yield Registered(self.declares, "", _bare(second, self.symbol))
            yield Registered(self.declares, _CATCH_ALL, _bare(second, self.symbol))


def _target(image: Image, address: int) -> str:
    """Return the registering function that a call goes to; empty for any other function."""
    imported = image.imports.get(address, "")
    if imported.startswith(_STABLE_BLOCK) or imported in {_STABLE_DEF, *_STABLE_IMPL}:
        return imported
    names = (imported, *image.names_at(address))
    if any(name.startswith(_DEF_WITH_KERNEL) and _TWO_ARGUMENTS in name for name in names):
        return _DEF_WITH_KERNEL
    known = (p for p in (_IMPL, _DEF_INLINED) if any(name.startswith(p) for name in names))
    return next(known, "")


def _find_declared(namespace: str, text: str | None) -> list[Registered]:
    match = _SCHEMA.match(text) if text else None
    return [Registered(namespace, "", match["name"])] if match else []


def _bare(text: str | None, symbol: str) -> str:
    """Return a name such as ``torchvision::nms`` or ``nms(Tensor ...)`` without namespace and arguments."""
    if not text:
        _fail("a registration whose name is not a constant", symbol)
    return text.partition("(")[0].rpartition("::")[2]


def values(namespace: str, registrations: Iterable[Registered]) -> dict[str, str]:
    """Return the value of each operator of a namespace, by the dispatcher's order; see column.py."""
    kernels: dict[str, set[str]] = {}
    for entry in registrations:
        if entry.namespace == namespace:
            kernels.setdefault(f"{namespace}::{entry.name}", set()).add(entry.key)
    order = (
        ("MPS", "kernel"),
        ("CompositeExplicitAutograd", "composite_explicit"),
        (_CATCH_ALL, "composite_implicit"),
        ("CPU", "cpu_only"),
    )
    return {
        name: next((value for key, value in order if key in keys), "no_dense_kernel")
        for name, keys in sorted(kernels.items())
    }


def _fail(message: str, symbol: str) -> NoReturn:
    raise OpListError(
        f"the extension registers in a way that is not known: {message}",
        context=symbol,
        hint="the compiler or torch/library.h has changed; extension_library.py must learn it",
    )
