"""The Macs that Apple sells, by chip and memory, and the memory that their GPU may use by macOS version."""

import functools
import re
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec.structs import replace

from opcheck.common.documents import brief
from opcheck.common.errors import UsageError
from opcheck.common.versions import MACOS_MAJORS, Span, Version
from opcheck.common.vocabulary import Basis
from opcheck.data.statement_model import EvidenceEntries
from opcheck.data.strict_yaml import Document
from opcheck.data.tables import ListFile
from opcheck.model.options import Option
from opcheck.model.records import Record


class WorkingSet(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory that Metal recommends as a maximum on a span of macOS versions."""

    macos: Span
    mib: int
    basis: Basis
    evidence: EvidenceEntries
    #: the bytes of the largest single buffer, which the file gives for all Macs as a share.
    buffer: int = 0

    @property
    def nbytes(self) -> int:
        """The working set in bytes."""
        return self.mib << 20


class Mac(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Mac of a given memory size; ``memory`` is in GB as Apple sells it, which means GiB."""

    memory: int
    working_sets: tuple[WorkingSet, ...]

    def on(self, macos: Version) -> WorkingSet:
        """Return the figures for a macOS version; the lint ensures that every version has them."""
        return next(figures for figures in self.working_sets if macos in figures.macos)


class BufferShare(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The share of the working set that a single buffer may take."""

    numerator: int
    denominator: int
    basis: Basis
    evidence: EvidenceEntries


class Chips(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of memory in GB that each chip is sold with, the smallest first."""

    evidence: EvidenceEntries
    memory: dict[str, tuple[int, ...]]


class MacList(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """The content of the file."""

    schema: int
    buffer: BufferShare
    chips: Chips
    macs: tuple[Mac, ...]

    @functools.cached_property
    def sized(self) -> tuple[Mac, ...]:
        """The Macs, each working set with its largest buffer."""
        share = self.buffer

        def with_buffer(each: WorkingSet) -> WorkingSet:
            return replace(each, buffer=each.nbytes * share.numerator // share.denominator)

        return tuple(replace(mac, working_sets=tuple(map(with_buffer, mac.working_sets))) for mac in self.macs)


def _check(document: Document, content: MacList) -> None:
    if not 0 < content.buffer.numerator <= content.buffer.denominator:
        document.report(("buffer",), "a share between 0 and 1 is expected")
    sizes = [mac.memory for mac in content.macs]
    if not sizes or sizes != sorted(set(sizes)):
        document.report(("macs",), "one entry for each size, the smallest first")
    for chip, sold in content.chips.memory.items():
        if not sold or list(sold) != sorted(set(sold)) or not set(sold) <= set(sizes):
            document.report(("chips", "memory", chip), "sizes of macs, the smallest first")
    for index, mac in enumerate(content.macs):
        for place, figures in enumerate(mac.working_sets):
            if not 0 < figures.mib < mac.memory * 1024:
                message = f"a Mac of {mac.memory} GB has less"
                document.report(("macs", index, "working_sets", place, "mib"), message)
        for major in MACOS_MAJORS:
            count = sum(Version(major) in figures.macos for figures in mac.working_sets)
            if count != 1:
                document.report(("macs", index), f"macOS {major} has {count} figures, not one")


MACS = ListFile("macs.yaml", MacList, check=_check)


# -- Macs by name ----------------------------------------------------------------------------------

#: The name that means every Mac.
ALL_MACS = "all"
_CHIP = re.compile(r"\bM(\d+) ?(Pro|Max|Ultra)?\b", re.IGNORECASE)
_SIZE = re.compile(r"\b(\d{1,4}) ?(?:GB|GiB|G)?\b", re.IGNORECASE)
_PRODUCT = re.compile(r"\b(?:Apple|MacBook(?: Pro| Air)?|Mac(?: mini| Studio| Pro)?|iMac)\b|[,/()-]", re.IGNORECASE)


class NamedMac(NamedTuple):
    """A Mac by its chip and its memory in GB; an empty chip means any chip with that memory."""

    chip: str
    memory: int

    def __str__(self) -> str:
        """Return ``M4 Pro 24 GB``."""
        return f"{self.chip} {self.memory} GB".strip()


def chips_by_memory(directory: Path | None = None) -> dict[int, list[str]]:
    """Return the chips that are sold with each size of memory in GB."""
    sold = MACS.load(directory).chips.memory
    return {
        mac.memory: [chip for chip, sizes in sold.items() if mac.memory in sizes] for mac in MACS.load(directory).sized
    }


def find_macs(text: str) -> tuple[NamedMac, ...]:
    """Return the Macs that a name means, the smallest first.

    Args:
        text: ``M4 Pro 24 GB`` for one Mac, ``M4 Pro`` for each memory that the chip is sold with, ``24 GB`` for any
            chip, or ``all``.  A product name such as ``MacBook Pro`` may precede it; case and spaces do not matter.

    Raises:
        UsageError: no Mac has this name.
    """
    sold = MACS.load().chips.memory
    if text.strip().lower() == ALL_MACS:
        every = (NamedMac(chip, memory) for chip, sizes in sold.items() for memory in sizes)
        return tuple(sorted(every, key=lambda mac: (mac.memory, mac.chip)))
    rest = " ".join(_PRODUCT.sub(" ", text).split())
    chip, rest = _take(_CHIP, rest)
    size, rest = _take(_SIZE, rest)
    if rest or not (chip or size):
        raise _unknown(text, f"write a chip, a memory or both, or {ALL_MACS}: {', '.join(sold)}")
    name = " ".join(part.title() for part in (f"M{chip[0]}", chip[1]) if part) if chip else ""
    memory = int(size[0]) if size else 0
    if not (name or memory):
        raise _unknown(text, "the memory of a Mac is at least 1 GB")
    if name and name not in sold:
        raise _unknown(text, f"the chips are {', '.join(sold)}")
    if name and memory and memory not in sold[name]:
        raise _unknown(text, f"the {name} is sold with {', '.join(map(str, sold[name]))} GB")
    return tuple(NamedMac(name, each) for each in ((memory,) if memory else sold[name]))


def _take(pattern: re.Pattern[str], text: str) -> tuple[tuple[str, ...], str]:
    """Return the groups of the first match, empty without one, and the text without the match."""
    match = pattern.search(text)
    if match is None:
        return (), text
    groups = tuple(group or "" for group in match.groups())
    return groups, f"{text[: match.start()]} {text[match.end() :]}".strip()


def _unknown(text: str, hint: str) -> UsageError:
    return UsageError(f"no Mac has the name {brief(text)}", context="--mac", hint=hint)


def _known_name(text: str) -> str:
    """Check the name of a Mac, and return it in its usual form."""
    macs = find_macs(text)
    if text.strip().lower() == ALL_MACS:
        return ALL_MACS
    return str(macs[0]) if len(macs) == 1 else macs[0].chip


MEMORY = Option("The Mac's memory: 8, 16, 24 ...", metavar="GB", least=1)
MAC = Option('"M4 Pro 24 GB", or all.', metavar="NAME", check=_known_name)


class MacOptions(Record, frozen=True, kw_only=True):
    """The Mac that a user names: by its memory in GB, by its name, or not at all."""

    memory: Annotated[int | None, MEMORY] = None
    mac: Annotated[str, MAC] = ""

    def macs(self) -> tuple[NamedMac, ...]:
        """Return the Macs that the options mean, the smallest first; none if the user named none.

        Raises:
            UsageError: no Mac has the name, or its memory is another one.
        """
        if not self.mac:
            return (NamedMac("", self.memory),) if self.memory else ()
        both = tuple(mac for mac in find_macs(self.mac) if self.memory in {None, 0, mac.memory})
        if not both:
            message = f"--memory {self.memory} is not the memory of {self.mac}"
            hint = "leave out --memory or --mac"
            raise UsageError(message, context=f"--mac {self.mac} --memory {self.memory}", hint=hint)
        return both

    def decisive_memory(self) -> int:
        """Return the memory in GB of the Mac that decides whether a run fits; 0: none was named, or all were.

        Raises:
            UsageError: as ``macs``.
        """
        macs = self.macs()
        return macs[0].memory if macs and (self.mac != ALL_MACS or self.memory) else 0
