"""A choice between CUDA and the CPU that leaves MPS out."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opcheck.common.versions import Version
from opcheck.source.call_tables import IDLE, INSTEAD, ON_MPS
from opcheck.source.devices import (
    Device,
    asks_cuda,
    asks_mps,
    cuda_name,
    device_name,
    find_offer,
    holds_on_cuda,
    read_choice,
    read_device,
    torch_name,
)
from opcheck.source.edits import Applicability, Edit, Fix, insert_before, insert_line, is_too_long, replace
from opcheck.source.handled import handles_mps
from opcheck.source.program import walk
from opcheck.source.rule import Hit, Scanned, hit, method, rule
from opcheck.source.words import find_called, is_cuda, last, leaves

#: Statements inside of so many others are looked at; machine-made files nest 100,000 deep.
_DEEPEST = 3
#: So many statements below an if statement are looked at.
_FURTHER = 30
#: Names of functions about the presence or the abilities of a GPU, and not about CUDA.
_TELLS_OF_GPU = re.compile(r"gpu|device|accel|bf16|half|fp16|amp(_|$)|autocast")
#: Functions that return how much memory is used, or is left.
_MEMORY = re.compile(r"torch\.cuda\.(\w*memory_(allocated|reserved|stats)|mem_get_info)$")


@rule("OC222")
def find_device_choices(
    node: ast.IfExp | ast.If | ast.Assign | ast.Return | ast.keyword, scanned: Scanned
) -> Iterator[Hit]:
    """Ternaries, if statements, flags, guarded moves and guarded calls of torch.cuda, each without MPS."""
    hits: Iterator[Hit] = iter(())
    if isinstance(node, ast.IfExp):
        hits = _ternary(node, scanned)
    elif isinstance(node, ast.If):
        hits = _statement(node, scanned)
    elif isinstance(node, ast.Assign) or (isinstance(node, ast.Return) and _tells_of_gpu(node, scanned)):
        hits = _flag(node, node.value, scanned)
    elif isinstance(node, ast.keyword) and (
        node.arg == "default" or (isinstance(node.value, ast.Call) and re.search("gpu|cuda", node.arg or ""))
    ):
        hits = _flag(node.value, node.value, scanned)
    # Most files choose no device, so whether a function handles MPS comes last.
    yield from (hit for hit in hits if not handles_mps(node, scanned))


# -- "cuda" if torch.cuda.is_available() else "cpu" --------------------------------------------------


def _ternary(node: ast.IfExp, scanned: Scanned) -> Iterator[Hit]:
    on_cuda = holds_on_cuda(node.test, scanned)
    if on_cuda is None:
        # An entry of a dict may become a device; in an argument OC202 names the text itself.
        devices = read_choice(node.body, node.orelse, scanned)
        if devices is not None and isinstance(scanned.program.parent(node), ast.Dict):
            yield hit("choice", node)
        return
    first, second = (node.body, node.orelse) if on_cuda else (node.orelse, node.body)
    devices = read_choice(first, second, scanned)
    if devices is not None and is_cuda(devices[0].text):
        yield hit("choice", node, fix=_ternary_fix(node, first, second, devices, scanned))
    elif _moves(first, scanned) and not isinstance(second, ast.IfExp):
        yield hit("move", node, fix=_fix_move(node, first, scanned) if on_cuda else None)


def _ternary_fix(
    node: ast.IfExp, first: ast.expr, second: ast.expr, devices: tuple[Device, Device], scanned: Scanned
) -> Fix | None:
    if isinstance(node.test, ast.Attribute) and node.test.attr == "is_cuda":
        return _like_tensor(node, node.test, devices, scanned)
    test = scanned.text(node.test)
    asked = asks_mps(node.test, scanned)
    # A comparison of a device, as nanoGPT's, chooses the type for torch.autocast, which takes mps since 2.5.
    since = Version(2, 5) if isinstance(node.test, ast.Compare) else Version(1, 12)
    if isinstance(node.test, ast.Compare) and re.fullmatch(r"(?:(?!cuda).)*([\"'])cuda\1(?:(?!cuda).)*", test):
        asked = test.replace("cuda", "mps")
    if not asked or first is not node.body or devices[1].text != "cpu":
        return None
    mps = scanned.text(second).replace("cpu", "mps")
    edits = (insert_before(second, f"{mps} if {asked} else "),)
    helper = _call_of_helper(node, devices, scanned)
    # The helper gives no index: in its place where the choice itself would be too long.
    is_indexed = devices[0].text == "cuda:0"
    if is_indexed and is_too_long(edits, scanned.lines):
        return Fix(edits, "unsafe", helper)
    return Fix(edits, "safe", () if is_indexed else helper, since)


def _call_of_helper(node: ast.IfExp, devices: tuple[Device, Device], scanned: Scanned) -> tuple[Edit, ...]:
    """The same by a helper function, where nothing but CUDA decides."""
    plain = isinstance(node.test, ast.Call) and devices[0].text in {"cuda", "cuda:0"}
    if not plain or devices[0].is_object != devices[1].is_object:
        return ()
    return (replace(node, _write_device("{helper}", devices[0], scanned)),)


def _write_device(text: str, like: Device, scanned: Scanned) -> str:
    """Write a device as a text, or as a torch.device, as another one is written."""
    return f"{torch_name(scanned)}.device({text})" if like.is_object else text


def _like_tensor(node: ast.expr, asked: ast.Attribute, devices: tuple[Device, Device], scanned: Scanned) -> Fix | None:
    """``"cuda" if x.is_cuda else "cpu"`` is the type of the tensor's device."""
    if (devices[0].text, devices[1].text) != ("cuda", "cpu") or devices[0].is_object != devices[1].is_object:
        return None
    if devices[0].is_object and not torch_name(scanned):
        return None
    text = _write_device(f"{scanned.text(asked.value)}.device.type", devices[0], scanned)
    return Fix((_without_parentheses(node, text, scanned),))


def _without_parentheses(node: ast.expr, text: str, scanned: Scanned) -> Edit:
    """Replace an expression by a text on one line, with the parentheses that held its lines together."""
    edit, statement = replace(node, text), scanned.program.parent(node)
    if not isinstance(statement, ast.Assign) or statement.value is not node:
        return edit
    start = statement.targets[-1].end_col_offset or 0
    if statement.targets[-1].end_lineno != node.lineno:
        return edit
    between = scanned.lines[node.lineno - 1].encode()[start : node.col_offset].decode()
    is_wrapped = re.fullmatch(r"\s*=\s*\(\s*", between) is not None
    tail = scanned.lines[(statement.end_lineno or 1) - 1].encode()[: statement.end_col_offset]
    if not is_wrapped or statement.end_lineno != node.end_lineno or tail[node.end_col_offset :].strip() != b")":
        return edit
    return Edit(node.lineno, start + between.index("("), edit.end_line, statement.end_col_offset or 0, text)


# -- if torch.cuda.is_available(): ... ---------------------------------------------------------------


class _Sides(NamedTuple):
    """What an if statement does with CUDA, and what it does without."""

    cuda: list[ast.stmt]
    other: list[ast.stmt]
    #: whether the condition is true with CUDA
    on_cuda: bool
    #: whether the function ends here without CUDA, so that the code below is for CUDA
    ends: bool


def _statement(node: ast.If, scanned: Scanned) -> Iterator[Hit]:
    on_cuda = holds_on_cuda(node.test, scanned)
    if on_cuda is None:
        return
    cuda, other = (node.body, node.orelse) if on_cuda else (node.orelse, node.body)
    ends = not on_cuda and not node.orelse and leaves(node.body)
    if ends:
        cuda = _statements_after(node, scanned)
    sides = _Sides(cuda, other, on_cuda, ends)
    for form in (_device_bound, _guarded_move, _guarded_memory, _answer, _memory_read):
        if (hit := form(node, sides, scanned)) is not None:
            yield hit
            return


def _device_bound(node: ast.If, sides: _Sides, scanned: Scanned) -> Hit | None:
    bound = _bound_device(sides.cuda, scanned)
    if bound is not None and is_cuda(bound[1].text):
        before = _statement_before(node, scanned)
        after = _bound_device(sides.other, scanned)
        after = after or _bound_device([before] if before else [], scanned)
        if not sides.other and bound[0] == "return":
            after = after or _bound_device(_statements_after(node, scanned)[:1], scanned)
        if after is not None and after[0] == bound[0] and not is_cuda(after[1].text):
            devices = (bound[1], after[1])
            return hit("choice", node.test, fix=_statement_fix(node, scanned, devices, on_cuda=sides.on_cuda))
    gives_up = not sides.on_cuda and not sides.cuda and _gives_up(sides.other, scanned)
    return hit("choice", node.test) if gives_up or _chooses_among_more(node, sides, scanned) else None


def _guarded_move(node: ast.If, sides: _Sides, scanned: Scanned) -> Hit | None:
    end = node.body[-1]
    if sides.ends and not (isinstance(end, ast.Return) and end.value):
        return None
    if not any(_moves(part, scanned) for each in _simple(sides.cuda) for part in walk(each)):
        return None
    only = node.body[0]
    fix = None
    if sides.on_cuda and len(node.body) == 1 and not node.orelse and isinstance(only, (ast.Assign, ast.Expr)):
        fix = _fix_move(node, only.value, scanned)
    return hit("move", node.test, fix=fix)


def _guarded_memory(node: ast.If, sides: _Sides, scanned: Scanned) -> Hit | None:
    called = [_memory_call(statement, scanned) for statement in sides.cuda]
    # With other calls synchronize() belongs to them: to the timing by events of CUDA.
    names = [name for name in called if name in ON_MPS and (all(called) or name == "empty_cache")]
    if not names or sides.ends:
        return None
    fix = _memory_fix(node, called, scanned) if sides.on_cuda and all(called) else None
    return hit("called for cuda", node.test, fix=fix, name=names[0])


def _answer(node: ast.If, sides: _Sides, scanned: Scanned) -> Hit | None:
    """``if torch.cuda.is_available(): return True``, and False otherwise, in a function about a GPU."""
    other = sides.other or _statements_after(node, scanned)
    answers = (_find_answer(sides.cuda), _find_answer(other))
    is_flag = answers == (True, False) and _tells_of_gpu(node, scanned)
    return hit("flag", node.test) if is_flag else None


def _find_answer(block: Sequence[ast.stmt]) -> object:
    """The constant that a block returns at once."""
    value = block[0].value if block and isinstance(block[0], ast.Return) else None
    return value.value if isinstance(value, ast.Constant) else None


def _memory_read(node: ast.If, sides: _Sides, scanned: Scanned) -> Hit | None:
    """Memory that is read for more than a message; without CUDA the program counts none."""
    calls = (
        part
        for statement in _simple(sides.cuda)
        if not isinstance(statement, ast.Expr)
        for part in walk(statement)
        if isinstance(part, ast.Call)
    )
    name = next((name for part in calls if _MEMORY.match(name := scanned.dotted_name(part.func))), "")
    if not name:
        return None
    short = name.removeprefix("torch.cuda.")
    return hit("read for cuda", node.test, name=name, instead=IDLE.get(short) or INSTEAD.get(short))


def _simple(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The simple statements of a block, and inside of its blocks."""
    kinds = (ast.Assign, ast.Expr, ast.Return, ast.AnnAssign)
    yield from (statement for statement in _inside(block) if isinstance(statement, kinds))


def _inside(block: Sequence[ast.stmt], depth: int = _DEEPEST) -> Iterator[ast.stmt]:
    """The statements of a block, and those in the blocks inside of it."""
    for statement in block:
        yield statement
        if depth and isinstance(statement, (ast.If, ast.For, ast.With, ast.Try)):
            yield from _inside(statement.body, depth - 1)
            yield from _inside(getattr(statement, "orelse", ()), depth - 1)


def _tells_of_gpu(node: ast.AST, scanned: Scanned) -> bool:
    name = scanned.program.function(node).lower()
    return "cuda" not in name and _TELLS_OF_GPU.search(name) is not None


def _devices(block: Sequence[ast.stmt], scanned: Scanned) -> Iterator[tuple[str, Device]]:
    """What the statements of a block bind to a device, or ``return`` and the device."""
    for statement in _inside(block):
        name, value = _split_binding(statement)
        device = find_offer(value, scanned)
        if device is not None:
            yield name, device


def _chooses_among_more(node: ast.If, sides: _Sides, scanned: Scanned) -> bool:
    """Return whether both sides bind the same name, to CUDA and to the CPU, among other statements."""
    on_cuda = {name for name, device in _devices(sides.cuda, scanned) if is_cuda(device.text)}
    if not on_cuda:
        return False
    other = sides.other
    if "return" in on_cuda:  # the function may give the CPU back further below
        other = [*other, *_later(node, scanned)]
    return any(name in on_cuda for name, device in _devices(other, scanned) if not is_cuda(device.text))


def _later(node: ast.If, scanned: Scanned) -> Iterator[ast.stmt]:
    """The statements of the function below an if statement, and not inside of it."""
    for statement, _ in scanned.program.ancestors(node):
        if not isinstance(statement, ast.stmt) or isinstance(statement, _FUNCTIONS):
            return
        yield from _statements_after(statement, scanned)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _gives_up(block: list[ast.stmt], scanned: Scanned) -> bool:
    """Return whether a block turns to the CPU: ``device = "cpu"``, ``args.cpu = True``, ``use_gpu = False``."""
    bound = _bound_device(block, scanned)
    if bound is not None:
        return bound[0] != "return" and not is_cuda(bound[1].text)
    statements = [part for part in block if not _prints(part)]
    only = statements[0] if len(statements) == 1 else None
    if not (isinstance(only, ast.Assign) and isinstance(only.value, ast.Constant)):
        return False
    words = last(only.targets[0]).lower().split("_")
    return ("cpu" in words and only.value.value is True) or (
        bool({"gpu", "cuda"}.intersection(words)) and only.value.value is False
    )


def _bound_device(block: list[ast.stmt], scanned: Scanned) -> tuple[str, Device] | None:
    """What a block binds to a device (or ``return``), where it does nothing else but print."""
    statements = [part for part in block if not _prints(part)]
    if len(statements) != 1:
        return None
    name, value = _split_binding(statements[0])
    device = read_device(value, scanned)
    return (name, device) if device is not None else None


def _split_binding(statement: ast.stmt) -> tuple[str, ast.expr | None]:
    """What a statement binds, or ``return``, and the value; no value for another statement."""
    match statement:
        case ast.Return(value=value):
            return "return", value
        case ast.Assign(targets=[target], value=value):
            return ast.unparse(target), value
    return "", None


def _prints(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):  # if verbose: print(...)
        return not statement.orelse and all(isinstance(part, ast.Expr) and _prints(part) for part in statement.body)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    names = {"print", "info", "warning", "debug", "warn", "print0", "error"}
    called = find_called(statement)
    return called is not None and last(called) in names


def _block(node: ast.stmt, scanned: Scanned) -> tuple[list[ast.stmt], int]:
    """The block around a statement, and the statement's position there."""
    place = scanned.program.place(node)
    block = getattr(place.parent, place.field, None) if place else None
    return (block, place.position) if place is not None and isinstance(block, list) else ([], 0)


def _statement_before(node: ast.stmt, scanned: Scanned) -> ast.stmt | None:
    block, position = _block(node, scanned)
    return block[position - 1] if position else None


def _statements_after(node: ast.stmt, scanned: Scanned) -> list[ast.stmt]:
    block, position = _block(node, scanned)
    return block[position + 1 : position + 1 + _FURTHER]


def _statement_fix(node: ast.If, scanned: Scanned, devices: tuple[Device, Device], *, on_cuda: bool) -> Fix | None:
    """Add an ``elif`` branch for MPS."""
    if not on_cuda or devices[1].text != "cpu" or len(node.body) != 1:
        return None
    statement = node.body[0]
    if isinstance(node.test, ast.Attribute) and node.test.attr == "is_cuda":
        before = _statement_before(node, scanned)
        if node.orelse or not isinstance(statement, ast.Assign) or not isinstance(before, ast.Assign):
            return None
        like = _like_tensor(statement.value, node.test, devices, scanned)
        if like is None:
            return None
        # Both statements are merged.
        first = replace(before, f"{scanned.text(statement.targets[0])} = {like.edits[0].text}")
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return Fix((first._replace(end_line=end_line, end_column=end_column),))
    asked = asks_mps(node.test, scanned)
    value = statement.value if isinstance(statement, (ast.Assign, ast.Return)) else None
    if not asked or value is None or _is_elif(node, scanned):
        return None
    device = _write_device('"mps"', devices[0], scanned)
    target = f"{scanned.text(statement.targets[0])} =" if isinstance(statement, ast.Assign) else "return"
    return _elif(node, asked, [f"{target} {device}"], scanned)


def _is_elif(node: ast.If, scanned: Scanned) -> bool:
    return scanned.lines[node.lineno - 1].encode()[node.col_offset :].startswith(b"elif")


def _elif(node: ast.If, asked: str, body: list[str], scanned: Scanned) -> Fix | None:
    """Insert a branch below the first branch of an if statement."""
    if _is_elif(node, scanned):
        return None
    indent = scanned.lines[node.lineno - 1][: node.col_offset]
    if indent.strip():
        return None
    deeper = " " * 4
    if node.body[0].lineno > node.lineno:
        deeper = scanned.lines[node.body[0].lineno - 1][len(indent) : node.body[0].col_offset]
    lines = [f"{indent}elif {asked}:", *(f"{indent}{deeper}{line}" for line in body)]
    if not node.orelse:
        return Fix((insert_line((node.body[-1].end_lineno or node.lineno) + 1, "\n".join(lines)),))
    places = range(node.orelse[0].lineno, node.body[-1].end_lineno or 0, -1)
    begins = (f"{indent}else", f"{indent}elif")
    line = next((line for line in places if scanned.lines[line - 1].startswith(begins)), 0)
    return Fix((insert_line(line, "\n".join(lines)),)) if line else None


# -- if use_cuda: x = x.cuda() -----------------------------------------------------------------------


def _moves(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether a call is ``x.cuda(...)`` or ``x.to("cuda")``."""
    if not isinstance(node, ast.Call) or method(node) != "to":
        return method(node) == "cuda"
    device = read_device(node.args[0], scanned) if node.args else None
    return device is not None and is_cuda(device.text)


def _index(call: ast.Call, scanned: Scanned) -> bool:
    """Return whether a move names a certain GPU, or gives more than the device."""
    if method(call) == "cuda":
        return bool(call.args)
    device = read_device(call.args[0], scanned)
    return len(call.args) > 1 or device is None or device.text != "cuda"


def _fix_move(node: ast.If | ast.IfExp, value: ast.expr, scanned: Scanned) -> Fix | None:
    """Move to the device in sight, else add a branch of its own for MPS."""
    match value:
        case ast.Call(func=ast.Attribute(value=moved)) if _moves(value, scanned) and not _index(value, scanned):
            return _write_move(node, value, moved, scanned) or _moved_by_branch(node, value, moved, scanned)
    return None


def _write_move(node: ast.If | ast.IfExp, call: ast.Call, value: ast.expr, scanned: Scanned) -> Fix | None:
    """``x.to(device)``; unsafe where the name in scope may not be the device that the condition chooses."""
    certain = cuda_name(node.test, scanned, node.test)
    device = certain or device_name(node, scanned)
    applicability: Applicability = "safe" if certain else "unsafe"
    if not device or any(keyword.arg != "non_blocking" for keyword in call.keywords):
        return None
    receiver = scanned.text(value)
    moved = f"{receiver}.to({device}{scanned.keywords(call)})"
    if "\n" in moved or isinstance(value, (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Lambda, ast.Await)):
        return None  # it may need brackets
    if isinstance(node, ast.IfExp):
        same = receiver == scanned.text(node.orelse)
        return Fix((replace(node, moved),), applicability) if same else None
    statement = None if _is_elif(node, scanned) else node.body[0]
    if isinstance(statement, ast.Assign):
        target = scanned.text(statement.targets[0])
        edit = replace(node, f"{target} = {moved}")
        return Fix((edit,), applicability) if target == receiver else None
    return Fix((replace(node, moved),), applicability) if isinstance(statement, ast.Expr) else None


def _moved_by_branch(node: ast.If | ast.IfExp, call: ast.Call, value: ast.expr, scanned: Scanned) -> Fix | None:
    """A branch of its own for MPS; what else the program moves may not go there, so that it is unsafe."""
    asked = asks_mps(node.test, scanned)
    moved = f'{scanned.text(value)}.to("mps"{scanned.keywords(call)})'
    if not asked or "\n" in moved or any(keyword.arg is None for keyword in call.keywords):
        return None
    if isinstance(node, ast.IfExp):
        return Fix((insert_before(node.orelse, f"{moved} if {asked} else "),), "unsafe")
    statement = node.body[0]
    target = f"{scanned.text(statement.targets[0])} = " if isinstance(statement, ast.Assign) else ""
    branch = _elif(node, asked, [f"{target}{moved}"], scanned)
    return branch._replace(applicability="unsafe") if branch else None


# -- if torch.cuda.is_available(): torch.cuda.empty_cache() ------------------------------------------


def _memory_call(statement: ast.stmt, scanned: Scanned) -> str:
    name = scanned.dotted_name(find_called(statement))
    return name.removeprefix("torch.cuda.") if name.startswith("torch.cuda.") else ""


def _memory_fix(node: ast.If, called: list[str], scanned: Scanned) -> Fix | None:
    asked = asks_mps(node.test, scanned)
    torch = torch_name(scanned)
    body = [f"{torch}.mps.{name}()" for name in called if name in ON_MPS]
    branch = _elif(node, asked, body, scanned) if asked and not node.orelse else None
    return branch._replace(since=Version(2, 0)) if branch else None


# -- use_cuda = not args.no_cuda and torch.cuda.is_available() ---------------------------------------


def _flag(place: ast.AST, value: ast.expr | None, scanned: Scanned) -> Iterator[Hit]:
    """A flag for the use of CUDA; it decides elsewhere."""
    if value is None:
        return
    asks = any(asks_cuda(part, scanned) for part in _parts(value))
    if asks and scanned.mac.truth(value) is False:
        yield hit("flag", place)


def _parts(value: ast.expr) -> tuple[ast.expr, ...]:
    """The conditions behind a flag: ``a and b``, or ``True if a else False``."""
    if isinstance(value, ast.IfExp) and isinstance(value.body, ast.Constant) and isinstance(value.body.value, bool):
        value = value.test
    return (value, *value.values) if isinstance(value, ast.BoolOp) else (value,)
