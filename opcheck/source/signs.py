"""Searches a text before it is parsed: most files have none of the words that a rule could name."""

import ast
import functools
import re
import symtable
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from opcheck.common.versions import Target
from opcheck.source.file_questions import FileQuestions
from opcheck.source.program import Program
from opcheck.source.rule import ScanRule
from opcheck.source.rules import RULES

#: The constants that a rule may name in another file.
_CARRIED = re.compile(r"cuda(?::|\Z)|torch\.cuda\.|mps|nccl\Z|NCCL\Z|torch\.DoubleTensor\Z")
#: Spellings that hide a word from a search: an ASCII letter by its number, and a text in two parts.  Each begins with
#: a letter or a sign of its own, so that ``re`` looks for these alone.
_HIDDEN = re.compile(
    "|".join(
        (
            r"\\(?:x[4-7]|u00[4-7]|U000000[4-7]|1[0-7][0-7]|N\{LATIN)",
            *(rf"""{head}["']\s*\\?\s*\w?["']{"cuda"[len(head) :]}""" for head in ("c", "C", "cu", "Cu", "cud", "Cud")),
        )
    )
)
#: Comments and texts.  Each begins with a sign of its own, so that ``re`` looks for these alone.
_LEXEMES = re.compile(
    r"""
        \#[^\r\n]*
        | "{3} [^"\\]* (?: (?:\\. | "(?!"")) [^"\\]*)* "{3}
        | '{3} [^'\\]* (?: (?:\\. | '(?!'')) [^'\\]*)* '{3}
        | " [^"\\\n]* (?:\\. [^"\\\n]*)* "
        | ' [^'\\\n]* (?:\\. [^'\\\n]*)* '
    """,
    re.DOTALL | re.VERBOSE,
)
_LINE_ENDS = re.compile(r"[ \t]*\r?\n")
#: A whole word, and the same expression with the letters first.
_WHOLE_WORD, _AFTER_IT = re.compile(r"^\\b(\w+)\\b$"), r"\1(?<!\\w\1)(?!\\w)"
#: What is no text of its own for Python, and may be between any two tokens.
_GAP = r"(?:[\\\s]|\#.*\n)*"
#: The rest of an import statement, also in parentheses.
_IMPORTED = re.compile(r"import\b(?:[^\n\\(]|\\\r?\n)*(?:\([^()]*)?")
#: What is in front of a value that is assigned or given as an argument, and not behind it.
_GIVEN = rf"(?:(?<![=!<>])=|[(,]){_GAP}", r"(?!\s+if\b)"
#: What is in front of ``torch`` has so many characters.
_NEAR = 200
#: An import by which a file may write ``t.load`` or ``load`` for ``torch.load``.
_RENAMES = re.compile(r"\btorch[\\\s]+as\b|\bimport[\\\s]*\*")


#: The letters in front of a text with expressions in it.
_FORMATS = {"f", "F", "t", "T"}


def without_prose(text: str) -> str:
    """Return a program without its comments, docstrings and messages, which give no findings."""
    kept: list[str] = []
    code: list[str] = []
    end = depth = 0
    for lexeme in _LEXEMES.finditer(text):
        start, lexed = lexeme.start(), lexeme[0]
        kept.append(text[end:start])
        code.append(kept[-1])
        end = lexeme.end()
        if lexed[0] == "#":
            continue
        line = text.rfind("\n", 0, start) + 1
        is_alone = lexed[:3] in {'"""', "'''"} and text[line:start].strip(" \t") in {"", "r", "R"}
        if is_alone and _LINE_ENDS.match(text, end):
            since = "".join(code)
            code.clear()
            depth += sum(map(since.count, "([{")) - sum(map(since.count, ")]}"))
            if not depth and not text.endswith(("\\\n", "\\\r\n"), 0, line):
                continue
        is_format = text[start - 1 : start] in _FORMATS or text[start - 2 : start - 1] in _FORMATS
        if " " in lexed and not is_format and "nvidia-smi" not in lexed:
            lexed = '""'  # a message: no device, name or key has a blank, but a command has
        if "{" in lexed and lexed.count("{") != lexed.count("}"):
            return text  # since Python 3.12 an expression in an f-string may have the quotes of the f-string
        kept.append(lexed)
    return "".join((*kept, text[end:]))


@functools.lru_cache(maxsize=1)
def _imports(text: str) -> str:
    """Return the import statements of a text."""
    statements = []
    end, place = 0, text.find("import")
    while place >= 0:
        start = text.rfind("\n", end, place) + 1
        while text.endswith(("\\\n", "\\\r\n"), end, start):
            start = text.rfind("\n", end, start - 1) + 1
        rest = _IMPORTED.match(text, place)
        statement = slice(max(start, end), rest.end() if rest else place + 1)
        statements.append(text[statement])
        end = statement.stop
        place = text.find("import", end)
    return "\n".join(statements)


class _Imported:
    """Finds an expression in the import statements of a text."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(rf"\b(?:{pattern})\b")

    def search(self, text: str) -> object:
        return self._pattern.search(_imports(text))


class _OfTorch:
    """Finds a name of torch in a text: ``torch.load``, ``t.load`` and ``load``, as the file imports them."""

    def __init__(self, name: str, before: str = "", after: str = "") -> None:
        # ``re`` finds an expression faster if its letters come first, and so what is in front of them comes last.
        self._full = re.compile(rf"torch{_GAP}\.{_GAP}{name}\b{after}")
        self._before = re.compile(rf"{before}\btorch\Z")
        self._name = re.compile(rf"\b{name}\b")

    def search(self, text: str) -> object:
        imports = _imports(text)
        if match := self._name.search(text if _RENAMES.search(imports) else imports):
            return match
        starts = (found.start() for found in self._full.finditer(text))
        return any(self._before.search(text, max(0, start - _NEAR), start + len("torch")) for start in starts)


class _Search(NamedTuple):
    """The condition on a text for a word of a rule."""

    #: each is a part of it
    plain: tuple[str, ...]
    #: each finds something in it
    parts: tuple[re.Pattern[str] | _Imported | _OfTorch, ...]


@functools.cache
def _search_of(word: str) -> _Search:
    """Return what finds a word; ``ScanRule.words`` explains how words are written."""
    plain: list[str] = []
    parts: list[re.Pattern[str] | _Imported | _OfTorch] = []
    for part in word.split(" "):
        if part.isidentifier():
            plain.append(part)
        elif part.startswith("import:"):
            parts.append(_Imported(part.removeprefix("import:")))
        elif "torch." in part:
            before, _, name = part.partition("torch.")
            plain += ["torch", *re.findall(r"^\w+", name)]
            parts.append(_OfTorch(name, *(_GIVEN if before else ())))
        elif part:
            # ``re`` finds an expression faster if its letters come first.
            whole = _WHOLE_WORD.sub(_AFTER_IT, part)
            plain += _WHOLE_WORD.findall(part)
            parts.append(re.compile(whole.replace("~", _GAP)))
    return _Search(tuple(plain), tuple(parts))


class Sighting:
    """The words that a text has; each is looked for once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._plain: dict[str, bool] = {}
        self._words: dict[str, bool] = {}

    def has_any(self, words: Iterable[str]) -> bool:
        """Return whether the text has any of the words."""
        return any(self._words[word] if word in self._words else self._find(word) for word in words)

    def _find(self, word: str) -> bool:
        search = _search_of(word)
        is_found = all(map(self._has, search.plain)) and all(part.search(self._text) for part in search.parts)
        self._words[word] = is_found
        return is_found

    def _has(self, plain: str) -> bool:
        if plain not in self._plain:
            self._plain[plain] = plain in self._text
        return self._plain[plain]


@functools.lru_cache(maxsize=1)
def find_rules(text: str, target: Target) -> tuple[tuple[ScanRule, ...], tuple[ScanRule, ...]]:
    """Return the rules that a program has words for, and with them those that constants of other files may let fire."""
    rules = tuple(rule for rule in RULES if rule.nodes and rule.applies(target))
    if _HIDDEN.search(text):
        return rules, rules
    # Python reads letters beyond ASCII, such as bold ones, as the plain letters in a name (PEP 3131).
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    sighting = Sighting(text)
    named = tuple(rule for rule in rules if sighting.has_any(rule.words()))
    if named:
        sighting = Sighting(without_prose(text))
        named = tuple(rule for rule in named if sighting.has_any(rule.words()))
    return named, tuple(rule for rule in rules if rule in named or sighting.has_any(rule.carried))


def is_silent(text: str, target: Target) -> bool:
    """Return whether no rule can fire in a program, and no comment in it speaks to opcheck, if it parses.

    Constants of other files are left out of account: ``carriers`` has their names.
    """
    if "opcheck" in text or find_rules(text, target)[0]:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser warns of escapes
            symtable.symtable(text, "", "exec")  # the same parser, without a tree in Python
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


def carriers(program: Program, mac: FileQuestions, carrying: Collection[str]) -> set[str]:
    """Return the names of a file that may give another file a device, or a function with a device as default."""
    carrying_names: set[str] = set()
    for scope, name, binding in program.top_bindings():
        if binding.value is not None and _carries(binding.value, mac):
            carrying_names.add(name)
        arguments = getattr(binding.node, "args", None)
        if isinstance(arguments, ast.arguments):
            defaults = (*arguments.defaults, *arguments.kw_defaults)
            if any(default is not None and _carries(default, mac) for default in defaults):
                carrying_names.add(scope or name)
    carrying_names |= {name for name, full in program.imports.items() if full.rpartition(".")[2] in carrying}
    return carrying_names


def _carries(value: ast.expr, mac: FileQuestions) -> bool:
    texts = (each.constant for each in mac.values(value) if isinstance(each.constant, str))
    return any(map(_CARRIED.match, texts))


def mention(names: Collection[str]) -> Callable[[str], bool]:
    """Return whether a text imports any of the names, or reads it as an attribute of a module."""
    alternatives = "|".join(map(re.escape, sorted(names)))
    name, attribute = re.compile(rf"\b(?:{alternatives})\b"), re.compile(rf"\.{_GAP}(?:{alternatives})\b")

    def mentions(text: str) -> bool:
        imports = _imports(text)
        return bool(name.search(text if _RENAMES.search(imports) else imports) or attribute.search(text))

    return mentions
