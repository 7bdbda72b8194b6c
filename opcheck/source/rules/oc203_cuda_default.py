"""OC203: the default of an option or a parameter is CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opcheck.source.devices import write_choice
from opcheck.source.edits import Edit, Fix, insert_line, replace
from opcheck.source.mac import Value
from opcheck.source.program import Function
from opcheck.source.rule import Hit, Scanned, ScanRule, argument, method
from opcheck.source.words import last, quoted

_OPTIONS = {"add_argument", "option", "Option", "Argument", "field", "Field", "add_option"}
#: ``config.get("device", "cuda")``: the position of the name, and of the default.
_LOOKUPS = {"get": (0, 1), "pop": (0, 1), "setdefault": (0, 1), "getenv": (0, 1), "getattr": (1, 2)}


def check(node: ast.AST, scanned: Scanned) -> Iterator[Hit]:
    """Defaults of command lines, parameters and fields that are ``cuda``."""
    if isinstance(node, ast.Call):
        name = scanned.dotted(node.func).rpartition(".")[2] or method(node)
        if name in _OPTIONS:
            default = argument(node, None, "default")
            yield from _default_hits(_cuda(default, scanned), "option", _chosen(default, scanned))
        yield from _looked_up(node, scanned)
        yield from _relying(node, scanned)
    elif isinstance(node, ast.arguments):
        for default in (*node.defaults, *node.kw_defaults):
            fix = _none(default, node, scanned)
            yield from _default_hits(_cuda(default, scanned), "parameter", fix)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        in_class = isinstance(scanned.program.parent(node), ast.ClassDef)
        if in_class and "device" in node.target.id:
            yield from _default_hits(_cuda(node.value, scanned), "field")


def _looked_up(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """A setting that is CUDA where it is not given: ``config.get("device", "cuda")``."""
    name, default = _LOOKUPS.get(last(node.func), (0, 0))
    asked = argument(node, name) if default else None
    if isinstance(asked, ast.Constant) and "device" in str(asked.value).lower():
        given = argument(node, default, "default")
        yield from _default_hits(_cuda(given, scanned), "setting", _chosen(given, scanned))


def _relying(node: ast.Call, scanned: Scanned) -> Iterator[Hit]:
    """A call that leaves a parameter of another file's function at its default, which is CUDA."""
    name = scanned.dotted(node.func)
    if not name or scanned.project is None or scanned.path is None:
        return
    definition = scanned.project.function(name, scanned.path)
    if definition is None:
        return
    if any(word.arg is None for word in node.keywords) or any(
        isinstance(part, ast.Starred) for part in node.args
    ):
        return
    module, function = definition
    given = {word.arg for word in node.keywords}
    for position, parameter, default in _defaults(function):
        value = module.mac.cuda(default)
        if (
            value is not None
            and parameter not in given
            and (position is None or position >= len(node.args))
        ):
            yield Hit(
                node=node,
                message=f"{name.rpartition('.')[2]} takes {parameter}={quoted(value.constant)} by default "
                f"({module.path.name}, line {default.lineno})",
                hint="hand on the device that the program chose",
            )


def _defaults(function: Function) -> Iterator[tuple[int | None, str, ast.expr]]:
    """Yield position, name and default of each parameter that has one; a method's first parameter does not count."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    first = len(named) - len(arguments.defaults)
    bound = int(bool(named) and named[0].arg in {"self", "cls"})
    for position, default in enumerate(arguments.defaults, first):
        yield position - bound, named[position].arg, default
    for parameter, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is not None:
            yield None, parameter.arg, keyword_default


def _cuda(default: ast.expr | None, scanned: Scanned) -> Value | None:
    """The text in ``"cuda"`` or ``torch.device("cuda")``."""
    if isinstance(default, ast.Call) and scanned.dotted(default.func) == "torch.device":
        default = argument(default, 0, "type")
    return scanned.mac.cuda(default)


def _chosen(default: ast.expr | None, scanned: Scanned) -> Fix | None:
    """The choice in place of the text, made when the option is."""
    is_text = isinstance(default, ast.Constant) and default.value in {"cuda", "cuda:0"}
    choice = write_choice(scanned.text(default), scanned) if default is not None and is_text else ""
    if default is None or not choice:
        return None
    helper = (
        (replace(default, "{helper}"),)
        if isinstance(default, ast.Constant) and default.value == "cuda"
        else ()
    )
    return Fix((replace(default, choice),), "unsafe", helper)


def _none(default: ast.expr | None, node: ast.arguments, scanned: Scanned) -> Fix | None:
    """``device=None``, and the choice in the body: a default is evaluated when the file is imported."""
    function = scanned.program.parent(node)
    chosen = _chosen(default, scanned)
    if (
        chosen is None
        or default is None
        or not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    ):
        return None
    names = {id(value): name for _, name, value in _defaults(function)}
    name, first = names.get(id(default), ""), function.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and len(function.body) > 1
    ):
        first = function.body[1]
    line = scanned.lines[first.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    if not name or first.lineno <= default.lineno or len(indent) != first.col_offset:
        return None

    def edits(choice: str) -> tuple[Edit, ...]:
        body = f"{indent}if {name} is None:\n{indent}    {name} = {choice}"
        return replace(default, "None"), insert_line(first.lineno, body)

    return Fix(
        edits(chosen.edits[0].text), "unsafe", edits("{helper}") if chosen.helper_edits else ()
    )


def _default_hits(value: Value | None, what: str, fix: Fix | None = None) -> Iterator[Hit]:
    if value is not None:
        yield Hit(
            node=value.origin,
            fix=fix,
            message=f"the default of the {what} is {quoted(value.constant)}: on a Mac it must be "
            "given",
            hint='make the default "auto" or None, and choose what the machine has',
        )


RULE = ScanRule(
    id="OC203",
    severity="warning",
    fix="unsafe",
    words=("cuda",),
    carried=True,
    nodes=(ast.Call, ast.arguments, ast.AnnAssign),
    check=check,
)
