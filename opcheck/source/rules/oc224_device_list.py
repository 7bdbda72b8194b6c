"""OC224: a list of allowed devices that lacks mps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.edits import Fix, insert_after
from opcheck.source.rule import Hit, Scanned, ScanRule, argument
from opcheck.source.words import is_cuda, last

_OPTIONS = {"add_argument", "option", "Option", "Argument", "Choice", "add_option", "Literal"}
_DEVICES = {"cpu", "auto", "gpu", "xpu", "npu", "hpu", "xla", "tpu"}
_CHECKED = (ast.In, ast.NotIn)
_PROVIDER, _APPLE = "CUDAExecutionProvider", "CoreMLExecutionProvider"


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """``choices=["cuda", "cpu"]``, ``assert device in (...)`` and providers of ONNX Runtime."""
    if isinstance(node, ast.Subscript) and last(node.value) == "Literal":
        yield from _lists(node.slice, node, scanned)
    elif isinstance(node, ast.Call) and last(node.func) in _OPTIONS:
        listed = argument(node, 0 if last(node.func) == "Choice" else None, "choices", "type")
        yield from _lists(listed, node, scanned)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], _CHECKED):
        if _refuses(node, scanned):
            yield from _lists(node.comparators[0], None, scanned)
    elif isinstance(node, ast.List):
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
    if (
        len(texts) < 2
        or "mps" in texts
        or not all(is_cuda(text) or text in _DEVICES for text in texts)
    ):
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


RULE = ScanRule(
    id="OC224",
    severity="warning",
    nodes=(ast.Call, ast.Compare, ast.Subscript, ast.List),
    fix="safe",
    names={ast.Call: frozenset(_OPTIONS)},
    check=check,
)
