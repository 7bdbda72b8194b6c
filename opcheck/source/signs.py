"""Searches a text before it is parsed: most files have none of the words that a rule could name."""

import ast
import functools
import re
import symtable
import unicodedata
import warnings
from collections.abc import Collection, Iterable

from opcheck.common.versions import Target
from opcheck.source.file_questions import FileQuestions
from opcheck.source.program import Program
from opcheck.source.rule import ScanRule
from opcheck.source.rules import BY_ID, RULES

#: The parts of a constant that a rule may name in another file.
_CARRIED = ("cuda", "mps", "nccl", "NCCL", "DoubleTensor")
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


def without_prose(text: str) -> str:
    """Return a program without its comments and docstrings, which give no findings."""
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
        if "{" in lexed and lexed.count("{") != lexed.count("}"):
            return text  # since Python 3.12 an expression in an f-string may have the quotes of the f-string
        kept.append(lexed)
    return "".join((*kept, text[end:]))


#: A whole word, and the same expression with the letters first, because ``re`` finds these faster.
_WHOLE_WORD, _AFTER_IT = re.compile(r"^\\b(\w+)\\b$"), r"\1(?<!\\w\1)(?!\\w)"


@functools.cache
def _searches(code: str) -> list[tuple[str, tuple[re.Pattern[str], ...]]]:
    """The words of a rule: of each the plain part, empty for none, and the expressions."""
    rule, searches = BY_ID[code], []
    for word in rule.words() if callable(rule.words) else rule.words:
        parts = word.split(" ")
        plain = next((part for part in parts if part.isidentifier()), "")
        expressions = (_WHOLE_WORD.sub(_AFTER_IT, part) for part in parts if part != plain)
        searches.append((plain, tuple(map(re.compile, expressions))))
    return searches


def has_words(rule: ScanRule, text: str) -> bool:
    """Return whether a text has a word of a rule; True for a rule without words."""
    searches = _searches(rule.id)
    return not searches or any(
        plain in text and all(each.search(text) for each in expressions) for plain, expressions in searches
    )


def rules_for(text: str, target: Target) -> list[ScanRule]:
    """Return the rules that may fire in a source; constants of other files may bring more than its own words."""
    # Python reads letters beyond ASCII, such as bold ones, as the plain letters in a name (PEP 3131).
    ascii_only = text.isascii()
    return [
        rule
        for rule in RULES
        if rule.applies(target) and (rule.carried or not (rule.words and ascii_only) or has_words(rule, text))
    ]


def is_silent(text: str, rules: Iterable[ScanRule]) -> bool:
    """Return whether no rule can fire in a program, and no comment in it speaks to opcheck, if it parses.

    Constants of other files are left out of account: ``carriers`` has their names.
    """
    if "opcheck" in text or _HIDDEN.search(text):
        return False
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    named = [rule for rule in rules if has_words(rule, text)]
    code = without_prose(text) if named else text
    if any(has_words(rule, code) for rule in named):
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
    return any(word in text for text in texts for word in _CARRIED)


def mention(names: Collection[str]) -> re.Pattern[str]:
    """Return an expression that finds each of these names as a whole."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
