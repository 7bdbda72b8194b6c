"""OC224: a list of allowed devices that lacks mps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from opcheck.source.edits import Fix, insert_after
from opcheck.source.rule import Hit, Scanned, ScanRule, argument
from opcheck.source.words import is_cuda, last

_OPTIONS = {"add_argument", "option", "Option", "Argument", "Choice", "add_option", "Literal"}
#: What a user chooses from on a page or in a window, and the position of the list.
_WIDGETS = {"Radio": 0, "Dropdown": 0, "addItems": 0, "selectbox": 1, "radio": 1}
_DEVICES = {"cpu", "auto", "gpu", "xpu", "npu", "hpu", "xla", "tpu"}
_CHECKED = (ast.In, ast.NotIn)
_LONGEST_CHAIN = 8
_PROVIDER, _APPLE = "CUDAExecutionProvider", "CoreMLExecutionProvider"


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Options, settings and checks that list devices, branches that refuse others, and providers of ONNX Runtime."""
    yield from _FORMS[type(node)](node, scanned)


def _literal(node: ast.Subscript, scanned: Scanned) -> Iterator[Hit]:
    if last(node.value) == "Literal":
        yield from _lists(node.slice, node, scanned)


def _call(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
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


def _checked(node: ast.Compare, scanned: Scanned) -> Iterator[Hit]:
    if len(node.ops) == 1 and isinstance(node.ops[0], _CHECKED) and _refuses(node, scanned):
        yield from _lists(node.comparators[0], None, scanned)


def _providers(node: ast.List, _scanned: Scanned) -> Iterator[Hit]:
    texts = _texts(node)
    if _PROVIDER in texts and _APPLE not in texts:
        yield Hit(
            node=node,
            severity="note",
            message="of these providers of ONNX Runtime a Mac has only the CPU",
            hint=f"put {_APPLE} between them, where onnxruntime.get_available_providers() has it",
        )


def _texts(node: ast.AST | None) -> list[str]:
    """The texts of a list that holds nothing else."""
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
    yield Hit(
        node=node,
        message=f"the devices {', '.join(texts)} are allowed here, and mps is not",
        hint='add "mps"',
        fix=Fix((insert_after(node.elts[-1], f", {text}"),), "safe" if safe else "unsafe"),
    )


def _chain(node: ast.If, scanned: Scanned) -> Iterator[Hit]:
    """``if device == "cuda": ... elif device == "cpu": ... else: raise``."""
    if len(node.orelse) != 1 or not _turns_away(node.orelse[0]):
        return
    compared: list[tuple[str, str]] = []
    link: ast.AST | None = node
    while isinstance(link, ast.If) and len(compared) < _LONGEST_CHAIN:
        compared.append(_compared(link.test))
        parent = scanned.program.parent(link)
        link = parent if isinstance(parent, ast.If) and parent.orelse == [link] else None
    texts = [text for _, text in reversed(compared)]
    of_cuda = list(map(is_cuda, texts))
    is_same = len({about for about, _ in compared}) == 1 and compared[0][0]
    if is_same and any(of_cuda) and not all(of_cuda) and all(map(_is_device, texts)):
        yield Hit(
            node=node.orelse[0],
            message=f"the devices {', '.join(texts)} are known here, and mps is refused",
            hint='add a branch for "mps"',
        )


def _turns_away(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    is_said = isinstance(call, ast.Call) and last(call.func) == "print"
    return isinstance(statement, ast.Raise) or is_said


def _is_device(text: str) -> bool:
    return is_cuda(text) or text in _DEVICES


def _compared(test: ast.expr) -> tuple[str, str]:
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
    """Return whether a program ends where the comparison does not hold."""
    parent = scanned.program.parent(node)
    if isinstance(parent, ast.Assert):
        return isinstance(node.ops[0], ast.In)
    ends = isinstance(parent, ast.If) and parent.body and isinstance(parent.body[-1], ast.Raise)
    return bool(ends) and isinstance(node.ops[0], ast.NotIn)


def _reaches_torch_alone(option: ast.Call, scanned: Scanned) -> bool:
    """Return whether the file hands the option to ``torch.device()`` or ``.to()``, and does nothing else with it."""
    texts = [part.value for part in option.args if isinstance(part, ast.Constant)]
    names = [text.lstrip("-").replace("-", "_") for text in texts if isinstance(text, str)]
    long = [text for text in texts if isinstance(text, str) and text.startswith("--")]
    name = long[0].lstrip("-").replace("-", "_") if long else (names[0] if names else "")
    uses = [use for use in scanned.program.uses.get(name, []) if isinstance(use, ast.Attribute)]
    return bool(uses) and all(_to_torch(use, scanned) for use in uses)


def _to_torch(use: ast.AST, scanned: Scanned) -> bool:
    parent = scanned.program.parent(use)
    if isinstance(parent, ast.keyword):
        return parent.arg == "device"
    if not isinstance(parent, ast.Call) or use not in parent.args:
        return False
    return scanned.dotted(parent.func) == "torch.device" or last(parent.func) == "to"


_FORMS: dict[type[ast.AST], Callable[..., Iterator[Hit]]] = {
    ast.Subscript: _literal,
    ast.Call: _call,
    ast.Dict: _entries,
    ast.Compare: _checked,
    ast.List: _providers,
    ast.If: _chain,
}

RULE = ScanRule(
    id="OC224",
    severity="warning",
    nodes=tuple(_FORMS),
    fix="safe",
    words=("cuda", "CUDA"),
    names={ast.Call: frozenset({*_OPTIONS, *_WIDGETS, "choices", "options", "values"})},
    check=check,
)
