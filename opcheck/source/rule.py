"""What a rule of the scan is, and what it may look at."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from opcheck.common.catalogue import Rule
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Severity
from opcheck.source.mac import Mac
from opcheck.source.program import Program

Answer = TypeVar("Answer")

#: A value that went through more calls in one expression is looked at no further.
_LONGEST_CHAIN = 100


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """One file, and the Mac that it is read for."""

    program: Program
    mac: Mac
    target: Target
    #: where the file is, to look for modules beside it; None: it is no file.
    path: Path | None = None
    #: the directory that was asked about
    root: Path | None = None
    _answers: dict[tuple[object, ...], object] = field(default_factory=dict)

    def once(
        self, question: tuple[object, ...], find: Callable[..., Answer], *given: object
    ) -> Answer:
        """What ``find`` returns, asked once a file: a question of a rule must not read the file at each node."""
        if question not in self._answers:
            self._answers[question] = find(*given)
        return self._answers[question]  # type: ignore[return-value]  # what find returned

    def dotted(self, node: ast.AST | None) -> str:
        """The dotted name of what was imported; empty: not an imported name."""
        return self.program.dotted(node)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One place that a rule names."""

    #: the code to change
    node: ast.AST
    message: str
    hint: str = ""
    #: None: that of the rule
    severity: Severity | None = None
    #: where what the node makes is used, if that is elsewhere.
    use: ast.AST | None = None
    prints: str = ""
    #: whether code that a Mac does not reach is named as well.
    unreached: bool = False


@dataclass(frozen=True, kw_only=True)
class ScanRule(Rule):
    """A rule of ``opcheck scan``."""

    #: the kinds of node that it is asked about; none: the scan itself finds it.
    nodes: tuple[type[ast.AST], ...] = ()
    #: names of which a source must hold one for the rule to fire; none: it reads every source. A name counts that
    #: Python code must spell out (an attribute, an imported name, a keyword), not a text that it could compose.
    words: tuple[str, ...] = ()
    check: Callable[[ast.AST, Scanned], Iterator[Hit]] = lambda _node, _scanned: iter(())


def argument(call: ast.Call, position: int | None, *names: str) -> ast.expr | None:
    """The argument of a call by its place or by one of its names; None: not given."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    given = call.args if position is not None else []
    if position is None or position >= len(given) or any(_starred(arg) for arg in given):
        return None
    return given[position]


def method(node: ast.AST) -> str:
    """The name after the last dot of what a call calls; empty: not a call of an attribute."""
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.attr if is_method else ""  # type: ignore[attr-defined]


def chain(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that a value went through, the last first: ``c()``, ``b()`` of ``a.b().c()``."""
    calls = 0
    while calls < _LONGEST_CHAIN:
        if isinstance(node, ast.Call):
            yield node
            node = node.func
            calls += 1
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return


def torch_alias(scanned: Scanned) -> bool:
    """Whether the file imports torch, or something that is imported from its own package."""
    return scanned.once(("imports torch's kin",), _imports_kin, scanned.program)


def _imports_kin(program: Program) -> bool:
    kin = ("torch", ".", "timm", "transformers", "diffusers", "lightning")
    return any(name.startswith(kin) for name in program.imports.values())


def _starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)
