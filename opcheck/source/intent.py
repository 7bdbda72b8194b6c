"""Whether code is for CUDA by intent: several GPUs, offloading, a GPU that the user named."""

import ast
import re

from opcheck.source.call_tables import read_words
from opcheck.source.program import NodePlace, Program
from opcheck.source.words import last, leaves, word

#: Names of flags behind which a program with one GPU does not come.
_FLAG = re.compile(
    r"ddp|fsdp|dist(ributed)?$|distributed|world_size|local_rank|^rank$|multi_?gpus?|n_?gpus?$|num_gpus?|^gpus?$|"
    r"gpu_ids?|offload|low_?vram|nccl|data_?parallel|deepspeed|device_ids?$|gpu_num",
    re.IGNORECASE,
)
#: Variables that a launcher of several processes sets.
_VARIABLE = re.compile(r"^(SLURM_\w+|(LOCAL_)?RANK|WORLD_SIZE)$")
#: Names of the number of processes.
_PROCESSES = re.compile(r"ddp|fsdp|dist|world_size|n_?ranks?$", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: The number of statements at the beginning of a branch that may be an assertion.
_FIRST = 3
_FUNCTION = re.compile(r"ddp|distributed|init_dist|main_worker|deepspeed|nccl|offload", re.IGNORECASE)

_SETS_UP = re.compile(r"init_dist|distributed|nccl", re.IGNORECASE)
_COLLECTIVES = read_words("collectives")


def for_cuda(node: ast.AST, program: Program, answers: dict[object, int]) -> bool:
    """Return whether the code around a node is for several GPUs, for offloading, or for a feature that demands CUDA.

    The evidence is a flag, the name of the function, an assertion of CUDA at the beginning of the branch, or a way out
    for one process above it in the function; a function that hands its CUDA stream to another library (TensorRT, CuPy)
    is for CUDA; and a private function is if all code that calls it is.

    Args:
        node: a node of the program.
        program: the file.
        answers: the answers so far; blocks may be nested deeply, and each is looked at once.
    """
    inside: list[ast.AST] = []
    answer = False
    for child, place in program.ancestors(node):
        if child in answers:
            answer = bool(answers[child])
            break
        inside.append(child)
        parent = place.parent
        streams = program.uses.get("cuda_stream", ())
        if _says_so(place, answers) or any(program.scope(use) is parent for use in streams):
            answer = True
            break
        if isinstance(parent, _FUNCTIONS) and parent.name[:1] == "_" != parent.name[1:2]:
            # A function that calls itself is not for CUDA by that.
            answers.update(dict.fromkeys(inside, False))
            uses = program.uses.get(parent.name, [])
            answer = bool(uses) and all(for_cuda(use, program, answers) for use in uses)
            if answer:
                break
    answers.update(dict.fromkeys(inside, answer))
    return answer


def between_processes(node: ast.AST, program: Program, answers: dict[object, int]) -> bool:
    """Return whether the function around a node exchanges tensors with other processes, whatever its flags say.

    NCCL takes tensors on CUDA, and no backend of torch.distributed takes those on MPS.

    Args:
        node: a node of the program.
        program: the file.
        answers: the answers so far.
    """
    inside: list[tuple[str, ast.AST]] = []
    answer = False
    for child, place in program.ancestors(node):
        key, parent = ("between processes", child), place.parent
        if key in answers:
            answer = bool(answers[key])
            break
        inside.append(key)
        if not isinstance(parent, _FUNCTIONS):
            continue
        key = ("exchanges", parent)
        if key not in answers:
            answers[key] = bool(_SETS_UP.search(parent.name)) or _exchanges(parent, program)
        if answers[key]:
            answer = True
            break
    answers.update(dict.fromkeys(inside, answer))
    return answer


def _exchanges(function: ast.AST, program: Program) -> bool:
    return any(
        isinstance(part, ast.Call)
        and last(part.func) in _COLLECTIVES
        and program.dotted_name(part.func).startswith("torch.distributed.")
        and not any(
            isinstance(place.parent, ast.If) and _has_flag(place.parent.test) for _, place in program.ancestors(part)
        )
        for part in ast.walk(function)
    )


def _says_so(place: NodePlace, answers: dict[object, int]) -> bool:
    parent, field = place.parent, place.field
    if isinstance(parent, ast.If) and field in {"body", "orelse"}:
        return _has_flag(parent.test) or any(map(_demands, getattr(parent, field)[:_FIRST]))
    if isinstance(parent, ast.IfExp):
        return field != "test" and _has_flag(parent.test)
    if not isinstance(parent, _FUNCTIONS) or field != "body":
        return False
    key = ("for one process", parent)
    if key not in answers:
        ends = (number for number, part in enumerate(parent.body) if _ends_for_one(part))
        answers[key] = next(ends, len(parent.body))
    return _FUNCTION.search(parent.name) is not None or place.position > answers[key]


def _ends_for_one(statement: ast.stmt) -> bool:
    """Return whether a statement ends the function for one process: ``if world_size == 1: return``."""
    if not isinstance(statement, ast.If) or statement.orelse or not leaves(statement.body):
        return False
    test = statement.test
    compared = test.comparators[0] if isinstance(test, ast.Compare) else None
    is_one = isinstance(compared, ast.Constant) and compared.value in {0, 1, 2}
    is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return (is_one or is_not) and any(_PROCESSES.search(last(part)) for part in ast.walk(test))


def _demands(statement: ast.stmt) -> bool:
    """Return whether a statement asserts that there is CUDA."""
    names = ast.walk(statement.test) if isinstance(statement, ast.Assert) else ()
    return any("cuda" in last(part).lower() for part in names)


def _has_flag(test: ast.expr) -> bool:
    return any(
        _FLAG.search(last(part)) or (isinstance(part, ast.Constant) and _VARIABLE.match(word(part)))
        for part in ast.walk(test)
    )
