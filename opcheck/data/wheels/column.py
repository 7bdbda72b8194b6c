"""What a wheel registers for MPS: its schemas, dispatcher, stubs and Python, and the value of each overload."""

import ast
import re
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.common import documents
from opcheck.common.yaml_text import load_shipped
from opcheck.data.wheels import torchgen_child
from opcheck.data.wheels.damage import damage
from opcheck.data.wheels.image import Address, Image, LinkedCall, Store, run
from opcheck.worker import process

#: seconds that the wheel's torchgen may take
_SECONDS = 600.0
#: What a person read in the sources of each release.
_KNOWN_FACTS: dict[str, Any] = load_shipped(__file__, "known_facts.yaml")


class Schema(msgspec.Struct, frozen=True):
    """The schema facts of an overload."""

    #: torchgen generated it: an out= or functional form that is not written by hand.
    generated: bool
    #: the MPS keys that have a kernel for it, structured delegation included.
    keys: tuple[str, ...]
    #: the .out overload that does the work of this structured form.
    out: str | None = None
    #: the overload that this generated wrapper calls.
    base: str | None = None


def read_schemas(tree: Path) -> dict[str, Schema]:
    """Parse the yaml below ``tree`` (an unpacked ``torchgen``) in a child process.

    The torchgen is code from a wheel that the user named, so it runs isolated: without environment
    variables, without a user site, and without a torch to import.

    Raises:
        OpListError: the child failed, or its answer is not of the expected form.
    """
    command = [sys.executable, "-I", torchgen_child.__file__, str(tree)]
    done = process.run(command, _SECONDS, environment={})
    if done.late or done.code:
        # torchgen adds "in FILE:LINE:" and the schema below the exception's own line.
        lines = done.err.strip().splitlines()[-3:]
        raise damage("no_schemas", " ".join(line.strip() for line in lines) or "no output")
    try:
        schemas = documents.from_json(done.out, dict[str, Schema])
    except documents.DocumentError as error:
        raise damage("other_schemas", str(error)) from error
    orphans = sorted(n for n, s in schemas.items() if s.generated and s.base not in schemas)
    if orphans:
        raise damage("orphans", ", ".join(orphans[:5]), count=len(orphans))
    return schemas


# -- the library's registrations with the dispatcher: every ``m.impl`` and every ``m.fallback`` --

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
    symbols = ((prefix, *symbol) for prefix in (_IMPL, _FALLBACK) for symbol in image.matching(prefix))
    targets = {address: prefix for prefix, address, name in symbols if ".cold" not in name}
    if set(targets.values()) != {_IMPL, _FALLBACK}:
        raise damage("no_registering_functions", "libtorch_cpu.dylib")
    entries: list[Registration] = []
    for address, symbol in image.matching("TORCH_LIBRARY_IMPL_init_"):
        match = _INIT.search(symbol)
        if match is None or ".cold" in symbol:
            continue
        entries.extend(_read_block(image, address, symbol, match, targets))
    return tuple(entries)


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
                entries.append(Registration(match["namespace"], match["key"], name, names, is_fallback, code))
                touched = set()
            case LinkedCall(target):
                # torch <= 2.0 builds the kernel in CppFunction::makeFromBoxedFunction<&fn>().
                touched.add(target)
    return entries


def _name(image: Image, registers: dict[int, int], symbol: str) -> str:
    # Itanium C++ ABI, AAPCS64: x0 is the Library, x1 the name.
    name = image.string(registers[1]) if 1 in registers else None
    if not name:
        raise damage("no_name", symbol)
    return name


# -- the overloads that the library declares (``m.def``) in the ``aten`` namespace -----------------------------

#: torch/library.h: TORCH_LIBRARY(aten, m) (the generated RegisterSchema.cpp) and
#: TORCH_LIBRARY_FRAGMENT(aten, m) (aten/src/ATen/native/RNN.cpp: quantized_lstm and others).
_BLOCKS = ("TORCH_LIBRARY_init_aten", "TORCH_LIBRARY_FRAGMENT_init_aten_")
_SCHEMA = re.compile(r"(?:aten::)?(\w+(?:\.\w+)?)\(.*->")


def find_declared(image: Image) -> frozenset[str]:
    """Return every ``aten`` overload whose schema string a declaring block refers to."""
    blocks = (address for block in _BLOCKS for address, _ in image.matching(block))
    events = (event for address in blocks for event in run(image.code(address), address))
    texts = (image.string(event.value) for event in events if isinstance(event, Address))
    return frozenset(f"aten::{match[1]}" for text in texts if text and (match := _SCHEMA.match(text)))


# -- dispatchStubs: the inner function pointers of composites and kernels that exist for MPS --

#: aten/src/ATen/native/DispatchStub.h, DispatchStubImpl: cpu, cuda, hip, mps pointers, eight
#: bytes each; the same in every release from 1.13 to 2.15.
_MPS_POINTER = 0x18
#: Every stub has a CPU default: ``DispatchStub<fn, the stub's own type>::DEFAULT``.
_DEFAULT = re.compile(r"DispatchStubI.*NS0_\d+(?P<name>[A-Za-z_]\w*?)(?:_DECLARE_DISPATCH_type)?EE7DEFAULTE$")
_OBJECT = re.compile(r"__ZN2at6native\d+(?P<name>[A-Za-z_]\w*)E")

#: Overloads that call a stub whatever their arguments.
UNCONDITIONAL: dict[str, str] = _KNOWN_FACTS["unconditional"]


def stub_table(image: Image) -> dict[str, bool]:
    """Return each DispatchStub of the library, and whether an MPS kernel is stored into it.

    ``REGISTER_DISPATCH`` in a .mm file (DispatchStub.h: RegisterMPSDispatch) becomes a store into
    the stub by the file's static initialiser.

    Raises:
        OpListError: an MPS pointer is stored into something that is not a known stub.
    """
    names = [name for names in image.symbols.values() for name in names]
    stubs = {match["name"] for name in names if (match := _DEFAULT.search(name))}
    stored = (name for at in mps_kernels(image) for name in image.names_at(at))
    with_mps = {match["name"] for name in stored if (match := _OBJECT.fullmatch(name))}
    if not with_mps or not with_mps <= stubs:
        raise damage("no_stubs", ", ".join(sorted(with_mps - stubs)) or "no stub has an MPS pointer")
    return {name: name in with_mps for name in sorted(stubs)}


def mps_kernels(image: Image) -> dict[int, int]:
    """Return the function that a static initialiser stores into the MPS pointer of each stub, by the stub's address."""
    kernels: dict[int, int] = {}
    for address, _ in image.matching("__GLOBAL__sub_I_"):
        for event in run(image.code(address), address):
            if isinstance(event, Store) and event.address and image.in_text(event.value):
                owner = image.owner(event.address)
                if owner and owner[1] == _MPS_POINTER and _OBJECT.fullmatch(owner[0]):
                    kernels[event.address - _MPS_POINTER] = event.value
    return kernels


def check_unconditional(image: Image) -> None:
    """Check that the functions of the table above still refer to their stubs.

    Raises:
        OpListError: a function no longer does, so the statement may have become false.
    """
    for overload, stub in UNCONDITIONAL.items():
        name = overload.removeprefix("aten::").partition(".")[0]
        places = {at for at, symbols in image.symbols.items() if _mangle(stub) in symbols}
        # ``mode.values`` is implemented by at::native::mode_out (native_functions.yaml).
        functions = (
            at for suffix in ("", "_out") for at, _ in image.matching(_mangle(name + suffix).removesuffix("E") + "E")
        )
        if not any(_refers(image, at, places) for at in functions):
            raise damage("no_reference", f"{overload} in opcheck/data/wheels/column.py", name=name, stub=stub)


def _refers(image: Image, address: int, places: set[int]) -> bool:
    return any(isinstance(event, Address) and event.value in places for event in run(image.code(address), address))


def _mangle(name: str) -> str:
    return f"__ZN2at6native{len(name)}{name}E"


# -- the kernels that the wheel's Python registers when torch is imported on a Mac --
# Neither native_functions.yaml nor the library has them: ``torch/backends/mps/__init__.py``
# (2.0 to 2.12) and ``torch/_refs/linalg/__init__.py`` (2.10 to 2.13).

_MPS_KEYS = frozenset(_KNOWN_FACTS["keys"])
_KNOWN = frozenset(_KNOWN_FACTS["python"])


def python_kernels(sources: Mapping[str, str]) -> frozenset[str]:
    """Return the overloads that the given Python files (path -> text) register for MPS.

    Raises:
        OpListError: a registration is new or cannot be read.
    """
    texts: set[str] = set()
    for path, text in sorted(sources.items()):
        if not any(f'"{key}"' in text or f"'{key}'" in text for key in _MPS_KEYS):
            continue
        tree = ast.parse(text, filename=path)
        if not any(isinstance(n, ast.Constant) and n.value in _MPS_KEYS for n in ast.walk(tree)):
            continue
        here = set(_find_registered(tree))
        if not here or not here <= _KNOWN:
            raise damage("unknown_python", f"{path}: {', '.join(sorted(here - _KNOWN)) or 'a dispatch key, no impl()'}")
        texts |= here
    return frozenset(name for name in texts if name.startswith("aten::"))


def _find_registered(tree: ast.AST) -> Iterator[str]:
    libraries: dict[str, tuple[str, str]] = {}
    loops: dict[str, list[str]] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            # lib = [torch.library.]Library("aten", "IMPL"[, key])
            case ast.Assign(
                targets=targets,
                value=ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[_, *_] as arguments),
            ) if called in {"Library", "_Library"}:
                texts = [_text(each) for each in arguments]
                libraries |= dict.fromkeys(map(_text, targets), (texts[0], "".join(texts[2:3])))
            # for key in ("CPU", "MPS")
            case ast.For(target=target, iter=ast.Tuple(elts=items) | ast.List(elts=items)):
                loops[_text(target)] = [_text(item) for item in items]
    for node in nodes:
        match node:
            # torch/library.py: Library.impl(self, op_name, fn, dispatch_key="")
            case ast.Call(func=ast.Attribute(attr="impl", value=ast.Name(id=owner)), args=[first, *more]) if (
                owner in libraries
            ):
                namespace, usual = libraries[owner]
                keys = [*more[1:2], *(each.value for each in node.keywords if each.arg == "dispatch_key")]
                key, name = _text(keys[0]) if keys else usual, _text(first)
                if _MPS_KEYS & {*loops.get(key, [key])}:
                    yield name if "::" in name else f"{namespace}::{name}"


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.Name(id=value):
            return value
        case _:
            return ""


# -- compute a value for each overload from a wheel: the dispatcher's action on an MPS tensor --

#: The functions of aten/src/ATen/mps/MPSFallback.mm, as mangled names spell them: the length and
#: the name, then E, which closes the qualified name and comes before the parameters.
_MPS_FALLBACK, _ERROR_FALLBACK = "12mps_fallbackE", "18mps_error_fallbackE"
_ERROR_STUB = "23slow_conv2d_forward_mpsE"
_BY_HAND = frozenset(_KNOWN_FACTS["by_hand"])
#: aten/src/ATen/autocast_mode.h: enum class CastPolicy, in its order.
_POLICIES = ("lower_precision_fp", "fp32", "fp32_set_opt_dtype", "fp32_append_dtype", "promote")
_POLICY = re.compile(r"WrapFunction_ILNS\d*_10CastPolicyE(\d)E")


class Dispatch(msgspec.Struct, frozen=True):
    """The registrations of the ``aten`` namespace that matter for MPS, by dispatch key."""

    kernels: dict[str, frozenset[str]]
    always_fallback: frozenset[str]
    error_stub: frozenset[str]
    autocast: dict[str, str]

    def key(self, name: str) -> frozenset[str]:
        """Return the overloads with a kernel for a dispatch key."""
        return self.kernels.get(name, frozenset())


def dispatch(registrations: tuple[Registration, ...]) -> Dispatch:
    """Sort the registrations into kernels, fallbacks, error stubs and autocast policies.

    Raises:
        OpListError: the backend-wide fallbacks are not the two that MPSFallback.mm knows.
    """
    kernels: dict[str, set[str]] = {}
    special: dict[str, set[str]] = {_MPS_FALLBACK: set(), _ERROR_STUB: set()}
    autocast: dict[str, str] = {}
    backend: list[str] = []
    for registration in registrations:
        symbols = " ".join(sorted(registration.symbols))
        if registration.name is None:
            if registration.key == "MPS":
                backend += [name for name in (_MPS_FALLBACK, _ERROR_FALLBACK) if name in symbols]
            continue
        if registration.namespace != "aten":
            continue
        name = "aten::" + registration.name.removeprefix("aten::")
        kernels.setdefault(registration.key, set()).add(name)
        if registration.key == "MPS" and registration.from_mps_fallback_file:
            for kind, members in special.items():
                if kind in symbols:
                    members.add(name)
        if registration.key == "AutocastMPS":
            autocast[name] = _policy(name, symbols)
    if sorted(backend) != sorted([_MPS_FALLBACK, _ERROR_FALLBACK]):
        raise damage("other_fallbacks", f"found: {', '.join(backend) or 'none'}")
    return Dispatch(
        kernels={key: frozenset(names) for key, names in kernels.items()},
        always_fallback=frozenset(special[_MPS_FALLBACK]),
        error_stub=frozenset(special[_ERROR_STUB]),
        autocast=autocast,
    )


def _policy(name: str, symbols: str) -> str:
    numbers = set(_POLICY.findall(symbols))
    if len(numbers) != 1 or int(*numbers) >= len(_POLICIES):
        raise damage("no_policy", f"{name}: {sorted(numbers)}")
    return _POLICIES[int(*numbers)]


def check(registrations: Dispatch, schemas: Mapping[str, Schema]) -> None:
    """Check that the library and its native_functions.yaml agree.

    Raises:
        OpListError: they differ by more than the known hand-written registrations.
    """
    by_hand = registrations.always_fallback | registrations.error_stub
    for key in ("MPS", "SparseMPS", "SparseCsrMPS"):
        declared = {name for name, schema in schemas.items() if key in schema.keys}
        registered = registrations.key(key)
        _expect(f"{key}: in the yaml only", declared - registered)
        extra = registered - declared - (by_hand | _BY_HAND if key == "MPS" else frozenset())
        _expect(f"{key}: in the library only", extra)
        if key == "MPS":
            _expect("a fallback that the yaml calls a kernel", by_hand & declared)
    _expect("error stubs", registrations.error_stub, frozenset({"aten::_slow_conv2d_forward"}))
    _expect("kernels without a schema", frozenset().union(*registrations.kernels.values()) - schemas.keys())


def _expect(what: str, names: AbstractSet[str], expected: AbstractSet[str] = frozenset()) -> None:
    if names != expected:
        raise damage("disagrees", ", ".join(sorted(names)[:8]) or "nothing found", what=what)


def column(
    registrations: Dispatch, schemas: Mapping[str, Schema], python: AbstractSet[str], stubs: Mapping[str, bool]
) -> dict[str, str]:
    """Return the value of every overload, in the dispatcher's order of search.

    c10's OperatorEntry::computeDispatchTableEntryWithDebug (core/dispatch/OperatorEntry.cpp): a
    kernel for the key itself, then CompositeExplicitAutogradNonFunctional, then
    CompositeExplicitAutograd, then CompositeImplicitAutograd, then the backend's fallback.  A Python
    registration replaces a kernel of the library.
    """
    missing = {name: f"missing_stub:{stub}" for name, stub in UNCONDITIONAL.items() if not stubs.get(stub, False)}
    tables = (
        dict.fromkeys(python, "python_kernel"),
        dict.fromkeys(registrations.always_fallback, "cpu_fallback"),
        dict.fromkeys(registrations.error_stub, "error_stub"),
        _only(missing, registrations.key("MPS")),
        dict.fromkeys(registrations.key("MPS"), "kernel"),
        {n: _calling("out", schemas[n].out) for n in registrations.key("CompositeExplicitAutogradNonFunctional")},
        _only(missing, registrations.key("CompositeExplicitAutograd")),
        {n: _calling("wrapper", schemas[n].base) for n in registrations.key("CompositeExplicitAutograd")},
        _only(missing, registrations.key("CompositeImplicitAutograd")),
        dict.fromkeys(registrations.key("CompositeImplicitAutograd"), "composite_implicit"),
        dict.fromkeys(registrations.key("CPU"), "cpu_only"),
        dict.fromkeys(schemas, "no_dense_kernel"),
    )
    return dict(ChainMap(*tables))


def _calling(how: str, name: str | None) -> str:
    """Return the value of an overload whose kernel calls another overload, if it does."""
    return f"{how}:{name}" if name else "composite_explicit"


def _only(missing: Mapping[str, str], registered: AbstractSet[str]) -> dict[str, str]:
    return {name: value for name, value in missing.items() if name in registered}
