"""Describe how a dtype enters a program, with the pattern that replaces it at its origin."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Collection

from opcheck.common.python_source import parse
from opcheck.judge.dtype_flow import Origin
from opcheck.judge.texts import INSTEAD, ORIGINS


def describe(origin: Origin) -> str:
    """Return the origin in words."""
    return ORIGINS[origin.how]["text"].format(api=_short(origin.api), dtype=origin.dtype)


def rewritten(origin: Origin) -> str:
    """Return the origin's own line with a cast added; empty if the line has more than the call."""
    pattern = ORIGINS[origin.how].get("rewrite", "{x}.to({instead})")
    instead = INSTEAD.get(origin.dtype)
    if not pattern or instead is None or origin.location is None:
        return ""
    pair = _call_in(origin.location.text, _names(origin))
    if pair is None:
        return ""
    line, call = pair
    if origin.how in {"cast", "dtype_given"}:
        return _with_dtype(line, call, origin.dtype, instead)
    text = ast.get_source_segment(line, call) or ""
    return line.replace(text, pattern.format(x=text, instead=f"torch.{instead}"), 1)


#: Operators that a program calls by another name.
_CALLED = {"_to_copy": "a move or a cast", "_fft_r2c": "a transform", "_fft_c2c": "a transform"}


def _short(api: str) -> str:
    """Return the part of ``aten::arange.start_step`` that the line has: ``arange``."""
    if "::" not in api:
        return api
    name = api.removeprefix("aten::").partition(".")[0]
    return _CALLED.get(name, name.lstrip("_"))


def _names(origin: Origin) -> frozenset[str]:
    """Return the spellings that the line can have for the call that makes the dtype."""
    if origin.how == "cast":
        return _CASTS
    return frozenset({_short(origin.api).rpartition(".")[2]})


_CASTS = frozenset({"to", "type", "double", "cdouble"})


def _call_in(text: str, names: Collection[str]) -> tuple[str, ast.Call] | None:
    """Return the only call of these names on a line, and the part of the line that parses by itself."""
    line = textwrap.dedent(text).strip()
    for candidate in (line, f"{line} pass", line.rstrip(",")):
        try:
            tree = parse(candidate)
        except SyntaxError:
            continue
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _called(node.func) in names
        ]
        return (candidate.removesuffix(" pass"), calls[0]) if len(calls) == 1 else None
    return None


def _called(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _with_dtype(line: str, call: ast.Call, dtype: str, instead: str) -> str:
    """Return the line with its dtype replaced; ``.double()`` becomes ``.float()``."""
    if _called(call.func) == "double" and not call.args and not call.keywords:
        return line.replace(".double()", ".float()", 1)
    names = {dtype, "double" if dtype == "float64" else dtype}
    for node in ast.walk(call):
        text = ast.get_source_segment(line, node) if isinstance(node, ast.expr) else None
        if isinstance(node, ast.Attribute) and node.attr in names and text:
            return line.replace(text, f"{text.rpartition('.')[0]}.{instead}", 1)
    return ""
