"""OC209: the program's own kernels in CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.rule import Hit, Scanned, ScanRule

_MODULE = "torch.utils.cpp_extension."


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """CUDAExtension, and load() with sources that end in .cu."""
    if not isinstance(node, ast.Call):
        return
    name = scanned.dotted(node.func)
    if not name.startswith(_MODULE):
        return
    is_load = name.removeprefix(_MODULE) in {"load", "load_inline"}
    if name == f"{_MODULE}CUDAExtension" or (is_load and _cuda_sources(node)):
        yield Hit(
            node=node,
            message="builds CUDA kernels, which no Mac compiles",
            hint="build them only beside CUDA, and write the same in plain torch for other devices",
        )


def _cuda_sources(node: ast.Call) -> bool:
    if any(keyword.arg in {"cuda_sources", "extra_cuda_cflags"} for keyword in node.keywords):
        return True
    texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return any(isinstance(text, str) and text.endswith((".cu", ".cuh")) for text in texts)


RULE = ScanRule(
    id="OC209",
    severity="error",
    nodes=(ast.Call,),
    words=("cpp_extension",),
    names={ast.Call: frozenset({"CUDAExtension", "load", "load_inline"})},
    check=check,
)
