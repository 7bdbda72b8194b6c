r"""Sanitizes text of other people's programs: one function for each kind of output.

Names of models, modules and files, source lines and messages come from whoever wrote the program.
An escape sequence in one would command the reader's terminal, a right-to-left mark would falsify a
line, a line that begins with ``::error`` commands GitHub's runner, ``@name`` in
Markdown calls a person, ``=1+1`` in a table is computed.

Each writer of a format calls these functions for the texts that it puts in, or for the whole text when it is done, so
that what collects the texts need not know where they go.
"""

import re
import unicodedata
from collections.abc import Callable

#: Characters that are seen as nothing, or that change how their neighbours are seen: control characters but tab and
#: newline, separators of lines, marks of direction, fillers, variation selectors, tags, halves of characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff"
    "\ud800-\udfff\ufdd0-\ufdef\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
#: What a CI service obeys in the log of a step: GitHub a line ``::name ...::`` after any white space, and ``##[name]``
#: anywhere in it (actions/runner, ActionCommand.cs, TryParseV2 and TryParse); Azure and TeamCity alike.
_COMMAND = re.compile(r"(?P<space>^[^\S\n]*):(?=:)|(?P<hash>#)#(?=\[|vso\[|teamcity\[)", re.MULTILINE | re.IGNORECASE)
#: What ``is_patch_risky`` overlooks.
_USUAL_IN_SOURCES = re.compile("(?m)\x0c|\r(?=\n)|[\u200d\ufe0e\ufe0f]|^[-+ ]\ufeff")
_QUOTED_IN_PATCHES = re.compile(r'["\\\t\n]')
_BREAKS = re.compile(r"(?<![ \t])[ \t]*\n\s*")

#: What a service makes a link of: an address, somebody's name, an issue.  In a code span none does.
_REFERS = re.compile(r"://|www\.|mailto:|xmpp:|@\w|[#!]\d|\bGH-\d", re.IGNORECASE)
_MARKDOWN = re.compile(r"[\\`*_<>|\[\]#&~$]")
#: What begins a list, a heading or a rule where it begins a line.
_BEGINS = re.compile(r"^(?:([-+=:])(?=[-+=:\s])|(\d{1,9})(?=[.)](?:\s|$)))")
#: Addresses of ours, which stay links: the lists name them as evidence.
_OURS = re.compile(
    r"https://(?:github\.com/pytorch|pytorch\.org|docs\.pytorch\.org|developer\.apple\.com)/[\w./#?=%-]*\w"
)
#: A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def show_hidden(text: str) -> str:
    r"""Replace each hidden character by its number, ``\x1b``; lines stay lines."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_number, text)


def is_risky(text: str) -> bool:
    """Return whether a character of the text is hidden, or a line is a command."""
    return bool(_HIDDEN.search(text) or _COMMAND.search(text))


def is_patch_risky(text: str) -> bool:
    """Return whether a patch may not be shown: one with hidden characters escaped would no longer apply.

    A form feed, the carriage return of a line's end, a byte order mark and what joins emoji are shown: they are usual
    in sources and command no terminal.
    """
    return is_risky(_USUAL_IN_SOURCES.sub("", text))


def patch_name(name: str) -> str:
    """Write the name of a file as git and patch read it: in quotes where it has a character that is not plain."""
    if not (is_risky(f"--- {name}") or _QUOTED_IN_PATCHES.search(name)):
        # The tab ends a name that has spaces.
        return f"{name}\t" if " " in name else name
    plain = (
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in '"\\#' else f"\\{byte:03o}"
        for byte in name.encode("utf-8", "surrogateescape")
    )
    return f'"{"".join(plain)}"'


def toml_text(text: str) -> str:
    r"""Write a text in TOML's quotes; hidden characters, and what could be a command, as ``\U0000001b``."""
    whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    escaped = re.sub(r'["\\\n\t]|(?<=#)#', lambda match: f"\\U{ord(match[0]):08x}", whole)
    return '"' + _HIDDEN.sub(lambda match: f"\\U{ord(match[0]):08x}", escaped) + '"'


def flat(text: str) -> str:
    """Apply ``show_hidden`` and join the text to one line; runs of spaces stay."""
    return _BREAKS.sub(" ", show_hidden(text)).replace("\t", " ")


def one_line(text: str) -> str:
    """Apply ``show_hidden`` and join the text to one line; each run of white space becomes one space."""
    return " ".join(show_hidden(text).split())


def for_log(text: str) -> str:
    r"""Disarm the commands of CI services in finished text: ``\x3a:error``."""
    return _disarm(text, "\\x3a", "\\x23")


def for_stderr(text: str) -> str:
    """Sanitize lines for people: no character is hidden and nothing is a command."""
    return for_log(show_hidden(text.replace("\t", "    ")))


def for_json(text: str) -> str:
    """Sanitize finished JSON and keep its content: no character is hidden and nothing is a command."""
    # JSON escapes by itself what ASCII hides, but for one character.
    plain = text if text.isascii() and "\x7f" not in text else _HIDDEN.sub(_utf16, text)
    # White space begins its lines, so that only the inside of a text can be a command.
    return _disarm(plain, "\\u003a", "\\u0023")


def for_html(text: str) -> str:
    """Escape text for HTML so that no character is hidden and nothing is a command."""
    return _disarm(show_hidden(text.replace("\t", "    ")), "&#58;", "&#35;")


def finish_document(text: str, format_name: str) -> str:
    """Finish a document whose texts were sanitized one by one: no line of the whole is a command.

    A text is also UTF-8: the name of a file that is not has halves of characters in it, which nothing can write.
    """
    text = _FINISH.get(format_name, for_log)(text)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _annotations(text: str) -> str:
    """Disarm ``##[name]`` commands, and keep the ``::name`` lines, which are opcheck's annotations."""
    return _COMMAND.sub(lambda match: "#\\x23" if match["hash"] else match[0], text)


def markdown(words: str, *, in_table: bool = False) -> str:
    """Escape words on one line so that Markdown shows them literally and mentions no person."""
    written = []
    for word in one_line(words).split(" "):
        if _REFERS.search(word) and not _OURS.fullmatch(word.strip("().,;:")):
            written.append(markdown_code(word, in_table=in_table))
        else:
            written.append(_MARKDOWN.sub(r"\\\g<0>", word))
    return _BEGINS.sub(lambda match: f"\\{match[1]}" if match[1] else f"{match[2]}\\", " ".join(written))


def markdown_code(source: str, *, in_table: bool = False) -> str:
    """Make a code span, whose fence is longer than any run of backticks inside.

    A bar ends the cell of a table even inside of code, and the backslash before it is shown everywhere else (GitHub
    Flavored Markdown, section 4.10).
    """
    plain = one_line(source)
    plain = plain.replace("|", "\\|") if in_table else plain
    if not plain:
        return ""
    fence = markdown_fence(plain, 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def markdown_fence(text: str, least: int = 3) -> str:
    """Return a fence of backticks that is longer than any in the text."""
    return "`" * max(least, max((len(run) for run in re.findall("`+", text)), default=0) + 1)


def cell(value: str) -> str:
    """Make a CSV cell on one line; an apostrophe keeps a spreadsheet from computing it."""
    text = one_line(value)
    # Some programs normalise the wide forms of these characters before they look.
    begins = unicodedata.normalize("NFKC", text[:1])
    return f"'{text}" if begins.startswith(_FORMULA) else text


_FINISH: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("json", "jsonl", "sarif", "gitlab"), for_json),
    "junit": for_html,
    # Its texts were made fit one by one: what else is in a page are styles and a script of ours.
    "html": lambda text: text,
    "github": _annotations,
}


def _disarm(text: str, colon: str, number: str) -> str:
    """Write the second character of each command in another way."""
    return _COMMAND.sub(lambda match: f"#{number}" if match["hash"] else f"{match['space']}{colon}", text)


def _number(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _utf16(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
