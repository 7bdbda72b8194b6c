"""The texts that MPS sources print: check messages, warnings, macOS gates.

A ``TORCH_CHECK`` or ``TORCH_WARN`` passes on its source file, function, line and message
(c10/util/Exception.h), so a function that materialises the addresses of a path below ``mps/`` and
of a message prints that message.  The reader executes nothing and reads constants only; a text that
C++ joins from parts is listed as these parts.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opcheck.data.wheels.image import Image

#: A source path, as __FILE__ gives it.
_SOURCE = re.compile(r"[^\s:]*/[^\s:/]+\.(?:mm|m|cpp|cc|h|hpp)")
_MPS_SOURCE = re.compile(r"/mps/|MPS")
#: The start of a path in PyTorch's tree, whatever the build machine's folder was.
_TREE = re.compile(r"(?:aten/src/|c10/|torch/(?:csrc|include)/).*")
#: A text that mentions MPS counts anywhere: the compiler may keep a message apart from its path.
_MENTIONS_MPS = re.compile(r"\bMPS|_mps\b|\bmps\b|\bMetal\b|mac ?OS ?X?[_ ]?\d|macOS", re.IGNORECASE)
_TWO_WORDS = re.compile(r"[A-Za-z]{2,}.* .*[A-Za-z]{2,}|[A-Za-z]{2,} [A-Za-z]|[A-Za-z]{4,} ")
#: Parts of a message that are too short to look like a message.
_PREFIX = re.compile(r"MPS[:,]? |(?:on|in|by|for|to) (?:the )?MPS[.:]? ?")
#: Strings that are not messages: Metal and Objective-C source, signatures (__PRETTY_FUNCTION__), schemas, asserts.
_NO_MESSAGE = re.compile(
    r"#include|kernel void|using namespace|\w+::\w+\(.*\) \[|^aten::|\) -> |\n.*\n.*\n"
    r"|INTERNAL ASSERT FAILED|^virtual |^static |^(?:void|auto|bool|at::\w+|Tensor) [\w:]+\("
    r"|^(?:std|c10|at)::|[\w>&*] (?:at|c10|torch|std)::[\w:]+.*\(|^\s*//|;\n| -D[A-Z]"
)
#: The largest distance, in instructions, of an ADRP from the ADD that completes it.
_REACH = 512
#: The largest distance between the arguments of a call.
_NEAR = 12


class Text(NamedTuple):
    """A text, and the place where the library prints it; None where the place is unknown."""

    text: str
    file: str | None
    function: str | None
    line: int | None


class References(NamedTuple):
    """The addresses in a range that the code materialises: the instruction and the address of each."""

    at: NDArray[np.int64]
    target: NDArray[np.int64]


def references(words: NDArray[np.uint32], start: int, low: int, high: int) -> References:
    """Return the ADRs, and the pairs of ADRP and ADD, whose value lies in ``low <= value < high``.

    An ADD is paired with the last ADRP into its register.  The search ignores other writes to that
    register between the two, so a target may be wrong: the caller drops a target that does not
    begin a string.
    """
    place: NDArray[np.int64] = np.arange(len(words), dtype=np.int64)
    pc = start + 4 * place
    pages = place[(words & np.uint32(0x9F000000)) == 0x90000000]
    adds = place[(words & np.uint32(0xFFC00000)) == 0x91000000]
    near = place[(words & np.uint32(0x9F000000)) == 0x10000000]
    page_value = (pc[pages] & ~0xFFF) + (_offset(words[pages]) << 12)
    page_register, base = words[pages] & 31, words[adds] >> 5 & 31
    at, target = [pc[near]], [pc[near] + _offset(words[near])]
    for register in range(31):
        mine = page_register == register
        if not mine.any():
            continue
        asked = adds[base == register]
        index = np.searchsorted(pages[mine], asked) - 1
        good = (index >= 0) & (asked - pages[mine][index] <= _REACH)
        asked, index = asked[good], index[good]
        at.append(pc[asked])
        target.append(page_value[mine][index] + (words[asked] >> 10 & 0xFFF).astype(np.int64))
    places, targets = np.concatenate(at), np.concatenate(target)
    kept = (targets >= low) & (targets < high)
    places, targets = places[kept], targets[kept]
    order = np.argsort(places, kind="stable")
    return References(places[order], targets[order])


def _offset(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    value = ((words >> 5 & 0x7FFFF) << 2 | words >> 29 & 3).astype(np.int64)
    signed: NDArray[np.int64] = value - ((value >> 20) << 21)
    return signed


def is_message(text: str) -> bool:
    """Return whether a string looks like a message for a person."""
    words = len(text) >= 8 and _TWO_WORDS.search(text) is not None
    return (
        (words or _PREFIX.fullmatch(text) is not None)
        and len(text) <= 1000
        and _NO_MESSAGE.search(text) is None
        and _SOURCE.fullmatch(text) is None
    )


def texts(image: Image, claimed: Iterable[str] = ()) -> tuple[Text, ...]:
    """Return the texts that MPS sources print, those that mention MPS or macOS, and the claimed texts.

    A text that several functions print has an entry for each, the most precise place first.

    Args:
        image: libtorch_cpu.dylib.
        claimed: pieces of texts; a string that contains a piece, or is part of one, is listed, too.
    """
    by_place: dict[tuple[str, str | None], Text] = {}
    strings = dict(_strings(image))
    for candidate in _printed(image, strings):
        key = candidate.text, candidate.function
        by_place[key] = min(candidate, by_place.get(key, candidate), key=_key)
    found = {text for text, _ in by_place}
    others = sorted({text for text in strings.values() if len(text) <= 1000} - found)
    mentioned = {text for text in others if is_message(text) and _MENTIONS_MPS.search(text)}
    known = "\0".join(found | mentioned)
    missing = [fragment for fragment in claimed if fragment not in known]
    for text in others:
        message = is_message(text)
        if any(fragment in text or (message and text in fragment) for fragment in missing):
            mentioned.add(text)
    places = [*by_place.values(), *(Text(text, None, None, None) for text in mentioned)]
    return tuple(sorted(places, key=lambda place: (place.text, _key(place))))


def _key(text: Text) -> tuple[bool, str, str, bool, int]:
    # The most precise place wins, then the first in alphabetical order, so that the choice does not
    # depend on the linker's order.
    return (text.file is None, text.file or "", text.function or "", text.line is None, text.line or 0)


def _strings(image: Image) -> Iterator[tuple[int, str]]:
    """Yield each C string of the library with the address of its start."""
    for section in image.sections:
        if section.segment == "__TEXT" and section.name == "__cstring":
            at = section.address
            for raw in image.bytes_of(section).split(b"\0"):
                if raw:
                    yield at, raw.decode("utf-8", "replace")
                at += len(raw) + 1


def _printed(image: Image, strings: dict[int, str]) -> Iterator[Text]:
    """Yield the messages of functions that name an MPS source."""
    if not strings:
        return
    code = image.bytes_of(image.text)
    words = np.frombuffer(code[: len(code) & ~3], dtype="<u4")
    sources = {at: text for at, text in strings.items() if _SOURCE.fullmatch(text)}
    messages = {at for at, text in strings.items() if is_message(text)}
    start = image.text.address
    addresses = references(words, start, min(strings), max(strings) + 1)
    interesting = np.isin(addresses.target, np.array(sorted(messages | sources.keys())))
    starts = np.array(sorted(at for at in image.symbols if image.in_text(at)), dtype=np.int64)
    owner = np.searchsorted(starts, addresses.at[interesting], side="right") - 1
    by_function: dict[int, list[tuple[int, int]]] = {}
    for function, at, target in zip(
        owner.tolist(), addresses.at[interesting].tolist(), addresses.target[interesting].tolist(), strict=True
    ):
        by_function.setdefault(function, []).append((at, target))
    for function, pairs in by_function.items():
        named = [((at - start) // 4, sources[target]) for at, target in pairs if target in sources]
        if function < 0 or not any(_MPS_SOURCE.search(path) for _, path in named):
            continue
        symbol = image.names_at(int(starts[function]))[0]
        # The linker shares code between functions under a meaningless name.
        name = None if "OUTLINED_FUNCTION" in symbol else plain(symbol)
        for at, target in pairs:
            if target in messages:
                path, line = _place(words, (at - start) // 4, named)
                if _MPS_SOURCE.search(path):
                    yield Text(strings[target], in_tree(path), name, line)


def _place(words: NDArray[np.uint32], at: int, named: list[tuple[int, str]]) -> tuple[str, int | None]:
    """Return the path that belongs to the message at an address, and the line number next to it.

    The code puts path, line and message into registers before a single call; earlier calls join a
    message of several parts.  The path is therefore the path in the same run of instructions
    without a branch, else the next path.
    """
    low, high = _block(words, at)
    same = [pair for pair in named if low <= pair[0] < high]
    after = [pair for pair in named if pair[0] >= at]
    place, path = (same or after[:1] or named[-1:])[0]
    low, high = _block(words, place)
    # MOVZ w2, #imm16 (no shift), 0 10 100101 00 imm16 Rd: the third argument of torchCheckFail.
    lines = {int(word) >> 5 & 0xFFFF for word in words[low:high] if int(word) & 0xFFE0001F == 0x52800002}
    return path, lines.pop() if len(lines) == 1 else None


def _block(words: NDArray[np.uint32], at: int) -> tuple[int, int]:
    """Return the instructions around an instruction, up to a branch (B, BL) on either side."""
    low, high = max(0, at - _NEAR), min(len(words), at + _NEAR)
    branches = [index for index in range(low, high) if int(words[index]) & 0x7C000000 == 0x14000000]
    return (
        max([index + 1 for index in branches if index < at], default=low),
        min([index + 1 for index in branches if index >= at], default=high),
    )


def in_tree(path: str) -> str:
    """Return a path relative to PyTorch's tree, without the folder of the build machine."""
    match = _TREE.search(path)
    return match[0] if match else path.rpartition("/")[2]


def plain(symbol: str) -> str:
    """Return the qualified name in a mangled symbol, without parameters and template arguments.

    ``__ZN2at6native3absERKNS_6TensorE`` gives ``at::native::abs``; any other name stays unchanged.
    """
    match = re.match(r"_+Z+(?:GR?V)?N?K?", symbol)
    if match is None:
        return symbol.lstrip("_")
    at, parts = match.end(), []
    while number := re.compile(r"L?(\d+)|(?:S[t_]|NS_|N|NK)").match(symbol, at):
        at = number.end()
        if number[1]:
            parts.append(symbol[at : at + int(number[1])])
            at += int(number[1])
    kept = [part for part in parts if not part.startswith("_GLOBAL__N")]
    return "::".join(kept) or symbol.lstrip("_")
