"""What no Mac has: kernels in CUDA, packages without a wheel for macOS, backends of torch.compile."""

import ast
from collections.abc import Iterator
from pathlib import Path

from opcheck.data.packages import PACKAGES, Package
from opcheck.source.call_tables import read_lists, read_table
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, hit, method, rule
from opcheck.source.words import begins, imported_modules

# -- OC209: the program's own kernels in CUDA ------------------------------------------------------

_MODULE = "torch.utils.cpp_extension."


@rule("OC209")
def find_cuda_extensions(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """CUDAExtension, and load() with sources that end in .cu."""
    name = scanned.dotted_name(node.func)
    if not name.startswith(_MODULE):
        return
    is_load = name.removeprefix(_MODULE) in {"load", "load_inline"}
    if name == f"{_MODULE}CUDAExtension" or (is_load and _cuda_sources(node)):
        yield hit("builds kernels", node)


def _cuda_sources(node: ast.Call) -> bool:
    if any(keyword.arg in {"cuda_sources", "extra_cuda_cflags"} for keyword in node.keywords):
        return True
    texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return any(isinstance(text, str) and text.endswith((".cu", ".cuh")) for text in texts)


# -- OC214: a package that has no wheel for macOS --------------------------------------------------

#: Options of transformers and diffusers, and their values, by the text that names them.
_OPTIONS = read_lists("options")


def _find_options(node: ast.keyword, scanned: Scanned) -> Iterator[Hit]:
    """Options of transformers: ``attn_implementation="flash_attention_2"`` and ``load_in_4bit=True``."""
    value = scanned.mac.constant(node.value)
    if text := _OPTIONS.get(f"{node.arg}={value}"):
        bits, option = PACKAGES.load().methods["bitsandbytes"], value if isinstance(value, str) else node.arg
        yield hit(text, node.value, option=option, because=bits.because, instead=bits.instead)


def _find_calls(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """Calls that need xformers or NVIDIA's driver, outside of a try and of a condition."""
    command = argument(node, 0, "args")
    command = (scanned.program.only_value(command) if isinstance(command, ast.Name) else None) or command
    program = command.elts[0] if isinstance(command, ast.List) and command.elts else command
    is_started = scanned.dotted_name(node.func).startswith(("os.", "subprocess."))
    is_driver = is_started and program is not None and begins(program).startswith("nvidia-smi")
    is_attention = method(node) == "enable_xformers_memory_efficient_attention"
    if (is_driver or is_attention) and not _is_asked_before(node, scanned, fails=False):
        yield hit("xformers" if is_attention else "nvidia-smi", node)


_UNUSED = "; no line of this file uses it: drop the import, and the requirement where no other file needs it"


def _is_unused(node: ast.Import | ast.ImportFrom, scanned: Scanned) -> bool:
    """Return whether no line of a file reads a name that an import binds; others import names of ``__init__.py``."""
    names = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if "*" in names or scanned.path is None or scanned.path.name == "__init__.py":
        return False
    return not names & scanned.once(("names that are read",), _names_read, scanned)


def _names_read(scanned: Scanned) -> frozenset[str]:
    nodes = scanned.program.nodes
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    # ``__all__`` has names as texts.
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return frozenset(names | texts)


def _describe_instead(package: Package) -> str:
    """Return what a Mac has in place of a package, and how it differs."""
    use = package.on_macs.use
    named = "" if use in package.instead else f"; on a Mac: {use}"
    return f"instead: {package.instead}{named} ({package.on_macs.differs})"


def _first(scanned: Scanned) -> dict[str, ast.AST]:
    """The first import of each distribution."""
    first: dict[str, ast.AST] = {}
    for node in scanned.program.nodes:
        for name in _lacking(node, scanned):
            first.setdefault(name, node)
    return first


def _lacking(node: ast.AST, scanned: Scanned) -> list[str]:
    """The distributions that an import needs and a Mac has not."""
    pairs = [(module, _distribution(module)) for module in imported_modules(node)]
    return [
        name
        for module, name in pairs
        if name
        and not scanned.once(("beside", module.partition(".")[0]), _is_beside, module, scanned)
        and not _is_asked_before(node, scanned, fails=bool(PACKAGES.load().by_name[name].fails))
        and not scanned.once(("asks for", module), _asks_for_gpu, module, scanned)
    ]


def describe(name: str, package: Package) -> str:
    """``triton has no wheel for macOS``, with the first version that has a wheel."""
    if package.fails:
        return f"{name} installs on a Mac and fails there: {package.fails}"
    if package.needs:
        return f"{name} needs {package.needs}, which has no wheel for macOS"
    before = f" before {package.since}" if package.since else ""
    return f"{name} has no wheel for macOS{before}"


def _distribution(module: str) -> str:
    """The distribution of a dotted module, by its longest name that the table has."""
    by_import = PACKAGES.load().by_import
    parts = module.split(".")
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((by_import[name] for name in names if name in by_import), "")


def _is_beside(module: str, scanned: Scanned) -> bool:
    """Return whether the project itself has a module of that name, next to the file or above it."""
    if scanned.path is None or scanned.root is None:
        return False
    top = module.partition(".")[0]
    for directory in scanned.path.parents:
        if (directory / top).is_dir() or (directory / f"{top}.py").is_file():
            return True
        if directory == scanned.root:
            return directory.name == top
    return False


def _is_asked_before(node: ast.AST, scanned: Scanned, *, fails: bool) -> bool:
    """Return whether an import is in a try for its absence, or under a condition that decides about it.

    The import of a package that installs on a Mac does not fail: there, a try guards the rest of its block.
    """
    for _, (parent, field, _, _) in scanned.program.ancestors(node):
        if isinstance(parent, ast.If) and field != "test":
            return True
        tried = isinstance(parent, ast.Try) and field == "body"
        if tried and scanned.once(("goes on", parent), _goes_on, parent):
            return not fails or len(getattr(parent, "body", ())) > 1
    return False


def _asks_for_gpu(module: str, scanned: Scanned) -> bool:
    """Return whether the file checks that a package can work here: ``numba.cuda.is_available()``."""
    uses = scanned.program.uses.get("is_available", ())
    return any(scanned.dotted_name(use) == f"{module}.is_available" for use in uses)


def _goes_on(node: ast.Try) -> bool:
    kinds = ({type(part) for part in ast.walk(handler)} for handler in node.handlers)
    return any(ast.Raise not in each for each in kinds)


def _modules() -> tuple[str, ...]:
    """The names that an import of such a package begins with."""
    names = {module.partition(".")[0] for module in PACKAGES.load().by_import}
    return *{
        option.removesuffix("=True").rpartition("=")[2] for option in _OPTIONS
    }, f"import:{'|'.join(sorted(names))}"


def requirement(path: Path) -> bool:
    """Return whether a file lists requirements, one a line."""
    return path.suffix in {".txt", ".in"} and "requirements" in path.name.lower()


@rule("OC214", words=_modules)
def find_missing_packages(
    node: ast.Import | ast.ImportFrom | ast.keyword | ast.Call, scanned: Scanned
) -> Iterator[Hit]:
    """Unguarded imports of such a package, one finding for each package.  Options and calls that need a package."""
    if isinstance(node, (ast.keyword, ast.Call)):
        yield from _find_options(node, scanned) if isinstance(node, ast.keyword) else _find_calls(node, scanned)
        return
    for name in dict.fromkeys(_lacking(node, scanned)):
        first = scanned.once(("first without a wheel",), _first, scanned)[name]
        lazy = scanned.program.scope(first) is not scanned.program.tree
        when = "when the function runs" if lazy else "when the file is imported"
        package = PACKAGES.load().by_name[name]
        built = ": pip builds it there, or" if package.sources else ":"
        is_certain = not (lazy or package.since or package.sources or package.fails)
        ending = "" if package.fails else f"{built} the import fails {when}"
        yield Hit(
            node=first,
            use=node,
            severity="error" if is_certain else "warning",
            message=f"{describe(name, package)}{ending}{_UNUSED if _is_unused(node, scanned) else ''}",
            hint=_describe_instead(package),
        )


# -- OC231: a container for a GPU of NVIDIA; configurations.toml has its lines -----------------------------------------

GPU_CONTAINERS = ScanRule(
    id="OC231", severity="warning", no_fix="a person must choose between macOS itself and a container on the CPU"
)


# -- OC217: a backend of torch.compile that a Mac does not have ------------------------------------

_LACKING = read_table("compile_backends")


@rule("OC217")
def find_compile_backends(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """``torch.compile(backend=...)`` with a name of the table."""
    if scanned.dotted_name(node.func) != "torch.compile":
        return
    backend = argument(node, None, "backend")
    name = scanned.mac.constant(backend) if backend is not None else None
    if isinstance(name, str) and name in _LACKING:
        yield hit("compile backend", node, why=_LACKING[name])
