"""Formats numbers, names and messages in the same way for every finding and report."""

import functools
import keyword
import re
from collections.abc import Iterator, Sequence

#: Not the tokenize module: a line is often half a statement, and the module raises for it.
_TOKEN = re.compile(
    r"""
    (?P<comment>\#.*)
    | (?P<string>[A-Za-z]{0,2}(?:"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?))
    | (?P<number>\d[\w.]*)
    | (?P<name>[^\W\d]\w*)
    | (?P<other>==|\S)
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 call``, ``2 calls``, ``1,234 copies``."""
    if number != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun}"


def filesize(number: int) -> str:
    """Return a size with its unit: ``512 bytes``, ``1.5 KiB``, ``3.0 GiB``."""
    return _scaled(number, plural(number, "byte"), 1024, ("KiB", "MiB", "GiB", "TiB"))


def flop_count(number: int) -> str:
    """Return a number of floating-point operations with its unit: ``512 FLOP``, ``3.6 GFLOP``."""
    return _scaled(number, f"{number} FLOP", 1000, ("kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))


def _scaled(number: int, plain: str, base: int, units: Sequence[str]) -> str:
    """Return a number with the first unit that leaves less than the base before the point; the plain text below it."""
    if number < base:
        return plain
    power = next((each for each in range(1, len(units)) if number / base**each < base - 0.05), len(units))
    return f"{number / base**power:.1f} {units[power - 1]}"


def duration(low: float, high: float) -> str:
    """Return an interval of seconds with two digits and the unit of its upper end: ``45 to 80 ms``."""
    unit, factor = next(((name, size) for name, size in _UNITS if high < 999.5 / size), ("s", 1.0))
    ends = [_two_digits(end * factor) for end in (low, high)]
    return f"{' to '.join(dict.fromkeys(ends))} {unit}"


_UNITS = (("us", 1e6), ("ms", 1e3), ("s", 1.0))


def _two_digits(number: float) -> str:
    return f"{float(f'{number:.2g}'):g}" if number < 1e5 else f"{number:.2g}"


def percent(part: float, whole: float) -> str:
    """Return a share, so that neither a small one reads as none nor a large one as all: ``<1 %``, ``>99 %``."""
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 1:
        return "<1 %"
    if 99 < share < 100:
        return ">99 %"
    return f"{share:.0f} %"


def any_layer(module: str) -> str:
    """``encoder.layer.11.attention`` as ``encoder.layer.*.attention``."""
    return _NUMBER.sub("*", module)


def shorten(text: str, limit: int) -> str:
    """Cut a text that is longer than ``limit`` characters, so that it ends in three dots."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def and_more(names: Sequence[str], limit: int) -> str:
    """Name the first few and count the rest: ``a, b, c and 12 more``."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def join_and(words: Sequence[str]) -> str:
    """Name all: ``a, b and c``; empty without a word."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


#: Characters of an exception's message that are read, and exceptions of a chain.
_LONGEST_MESSAGE, _LONGEST_CHAIN = 1 << 16, 1000


def error_text(error: BaseException) -> str:
    """Return the message of an exception of user code: its ``__str__`` may raise, give no UTF-8 or be very long."""
    try:
        text = str.__getitem__(str(error), slice(_LONGEST_MESSAGE))  # it may be of a subclass
    except BaseException:  # noqa: BLE001 - user code, which may raise KeyboardInterrupt
        return "(its message cannot be read)"
    return text.encode("utf-8", "backslashreplace").decode()


def error_type(error: BaseException) -> str:
    """Return the name of an exception's class, which may be very long; no metaclass of user code is called."""
    return shorten(str(vars(type)["__name__"].__get__(type(error))), 200)


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that Python prints before it, up to a thousand: user code may make a circle."""
    seen: set[int] = set()
    earlier: BaseException | None = error
    while earlier is not None and id(earlier) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(earlier))
        yield earlier
        earlier = earlier.__cause__ or (None if earlier.__suppress_context__ else earlier.__context__)


def one_line(error: BaseException, limit: int = 300) -> str:
    """Return the message of an exception on one line, cut after ``limit`` characters."""
    return shorten(" ".join(error_text(error).split()), limit)


def type_and_text(error: BaseException) -> str:
    """Return the class of an exception and its message on one line; the class alone where the message is empty."""
    return f"{error_type(error)}: {one_line(error)}".removesuffix(": ")


@functools.lru_cache(maxsize=64)
def normalised_code(line: str) -> str:
    """Normalise a line of Python: variables numbered in order, no comments, tokens separated.

    Attributes (``x.relu``) and the names of keyword arguments (``dim=``) are no variables.
    """
    tokens = [match for match in _TOKEN.finditer(line) if match.lastgroup != "comment"]
    texts = [match[0] for match in tokens]
    numbers: dict[str, str] = {}
    depth = 0
    written = []
    for place, (match, text) in enumerate(zip(tokens, texts, strict=True)):
        depth += (text in "([{") - (text in ")]}")
        before = texts[place - 1] if place else ""
        after = texts[place + 1] if place + 1 < len(texts) else ""
        named = before == "." or keyword.iskeyword(text) or (after == "=" and depth > 0)
        is_variable = match.lastgroup == "name" and not named
        number = f"v{len(numbers) + 1}"
        written.append(numbers.setdefault(text, number) if is_variable else text)
    return " ".join(written)
