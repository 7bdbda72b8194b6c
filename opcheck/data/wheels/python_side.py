"""The kernels that the wheel's Python registers when torch is imported on a Mac.

Neither native_functions.yaml nor the library has them: ``torch/backends/mps/__init__.py``
(2.0 to 2.12) and ``torch/_refs/linalg/__init__.py`` (2.10 to 2.13).
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from opcheck.common.errors import OpListError

_MPS_KEYS = frozenset(
    {
        "MPS",
        "SparseMPS",
        "SparseCsrMPS",
        "NestedTensorMPS",
        "QuantizedMPS",
        "AutogradMPS",
        "AutocastMPS",
    }
)

#: Every registration known from 1.13 to 2.15, each checked to happen on import of torch on a Mac;
#: a person must read a new registration, since Python can hide it behind any condition.
_KNOWN = frozenset(
    {
        "aten::var_mean.correction",
        "aten::native_group_norm",
        "aten::native_group_norm_backward",
        "aten::linalg_lu_solve.out",
        # torch/_inductor/test_operators.py: a test operator, not of ATen.
        "_inductor_test::realize",
    }
)


class _PythonLibrary(NamedTuple):
    namespace: str
    key: str


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
            raise OpListError(
                "a Python registration for MPS that opcheck does not know",
                context=f"{path}: {', '.join(sorted(here - _KNOWN)) or 'a dispatch key, no impl()'}",
                hint="read whether it runs on import, then add it to wheel/python_side.py",
            )
        texts |= here
    return frozenset(name for name in texts if name.startswith("aten::"))


def _find_registered(tree: ast.AST) -> Iterator[str]:
    libraries = dict(_libraries(tree))
    loops = dict(_literal_loops(tree))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = node.func.value
        if node.func.attr != "impl" or not isinstance(owner, ast.Name):
            continue
        library = libraries.get(owner.id)
        if library and node.args and _MPS_KEYS & set(_keys(node, library, loops)):
            name = _text(node.args[0])
            yield name if "::" in name else f"{library.namespace}::{name}"


def _libraries(tree: ast.AST) -> Iterator[tuple[str, _PythonLibrary]]:
    """Return the assignments ``lib = [torch.library.]Library("aten", "IMPL"[, key])``, by variable."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        function = node.value.func
        called = function.attr if isinstance(function, ast.Attribute) else _text(function)
        if called in {"Library", "_Library"} and node.value.args:
            texts = [_text(argument) for argument in node.value.args]
            key = texts[2] if len(texts) > 2 else ""
            for target in node.targets:
                yield _text(target), _PythonLibrary(texts[0], key)


def _literal_loops(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Return the values of loops such as ``for key in ("CPU", "MPS")``, by the loop's variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
            yield _text(node.target), [_text(item) for item in node.iter.elts]


def _keys(call: ast.Call, library: _PythonLibrary, loops: dict[str, list[str]]) -> Iterable[str]:
    # torch/library.py: Library.impl(self, op_name, fn, dispatch_key="")
    keys = [*call.args[2:3], *(k.value for k in call.keywords if k.arg == "dispatch_key")]
    if not keys:
        return [library.key]
    key = keys[0]
    return loops.get(key.id, []) if isinstance(key, ast.Name) else [_text(key)]


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.Name(id=value):
            return value
        case _:
            return ""
