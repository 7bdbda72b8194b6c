"""Whether code is for CUDA by intent: several GPUs, offloading, a GPU that the user named."""

from __future__ import annotations

import ast
import re

from opcheck.source.program import Place, Program
from opcheck.source.words import last

#: Names of flags behind which a program with one GPU does not come.
_FLAG = re.compile(
    r"ddp|fsdp|dist(ributed)?$|distributed|world_size|local_rank|^rank$|multi_?gpus?|n_?gpus?$|num_gpus?|^gpus?$|"
    r"gpu_ids?|offload|low_?vram|nccl|data_?parallel|deepspeed|device_ids?$|gpu_num",
    re.IGNORECASE,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: An assertion at the beginning of a branch is one of so many first statements.
_FIRST = 3
_FUNCTION = re.compile(
    r"ddp|distributed|init_dist|main_worker|deepspeed|nccl|offload", re.IGNORECASE
)


def for_cuda(node: ast.AST, program: Program, known: dict[ast.AST, bool]) -> bool:
    """Return whether the code around a node is for several GPUs, for offloading, or for a feature that demands CUDA.

    A flag says so, the name of the function, or an assertion of CUDA at the beginning of the branch; and a private
    function is for CUDA if all code that calls it is.

    Args:
        node: a node of the program.
        program: the file.
        known: the answers so far; blocks may be nested deeply, and each is looked at once.
    """
    inside: list[ast.AST] = []
    answer = False
    for child, place in program.ancestors(node):
        if child in known:
            answer = known[child]
            break
        inside.append(child)
        if _says_so(place):
            answer = True
            break
        parent = place.parent
        if isinstance(parent, _FUNCTIONS) and parent.name[:1] == "_" != parent.name[1:2]:
            # A function that calls itself is not for CUDA by that.
            known.update(dict.fromkeys(inside, False))
            uses = program.uses.get(parent.name, [])
            answer = bool(uses) and all(for_cuda(use, program, known) for use in uses)
            if answer:
                break
    known.update(dict.fromkeys(inside, answer))
    return answer


def _says_so(place: Place) -> bool:
    parent, field = place.parent, place.field
    if isinstance(parent, ast.If) and field in {"body", "orelse"}:
        return _flagged(parent.test) or any(map(_demands, getattr(parent, field)[:_FIRST]))
    if isinstance(parent, ast.IfExp):
        return field != "test" and _flagged(parent.test)
    return isinstance(parent, _FUNCTIONS) and _FUNCTION.search(parent.name) is not None


def _demands(statement: ast.stmt) -> bool:
    """Return whether a statement asserts that there is CUDA."""
    names = ast.walk(statement.test) if isinstance(statement, ast.Assert) else ()
    return any(
        isinstance(part, (ast.Name, ast.Attribute)) and "cuda" in last(part).lower()
        for part in names
    )


def _flagged(test: ast.expr) -> bool:
    names = (last(part) for part in ast.walk(test) if isinstance(part, (ast.Name, ast.Attribute)))
    return any(_FLAG.search(name) for name in names)
