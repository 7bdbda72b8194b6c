"""Conditions that leave MPS out: refusals, branches for CUDA alone, lists of devices."""

import ast
from collections.abc import Iterator

from opcheck.source.call_tables import read_words
from opcheck.source.devices import about_cuda, asks_cuda, torch_name
from opcheck.source.edits import Fix, insert_after, replace
from opcheck.source.handled import handles_mps
from opcheck.source.program import walk
from opcheck.source.rule import Hit, Scanned, argument, hit, method, rule
from opcheck.source.rules.device_choice import find_device_choices
from opcheck.source.words import find_called, find_caught, find_raised, is_cuda, last, tells_failure, word

# -- OC204: the program refuses to run without CUDA ------------------------------------------------

#: Objects whose attribute ``is_cuda`` is a flag of the program, and not that of a tensor.
_HAVE_FLAGS = {"args", "cfg", "config", "opt", "options", "self"}
_EXITS = {"sys.exit", "exit", "quit", "os._exit"}


@rule("OC204")
def find_refusals(node: ast.Assert | ast.If, scanned: Scanned) -> Iterator[Hit]:
    """``assert`` of CUDA, and ``if not CUDA: raise``."""
    refuses = _is_about_cuda(node.test) and scanned.mac.truth(node.test) is isinstance(node, ast.If)
    refuses = refuses and (isinstance(node, ast.Assert) or _ends(node.body[-1], scanned))
    may = isinstance(node, ast.If) and not refuses and _may_refuse(node, scanned)
    if (refuses or may) and not _is_caught(node, scanned):
        yield hit("may end" if may else "ends", node.test, fix=_fix(node, scanned))


def _may_refuse(node: ast.If, scanned: Scanned) -> bool:
    """``if dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(): raise``."""
    parts = node.test.values if isinstance(node.test, ast.BoolOp) else []
    return (
        isinstance(getattr(node.test, "op", None), ast.And)
        and _ends(node.body[-1], scanned)
        and scanned.mac.truth(node.test) is None
        and not handles_mps(node, scanned)
        and any(scanned.mac.truth(part) is True and _is_about_cuda(part) for part in parts)
    )


def _fix(node: ast.Assert | ast.If, scanned: Scanned) -> Fix | None:
    """Let MPS pass, too; what follows may still need CUDA."""
    torch, test = torch_name(scanned), node.test
    asked = test.operand if isinstance(test, ast.UnaryOp) else test
    allowed = f'{"not " * isinstance(node, ast.If)}in {{"cuda", "mps"}}'
    match asked:
        case ast.Compare(ast.Attribute(attr="type") as kind, [ast.Eq() | ast.NotEq()], [ast.Constant("cuda")]):
            return Fix((replace(test, f"{scanned.text(kind)} {allowed}"),), "unsafe")
        case ast.Attribute(ast.Name() | ast.Attribute() as owner, "is_cuda") if last(owner) not in _HAVE_FLAGS:
            return Fix((replace(test, f"{scanned.text(owner)}.device.type {allowed}"),), "unsafe")
    if not torch or not asks_cuda(asked, scanned):
        return None
    joined = "and not" if isinstance(node, ast.If) else "or"
    return Fix((insert_after(test, f" {joined} {torch}.backends.mps.is_available()"),), "unsafe")


def _is_about_cuda(test: ast.expr) -> bool:
    texts = (word(part).lower() for part in walk(test))
    return any("cuda" in text or "nccl" in text for text in texts)


def _is_caught(node: ast.Assert | ast.If, scanned: Scanned) -> bool:
    """Return whether a handler in the same function catches what the branch raises, and continues."""
    end = node.body[-1] if isinstance(node, ast.If) else node
    if not isinstance(end, (ast.Raise, ast.Assert)):
        return False
    raised = find_raised(end) if isinstance(end, ast.Raise) else None
    name = "AssertionError" if raised is None else last(raised)
    for _, place in scanned.program.ancestors(node):
        if isinstance(place.parent, ast.Try) and place.field == "body":
            for handler in place.parent.handlers:
                if find_caught(handler) & {name, "Exception", "BaseException"}:
                    return not _ends(handler.body[-1], scanned) and not any(map(tells_failure, ast.walk(handler)))
        if place.parent is place.scope:
            break
    return False


def _ends(statement: ast.stmt, scanned: Scanned) -> bool:
    if isinstance(statement, ast.Raise):
        raised = find_raised(statement)
        return raised is None or "skip" not in ast.unparse(raised).lower()
    called = find_called(statement)
    name = scanned.dotted_name(called) or (called.id if isinstance(called, ast.Name) else "")
    return name in _EXITS


# -- OC223: a branch that CUDA alone takes ---------------------------------------------------------

_HALF = {"torch.float16", "torch.half", "torch.bfloat16"}
_HALF_TEXTS = {"float16", "bfloat16", "fp16", "bf16", "half"}
#: The contents of a branch that a Mac does not need: seeds, settings of CUDA, messages.
_NOT_NEEDED = tuple(read_words("not_needed"))
_NOT_ABOUT = {"pin_memory", "pin_memory_device"}
_MESSAGES = read_words("messages") | {"error", "append", "write"}


@rule("OC223")
def find_cuda_branches(
    node: ast.Compare | ast.Attribute | ast.Call | ast.If | ast.IfExp, scanned: Scanned
) -> Iterator[Hit]:
    """Comparisons of a device with ``"cuda"``, ``is_cuda`` and ``is_bf16_supported()`` that decide something."""
    if isinstance(node, (ast.If, ast.IfExp)):
        yield from _half(node, scanned)
    elif _asks(node, scanned) and scanned.mac.truth(node) is not None and _decides(node, scanned):
        yield hit("true for cuda", node)


def _asks(node: ast.AST, scanned: Scanned) -> bool:
    return _is_of_cuda(node, scanned) and not handles_mps(node, scanned)


def _is_of_cuda(node: ast.AST, scanned: Scanned) -> bool:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        texts = [part.value for side in sides for part in _constants(side)]
        return len(node.ops) == 1 and any(map(is_cuda, texts)) and all(map(is_cuda, texts))
    if isinstance(node, ast.Call):
        begins = method(node) == "startswith" and len(node.args) == 1
        text = node.args[0].value if begins and isinstance(node.args[0], ast.Constant) else None
        return is_cuda(text) or scanned.dotted_name(node.func) == "torch.cuda.is_bf16_supported"
    return isinstance(node, ast.Attribute) and node.attr == "is_cuda"


def _constants(node: ast.expr) -> Iterator[ast.Constant]:
    if isinstance(node, ast.Constant):
        yield node
    elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        yield from (part for part in node.elts if isinstance(part, ast.Constant))
    elif isinstance(node, ast.Call) and node.args and last(node.func) == "device":
        yield from _constants(node.args[0])


def _decides(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether anything but messages and checks depends on a comparison."""
    for child, (parent, field, _, _) in scanned.program.ancestors(node):
        if isinstance(parent, ast.Assert):
            return False
        if isinstance(parent, ast.keyword) and parent.arg in _NOT_ABOUT:
            return False
        if isinstance(parent, ast.If) and field == "test":
            if all(map(_is_check, parent.body)) or not _is_needed(parent, scanned):
                return False
            return not scanned.once(("named by OC222", parent), _named_before, parent, scanned)
        if isinstance(parent, ast.IfExp) and child is parent.test:
            return not scanned.once(("named by OC222", parent), _named_before, parent, scanned)
        if isinstance(parent, (ast.JoinedStr, ast.ListComp, ast.GeneratorExp)):
            return False
        if isinstance(parent, ast.stmt):
            # A flag decides elsewhere; a statement of its own does not.
            return isinstance(parent, (ast.Assign, ast.AnnAssign, ast.Return, ast.With, ast.While))
    return False


def _named_before(node: ast.If | ast.IfExp, scanned: Scanned) -> bool:
    return any(find_device_choices.check(node, scanned)) or any(_half(node, scanned))


def _is_check(statement: ast.stmt) -> bool:
    is_way_out = isinstance(statement, (ast.Raise, ast.Continue, ast.Break, ast.Pass))
    called = find_called(statement)
    return is_way_out or (called is not None and last(called) in _MESSAGES)


def _is_needed(node: ast.If, scanned: Scanned) -> bool:
    called = map(find_called, node.body)
    return not all(each and scanned.dotted_name(each).startswith(_NOT_NEEDED) for each in called)


def _half(node: ast.If | ast.IfExp, scanned: Scanned) -> Iterator[Hit]:
    """A branch for CUDA that chooses half precision, where the other chooses another dtype."""
    first = node.body if isinstance(node.body, list) else [node.body]
    second = node.orelse if isinstance(node.orelse, list) else [node.orelse]
    if any(isinstance(part, (ast.If, ast.IfExp)) for part in second):
        return
    if (
        any(_is_half(part, scanned) for part in (*first, *second))
        and scanned.mac.truth(node.test) is not None
        and about_cuda(node.test, scanned)
        and not handles_mps(node, scanned)
    ):
        yield hit("half for cuda", node.test)


def _is_half(node: ast.AST, scanned: Scanned) -> bool:
    """Return whether an expression, or what a statement assigns, is a dtype of 16 bits."""
    if isinstance(node, (ast.Assign, ast.Expr)):
        node = node.value
    if method(node) in {"half", "bfloat16"}:
        return True
    if isinstance(node, ast.Constant):
        return node.value in _HALF_TEXTS
    if isinstance(node, ast.Call) and method(node) == "to":
        parts = (*node.args, *(word.value for word in node.keywords))
        return any(scanned.dotted_name(part) in _HALF for part in parts)
    return scanned.dotted_name(node) in _HALF


# -- OC224: a list of allowed devices that lacks mps -----------------------------------------------

_OPTIONS = {"add_argument", "option", "Option", "Argument", "Choice", "add_option", "Literal"}
#: What a user chooses from on a page or in a window, and the position of the list.
_WIDGETS = {"Radio": 0, "Dropdown": 0, "addItems": 0, "selectbox": 1, "radio": 1}
_DEVICES = {"cpu", "auto", "gpu", "xpu", "npu", "hpu", "xla", "tpu"}
_LONGEST_CHAIN = 8
_PROVIDER, _APPLE = "CUDAExecutionProvider", "CoreMLExecutionProvider"


def _option(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    name = last(node.func)
    if name in _OPTIONS:
        listed = argument(node, 0 if name == "Choice" else None, "choices", "type")
        yield from _lists(listed, node, scanned)
    else:
        listed = argument(node, _WIDGETS.get(name), "choices", "options", "values")
        yield from _lists(listed, None, scanned)


def _entries(node: ast.Dict, scanned: Scanned) -> Iterator[Hit]:
    """``{"device": ["cuda", "cpu"]}``, also with the list first in a tuple."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and "device" in str(key.value).lower():
            first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else None
            yield from _lists(first if isinstance(first, ast.List) else value, None, scanned)


def _texts(node: ast.AST | None) -> list[str]:
    """The texts of a list that has nothing else."""
    elements = node.elts if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else []
    texts = [part.value for part in elements if isinstance(part, ast.Constant)]
    plain = [text for text in texts if isinstance(text, str)]
    return plain if len(plain) == len(elements) else []


def _lists(node: ast.expr | None, option: ast.AST | None, scanned: Scanned) -> Iterator[Hit]:
    if isinstance(node, ast.Call) and last(node.func) == "Choice":
        return  # the call is examined by itself
    texts = _texts(node)
    devices = [text for text in texts if is_cuda(text)]
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)) or not devices:
        return
    if len(texts) < 2 or "mps" in texts or not all(map(_is_device, texts)):
        return
    safe = isinstance(option, ast.Call) and _reaches_torch_alone(option, scanned)
    quote = scanned.text(node.elts[-1])[:1]
    text = f"{quote}mps{quote}" if quote in {"'", '"'} else '"mps"'
    yield hit(
        "allowed devices",
        node,
        fix=Fix((insert_after(node.elts[-1], f", {text}"),), "safe" if safe else "unsafe"),
        devices=", ".join(texts),
    )


def _chain(node: ast.If, scanned: Scanned) -> Iterator[Hit]:
    """``if device == "cuda": ... elif device == "cpu": ... else: raise``."""
    if len(node.orelse) != 1 or not _turns_away(node.orelse[0]):
        return
    compared: list[tuple[str, str]] = []
    link: ast.AST | None = node
    while isinstance(link, ast.If) and len(compared) < _LONGEST_CHAIN:
        compared.append(_split_comparison(link.test))
        parent = scanned.program.parent(link)
        link = parent if isinstance(parent, ast.If) and parent.orelse == [link] else None
    texts = [text for _, text in reversed(compared)]
    of_cuda = list(map(is_cuda, texts))
    is_same = len({about for about, _ in compared}) == 1 and compared[0][0]
    if is_same and any(of_cuda) and not all(of_cuda) and all(map(_is_device, texts)):
        yield hit("refused branch", node.orelse[0], devices=", ".join(texts))


def _turns_away(statement: ast.stmt) -> bool:
    called = find_called(statement)
    return isinstance(statement, ast.Raise) or (called is not None and last(called) == "print")


def _is_device(text: str) -> bool:
    return is_cuda(text) or text in _DEVICES


def _split_comparison(test: ast.expr) -> tuple[str, str]:
    """What a condition compares with a text, and the text: ``device == "cuda"``, ``"cuda" in device``."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return "", ""
    sides = [test.left, test.comparators[0]]
    if not isinstance(test.ops[0], ast.Eq):
        sides.reverse()
    text = sides[1].value if isinstance(sides[1], ast.Constant) else None
    is_asked = isinstance(test.ops[0], (ast.Eq, ast.In)) and isinstance(text, str)
    return (ast.unparse(sides[0]), str(text)) if is_asked else ("", "")


def _refuses(node: ast.Compare, scanned: Scanned) -> bool:
    """Return whether a program ends if the comparison is false."""
    parent = scanned.program.parent(node)
    if isinstance(parent, ast.Assert):
        return isinstance(node.ops[0], ast.In)
    ends = isinstance(parent, ast.If) and parent.body and isinstance(parent.body[-1], ast.Raise)
    return bool(ends) and isinstance(node.ops[0], ast.NotIn)


def _reaches_torch_alone(option: ast.Call, scanned: Scanned) -> bool:
    """Return whether the file hands the option to ``torch.device()`` or ``.to()``, and does nothing else with it."""
    constants = [part.value for part in option.args if isinstance(part, ast.Constant)]
    texts = [text for text in constants if isinstance(text, str)]
    written = next((text for text in texts if text.startswith("--")), "".join(texts[:1]))
    name = written.lstrip("-").replace("-", "_")
    uses = [use for use in scanned.program.uses.get(name, []) if isinstance(use, ast.Attribute)]
    return bool(uses) and all(_to_torch(use, scanned) for use in uses)


def _to_torch(use: ast.AST, scanned: Scanned) -> bool:
    parent = scanned.program.parent(use)
    if isinstance(parent, ast.keyword):
        return parent.arg == "device"
    if not isinstance(parent, ast.Call) or use not in parent.args:
        return False
    return scanned.dotted_name(parent.func) == "torch.device" or last(parent.func) == "to"


_Listing = ast.Subscript | ast.Call | ast.Dict | ast.Compare | ast.List | ast.If


@rule("OC224", calls={*_OPTIONS, *_WIDGETS, "choices", "options", "values"})
def find_device_lists(node: _Listing, scanned: Scanned) -> Iterator[Hit]:
    """Options, settings and checks that list devices, branches that refuse others, and providers of ONNX Runtime."""
    match node:
        case ast.Subscript() if last(node.value) == "Literal":
            yield from _lists(node.slice, node, scanned)
        case ast.Call():
            yield from _option(node, scanned)
        case ast.Dict():
            yield from _entries(node, scanned)
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[listed]) if _refuses(node, scanned):
            yield from _lists(listed, None, scanned)
        case ast.List():
            texts = _texts(node)
            if _PROVIDER in texts and _APPLE not in texts:
                yield hit("providers", node, apple=_APPLE)
        case ast.If():
            yield from _chain(node, scanned)
