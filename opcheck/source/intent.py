"""Whether code is for CUDA by intent: several GPUs, offloading, a GPU that the user named."""

from __future__ import annotations

import ast
import re

from opcheck.source.program import Program
from opcheck.source.words import last

#: Names of flags behind which a program with one GPU does not come.
_FLAG = re.compile(
    r"ddp|fsdp|dist(ributed)?$|distributed|world_size|local_rank|^rank$|multi_?gpus?|n_?gpus?$|num_gpus?|^gpus?$|"
    r"gpu_ids?|offload|low_?vram|nccl|data_?parallel|deepspeed|device_ids?$|gpu_num",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    r"ddp|distributed|init_dist|main_worker|deepspeed|nccl|offload", re.IGNORECASE
)


def for_cuda(node: ast.AST, program: Program, known: dict[ast.AST, bool]) -> bool:
    """Return whether a flag or the function around a node says that the code is for several GPUs or for offloading.

    Args:
        node: a node of the program.
        program: the file.
        known: the answers so far; blocks may be nested deeply, and each is looked at once.
    """
    inside: list[ast.AST] = []
    answer = False
    for child, (parent, field, _, _) in program.ancestors(node):
        if child in known:
            answer = known[child]
            break
        inside.append(child)
        if _says_so(parent, field):
            answer = True
            break
    known.update(dict.fromkeys(inside, answer))
    return answer


def _says_so(parent: ast.AST, field: str) -> bool:
    if isinstance(parent, (ast.If, ast.IfExp)):
        return field in {"body", "orelse"} and _flagged(parent.test)
    is_function = isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef))
    return is_function and _FUNCTION.search(parent.name) is not None  # type: ignore[attr-defined]  # a function


def _flagged(test: ast.expr) -> bool:
    names = (last(part) for part in ast.walk(test) if isinstance(part, (ast.Name, ast.Attribute)))
    return any(_FLAG.search(name) for name in names)
