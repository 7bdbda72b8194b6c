"""The rules of the scan: what a rule reads, and what it returns."""

import ast
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, get_args, get_type_hints

import msgspec

from opcheck.common import documents
from opcheck.common.catalogue import CatalogueRule
from opcheck.common.versions import Target
from opcheck.common.vocabulary import Severity
from opcheck.model.records import Record
from opcheck.source.edits import Applicability, Fix
from opcheck.source.file_questions import FileQuestions
from opcheck.source.program import Program
from opcheck.source.project import Project

Answer = TypeVar("Answer")
#: Takes a node and the ``Scanned`` around it.
Check = Callable[..., "Iterator[Hit]"]

#: Of a longer chain of calls, only so many are read.
_LONGEST_CHAIN = 100


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """A file, and the Mac that it is read for."""

    program: Program
    mac: FileQuestions
    target: Target
    #: where the file is, to find neighbouring modules; None for a text that is no file
    path: Path | None = None
    #: the scanned directory
    root: Path | None = None
    #: the lines of the file, without their newlines
    lines: Sequence[str] = ()
    #: the other files of the project, to follow imported names; None for a text that is no file
    project: Project | None = None
    _answers: dict[tuple[object, ...], object] = field(default_factory=dict)

    def once(self, question: tuple[object, ...], find: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what ``find`` returns; it is called once for a file, not at each node."""
        if question not in self._answers:
            self._answers[question] = find(*arguments)
        return self._answers[question]  # type: ignore[return-value]  # what find returned

    def forget(self) -> None:
        """Drop the answers: some refer to this record, so that nothing would free the file's tree."""
        self._answers.clear()

    def text(self, node: ast.AST) -> str:
        """Return the source of an expression or a statement; empty where it has no place in the file."""
        first, last = getattr(node, "lineno", 0) - 1, (getattr(node, "end_lineno", 0) or 0) - 1
        if not 0 <= first <= last < len(self.lines):
            return ""
        part = [line.encode() for line in self.lines[first : last + 1]]
        part[-1] = part[-1][: getattr(node, "end_col_offset", 0)]
        part[0] = part[0][getattr(node, "col_offset", 0) :]
        return b"\n".join(part).decode()

    def keywords(self, call: ast.Call, *names: str) -> str:
        """Return the source of the keywords of a call as further arguments, of all or of those with these names."""
        shown = (each for each in call.keywords if not names or each.arg in names)
        return "".join(f", {each.arg}={self.text(each.value)}" for each in shown)

    def unwrap_device(self, node: ast.expr) -> ast.expr:
        """Return the text in ``torch.device(text)``, and any other expression as it is."""
        is_device = isinstance(node, ast.Call) and self.dotted_name(node.func) == "torch.device"
        return node.args[0] if is_device and node.args else node  # type: ignore[attr-defined]  # a Call

    def dotted_name(self, node: ast.AST | None) -> str:
        """Return the dotted name of an imported object, or empty."""
        return self.program.dotted_name(node)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A place that a rule names."""

    #: the code to change
    node: ast.AST
    message: str
    hint: str = ""
    #: None for the severity of the rule
    severity: Severity | None = None
    #: where the value of the node is used, if that is elsewhere
    use: ast.AST | None = None
    prints: str = ""
    #: the change that corrects it, if a tool can make one
    fix: Fix | None = None
    #: why a tool cannot correct it; empty: the reason of the rule
    no_fix: str = ""


@dataclass(frozen=True, kw_only=True)
class ScanRule(CatalogueRule):
    """A rule of ``opcheck scan``."""

    #: the kinds of node that it checks; none if the engine itself makes its findings
    nodes: tuple[type[ast.AST], ...] = ()
    #: The rule reads only sources with any of these words. A word has parts with blanks between them, each to be
    #: found: letters; ``torch.load``, a name of torch as a file may import it; ``import:triton``, an expression in an
    #: import statement; and any other regular expression, where ``~`` stands for blanks, newlines and comments. Only
    #: what Python code must spell out (an attribute, an imported name, a keyword, a text) may be here.
    words: Callable[[], tuple[str, ...]] = tuple
    #: the words that are enough where a constant of another file may replace the others; ``""``: none is needed
    carried: tuple[str, ...] = ()
    #: Of attributes and calls it checks only those with any of these names: the name of
    #: the attribute; the last part of the called name, as the file writes it or of the full name of
    #: an imported object; a keyword of the call. Kinds that are missing here: it checks all of them.
    names: Mapping[type[ast.AST], frozenset[str]] = field(default_factory=dict)
    #: whether it has anything to say about a Mac
    applies: Callable[[Target], bool] = lambda _target: True
    #: the best that a fix of the rule is; none: a person must choose
    fix: Applicability | Literal["none"] = "none"
    #: why a tool cannot correct what the rule finds, where the finding itself has no other reason
    no_fix: str = ""
    check: Check = lambda _node, _scanned: iter(())


class _Text(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule says about a place; fields in braces come from the function of the rule."""

    message: str
    hint: str
    severity: Severity | None = None
    prints: str = ""
    no_fix: str = ""


class _Declaration(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of ``rules.toml``: what ``ScanRule`` has of the same names."""

    severity: Severity
    words: tuple[str, ...] = ()
    calls: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    carried: tuple[str, ...] = ()
    fix: Applicability | Literal["none"] = "none"
    no_fix: str = ""
    texts: dict[str, _Text] = {}


_FILE = Path(__file__).with_name("rules.toml")
_DECLARED = msgspec.convert(documents.from_toml(documents.read_text(_FILE)), dict[str, _Declaration])
_TEXTS = {name: text for each in _DECLARED.values() for name, text in each.texts.items()}


def rule(
    code: str,
    *,
    calls: Collection[str] = (),
    attributes: Collection[str] = (),
    words: Callable[[], tuple[str, ...]] = tuple,
    applies: Callable[[Target], bool] = lambda _target: True,
) -> Callable[[Check], ScanRule]:
    """Declare a rule by the function that finds its hits; the annotation of its first parameter is what it checks.

    Args:
        code: of its entry in ``rules.toml``.
        calls: those of the entry, where tables have them.
        attributes: the same.
        words: returns more than those of the entry, out of tables that are read when they are needed.
        applies: whether the rule has anything to say about a Mac.
    """
    entry = _DECLARED[code]
    narrowed = {ast.Call: frozenset(calls) or entry.calls, ast.Attribute: frozenset(attributes) or entry.attributes}

    def declare(check: Check) -> ScanRule:
        kind = next(iter(get_type_hints(check).values()))
        return ScanRule(
            id=code,
            severity=entry.severity,
            nodes=get_args(kind) or (kind,),
            words=functools.cache(lambda: (*entry.words, *words())),
            carried=entry.carried,
            names={kind: names for kind, names in narrowed.items() if names},
            applies=applies,
            fix=entry.fix,
            no_fix=entry.no_fix,
            check=check,
        )

    return declare


def hit(
    text: str,
    node: ast.AST,
    /,
    *,
    use: ast.AST | None = None,
    fix: Fix | None = None,
    severity: Severity | None = None,
    prints: str = "",
    **fields: object,
) -> Hit:
    """Return the finding at a node with a text of ``rules.toml``, by its name and the values of its fields."""
    words = _TEXTS[text]
    return Hit(
        node=node,
        use=use,
        fix=fix,
        message=words.message.format(**fields),
        hint=words.hint.format(**fields),
        severity=severity or words.severity,
        prints=prints or words.prints,
        no_fix=words.no_fix,
    )


def argument(call: ast.Call, position: int | None, *names: str) -> ast.expr | None:
    """Return the argument of a call, by its position or by its names; None if it is not given."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    arguments = call.args if position is not None else []
    if position is None or position >= len(arguments) or any(isinstance(arg, ast.Starred) for arg in arguments):
        return None
    return arguments[position]


def method(node: ast.AST) -> str:
    """Return the name of the method that a call calls; empty if the node is no such call."""
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.attr if is_method else ""  # type: ignore[attr-defined]


def chain(node: ast.AST) -> Iterator[ast.Call]:
    """Return the calls in a chain, the last first: ``c()``, ``b()`` of ``a.b().c()``."""
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
    """Return whether the file imports torch, a library of models, or a module of its own package."""
    return scanned.once(("imports torch's kin",), _imports_kin, scanned.program)


def _imports_kin(program: Program) -> bool:
    kin = ("torch", ".", "timm", "transformers", "diffusers", "lightning")
    return any(name.startswith(kin) for name in program.imports.values())
