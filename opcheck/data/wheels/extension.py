"""Read the library of an extension (torchvision, torchaudio), and write its release into the op lists."""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple, NoReturn
from zipfile import ZipFile

import msgspec

from opcheck.common.errors import UsageError
from opcheck.common.grouping import group_values
from opcheck.common.picking import pick
from opcheck.common.versions import Version
from opcheck.data.extensions import (
    FILE,
    LIBRARIES,
    VALUES,
    ExtensionCounts,
    ExtensionRelease,
    dump_extensions,
    read_extensions,
    registrations_file,
    torch_line_of,
)
from opcheck.data.files import add_column
from opcheck.data.history import by_version
from opcheck.data.wheels.archive import obtain, open_archive, read_metadata
from opcheck.data.wheels.damage import damage
from opcheck.data.wheels.image import Address, Image, LinkedCall, run
from opcheck.data.wheels.release import write_changed

_HINT = "give a macOS arm64 wheel of torchvision or torchaudio, or torchvision==0.28.0"
_PINNED = re.compile(r"torch\s*\(?==(?P<version>[\d.]+)")


class ExtensionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a build."""

    library: str
    release: ExtensionRelease
    #: the data files whose bytes changed, relative to the op lists' directory.
    changed: tuple[str, ...]


class ExtensionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A release and the value of each of its operators."""

    library: str
    release: ExtensionRelease
    column: Mapping[str, str]


def is_extension(source: str) -> bool:
    """Return whether a source names an extension library: ``torchvision==0.28.0``, or its wheel."""
    return re.split(r"==|-", Path(source).name)[0] in LIBRARIES


def build_extension(source: str, op_lists_dir: Path, cache: Path) -> ExtensionSummary:
    """Read a release's macOS wheel and write what it registers into the op lists.

    Args:
        source: a release such as ``torchvision==0.28.0``, or the path of a wheel.
        op_lists_dir: the directory to write to.
        cache: where downloaded wheels are kept.

    Raises:
        UsageError: ``source`` is neither.
        OpListError: no such wheel, a damaged wheel, a wheel that registers in an unknown way, or op
            lists that are damaged already.
    """
    library, _, release = source.partition("==")
    if release and library not in LIBRARIES:
        libraries = ", ".join(LIBRARIES)
        raise UsageError(f"not an extension library: {library}", hint=f"known are {libraries}")
    wheel = obtain(release, cache, library) if release else obtain(source, cache, "torchvision")
    facts = read_extension(wheel)
    changed = write_changed(_merge_release(facts, op_lists_dir), op_lists_dir)
    return ExtensionSummary(library=facts.library, release=facts.release, changed=changed)


def read_extension(path: Path) -> ExtensionFacts:
    """Read a macOS arm64 wheel of an extension library without executing any of it.

    Raises:
        OpListError: not such a wheel, damaged, or it registers in an unknown way.
    """
    about = read_metadata(path, LIBRARIES, "an extension library", _HINT)
    name, version = about.package, about.version
    line = str(Version.parse(version))
    with open_archive(path, _HINT) as wheel:
        metadata = wheel.read(f"{name}-{version}.dist-info/METADATA").decode("utf-8", "replace")
        asked: list[str] = HeaderParser().parsestr(metadata).get_all("Requires-Dist", [])
        requires = next((text for text in asked if re.match(r"torch\b(?![-_.])", text)), "")
        column, libraries = _operators(wheel, name)
    torch_line = torch_line_of(name, line)
    pinned = _PINNED.match(requires)
    if pinned and str(Version.parse(pinned["version"])) != torch_line:
        raise damage("other_pair", f"{path.name} asks for {requires}", release=f"{name} {version}", torch=torch_line)
    if not column:
        raise damage("no_operator", path.name)
    kinds = list(column.values())
    release = ExtensionRelease(
        version=version,
        line=line,
        torch_line=torch_line,
        requires=requires,
        wheel=path.name,
        **pick(about, "sha256", "commit", "built"),
        libraries=libraries,
        counts=ExtensionCounts(mps=kinds.count("kernel"), cpu_only=kinds.count("cpu_only"), operators=len(kinds)),
    )
    return ExtensionFacts(library=name, release=release, column=column)


def _operators(wheel: ZipFile, name: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the operators of the library's namespace, and the files that register them."""
    registrations: list[Registered] = []
    libraries: list[str] = []
    with tempfile.TemporaryDirectory(prefix="opcheck-wheel-") as folder:
        for file in sorted(wheel.namelist()):
            if file.startswith(f"{name}/") and file.endswith(".so"):
                entries = find_registered(Image.parse(Path(wheel.extract(file, folder))))
                if any(entry.namespace == name for entry in entries):
                    libraries.append(file)
                    registrations += entries
    return find_values(name, registrations), tuple(libraries)


def _merge_release(facts: ExtensionFacts, op_lists_dir: Path) -> dict[str, str]:
    """Return the text of each data file with the release added."""
    path = op_lists_dir / FILE
    releases = dict(read_extensions(path)) if path.is_file() else {}
    earlier = releases.get(facts.library, ())
    lines = by_version(release.line for release in earlier)
    file, line = registrations_file(facts.library), facts.release.line
    releases[facts.library] = (*(release for release in earlier if release.line != line), facts.release)
    text = add_column(op_lists_dir / file, lines, VALUES, line, facts.column, facts.library, "MPS")
    return {FILE: dump_extensions(releases), file: text}


# -- the registrations of the compiled part of an extension library (torchvision, torchaudio) ------------------

#: torch/library.h: TORCH_LIBRARY_IMPL(ns, key, m), TORCH_LIBRARY(ns, m), TORCH_LIBRARY_FRAGMENT.
_IMPL_BLOCK = re.compile(r"\dTORCH_LIBRARY_IMPL_init_(?P<namespace>\w+?)_(?P<key>[A-Z][A-Za-z0-9]*)_\d+E?RN5torch")
_DEF_BLOCK = re.compile(r"\dTORCH_LIBRARY_(?:FRAGMENT_)?init_(?P<namespace>\w+?)(?:_\d+)?E?RN5torch")
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
    function = _RegisteringFunction(names)
    for event in run(image.code(address), address):
        if isinstance(event, Address) and function.declares:
            yield from _find_declared(function.declares, image.string(event.value))
        elif isinstance(event, LinkedCall) and (target := _target(image, event.target)):
            words = (event.registers.get(register) for register in (0, 1))
            first, second = (None if w is None else image.string(w) for w in words)
            yield from function.call(target, first, second)


class _RegisteringFunction:
    """The registrations that the calls of a function make."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.symbol = names[0]
        #: namespace and key, of a TORCH_LIBRARY_IMPL block.
        self.impl = next(((m["namespace"], m["key"]) for m in map(_IMPL_BLOCK.search, names) if m), None)
        #: namespace, of a TORCH_LIBRARY or TORCH_LIBRARY_FRAGMENT block.
        self.declares = next((m["namespace"] for m in map(_DEF_BLOCK.search, names) if m), "")
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
    functions = (p for p in (_IMPL, _DEF_INLINED) if any(name.startswith(p) for name in names))
    return next(functions, "")


def _find_declared(namespace: str, text: str | None) -> list[Registered]:
    match = _SCHEMA.match(text) if text else None
    return [Registered(namespace, "", match["name"])] if match else []


def _bare(text: str | None, symbol: str) -> str:
    """Return a name such as ``torchvision::nms`` or ``nms(Tensor ...)`` without namespace and arguments."""
    if not text:
        _fail("a registration whose name is not a constant", symbol)
    return text.partition("(")[0].rpartition("::")[2]


def find_values(namespace: str, registrations: Iterable[Registered]) -> dict[str, str]:
    """Return the value of each operator of a namespace, by the dispatcher's order; see column.py."""
    own = (entry for entry in registrations if entry.namespace == namespace)
    kernels = group_values((f"{namespace}::{entry.name}", entry.key) for entry in own)
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
    raise damage("unknown_registration", symbol, message=message)
