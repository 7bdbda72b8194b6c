"""The Metal kernels that torch 1.13 to 2.5 carries as source text and compiles on the Mac, by name.

A kernel's name is that of its function, or the ``host_name`` of a template that a macro instantiates once a dtype
(``REGISTER_CROSS_FUNC(float)``; aten/src/ATen/native/mps/operations/CrossKernel.mm, 2.5).
"""

import hashlib
import re

from opcheck.common.errors import OpListError
from opcheck.data.wheels.metallib import Function

_KERNEL = b"kernel void"
_NO_CODE = re.compile(r"\\\n|//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINE = re.compile(r"^[ \t]*#define[ \t]+(\w+)\(([^)\n]*)\)([^\n]*)$|^[ \t]*#[^\n]*$", re.MULTILINE)
_USE = re.compile(r"\b(\w+)\(([^()]*)\)")
_HOST_NAME = re.compile(r'host_name\(((?:\s*"[^"\n]*")+)\s*\)')
_PLAIN = re.compile(r"(?<![>\]\s])\s*\bkernel void (\w+)\s*\(")
#: Macros use each other to this depth; a text whose macros write more characters than this is damaged.
_DEPTH, _MOST = 5, 1 << 22


def functions(dylib: bytes) -> tuple[Function, ...]:
    """Return the kernels in a library's source texts; the digest is that of the text without its comments.

    Raises:
        OpListError: the macros of a text do not come to an end.
    """
    kernels: dict[str, Function] = {}
    at = 0
    while (at := dylib.find(_KERNEL, at)) >= 0:
        end = dylib.find(b"\0", at)
        text = dylib[dylib.rfind(b"\0", 0, at) + 1 : end].decode("utf-8", "replace")
        at = end if end > 0 else len(dylib)
        code = _NO_CODE.sub(" ", text)
        digest = hashlib.sha256(code.encode()).hexdigest()
        kernels |= {name: Function(name, digest) for name in _names(code)}
    return tuple(kernels[name] for name in sorted(kernels))


def _names(code: str) -> set[str]:
    macros = {name: (words, body) for name, words, body in _DEFINE.findall(code) if name}
    code = _DEFINE.sub("", code)
    written = 0

    def expand(use: re.Match[str]) -> str:
        nonlocal written
        if use[1] not in macros:
            return use[0]
        parameters, body = macros[use[1]]
        written += len(body) + len(use[0])
        if written > _MOST:
            raise OpListError("a Metal source text whose macros do not end", context="libtorch_cpu.dylib")
        values = [value.strip() for value in use[2].split(",")]
        for word, value in zip(parameters.split(","), values, strict=False):
            pattern = re.escape(word.strip())
            plain = value.replace("\\", r"\\")  # the replacement takes a backslash literally
            body = re.sub(rf"(?<!#)#{pattern}\b", f'"{plain}"', body)
            body = re.sub(rf"\b{pattern}\b(?![^\"\s]*\")", plain, body)
        return str(body)

    for _ in range(_DEPTH):
        code = _USE.sub(expand, code)
    hosts = {"".join(re.findall(r'"([^"]*)"', match)) for match in _HOST_NAME.findall(code)}
    return hosts | set(_PLAIN.findall(code))
