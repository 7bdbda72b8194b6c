"""Define a remedy, and its code as a user would write it.  Imports no torch."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from opcheck.common import documents
from opcheck.common.versions import Target, Version
from opcheck.model.records import Record

#: The targets of the simulated Mac that every remedy is tested on: (torch, macOS).
TESTED = (("2.1", "13.0"), ("2.4", "13.0"), ("2.4", "14.0"), ("2.13", "15.0"), ("2.15", "15.0"))

_PLACE = re.compile(r"\{(\w+)\}")


class Remedy(Record, frozen=True, kw_only=True):
    """One way out."""

    id: str
    title: str
    #: what it replaces: an operator (``aten::polar``), or trait/how of an origin (``float64/numpy``)
    kinds: tuple[str, ...]
    #: the program's code before and after the change; ``{x}`` is the user's own name.
    before: str
    after: str
    #: module of this room and the functions that ``after`` calls, in the order of their definition; none: a pattern.
    module: str = ""
    functions: tuple[str, ...] = ()
    #: relative error of norms within which it equals ``before``; 0: the same numbers.
    tolerance: float = 0.0
    #: relative error of its gradient; None: it has no gradient, or no meaningful one.
    gradient: float | None = None
    #: what else a user should know
    remark: str = ""
    #: the tested targets where each of its calls is native.
    targets: tuple[tuple[str, str], ...] = TESTED

    def is_offered(self, target: Target) -> bool:
        """Return whether the remedy was found native on a target that is no newer than this one."""
        return any(
            Version.parse(torch) <= target.torch and Version.parse(macos) <= target.macos
            for torch, macos in self.targets
        )

    def use(self, names: Mapping[str, str] | None = None) -> str:
        """Return the replacement line, with the user's own names."""
        return fill_pattern(self.after, names or {})

    def code(self, names: Mapping[str, str] | None = None) -> str:
        """Return the whole replacement: the source of the functions, and the line that calls them."""
        parts = [source(self.module, name) for name in self.functions]
        text = "\n\n\n".join((*parts, self.use(names)))
        imports = [line for word, line in _IMPORTS if re.search(word, text)] if parts else []
        return "\n".join(imports) + ("\n\n\n" if imports else "") + text

    @property
    def page(self) -> str:
        """Return the remedy's page in ``opcheck explain``."""
        offered = ", ".join(f"torch {torch} on macOS {macos}" for torch, macos in self.targets)
        same = (
            f"within a relative error of {self.tolerance:g}" if self.tolerance else "no difference"
        )
        gradient = f", gradients within {self.gradient:g}" if self.gradient is not None else ""
        proof = (
            f"Held against the original on the CPU, over random shapes and numbers: {same}{gradient}. "
            f"On the simulated Mac every call of it is native for {offered}. Nothing was tried on a Mac."
        )
        remark = f"\n\n{self.remark}" if self.remark else ""
        return (
            f"**For.** {', '.join(self.kinds)}\n\n**Before.**\n\n```python\n{fill_pattern(self.before, {})}\n```"
            f"\n\n**After.**\n\n```python\n{self.code()}\n```\n\n**Evidence.** {proof}{remark}\n"
        )


#: What a remedy's text needs to be imported.
_IMPORTS = (
    (r"\bmath\.", "import math"),
    (r"\bCallable\b", "from collections.abc import Callable"),
    (r"\bAny\b", "from typing import Any"),
    (r"\btorch\.", "import torch"),
    (r"(?<!torch\.)\bnn\.", "from torch import nn"),
)


def fill_pattern(pattern: str, names: Mapping[str, str]) -> str:
    """Return the pattern with names in its places; a place that is not given keeps its own name."""
    return _PLACE.sub(lambda match: names.get(match[1], match[1]), pattern)


@cache
def _tree(module: str) -> tuple[str, ast.Module]:
    text = documents.read_text(Path(__file__).with_name(f"{module}.py"))
    return text, ast.parse(text)


def source(module: str, name: str) -> str:
    """Return the source text of a function or class in a module of this room.

    Raises:
        KeyError: it has none of that name.
    """
    text, tree = _tree(module)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return ast.get_source_segment(text, node) or ""
    raise KeyError(name)
