"""Unified diffs that name as few lines as the change, also in long files.

``difflib`` takes frequent lines of a file of 200 lines or more for noise, and shows unchanged ones as replaced.
Without that rule its time grows with the square of a frequent line's count.
"""

import bisect
import difflib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: A part without a line of its own is compared whole up to so many lines.
_SMALL = 2_000


def unified_diff(before: Sequence[str], after: Sequence[str], before_name: str, after_name: str) -> Iterator[str]:
    """Yield the lines of a unified diff, with three lines of context; none if nothing changed.

    Args:
        before: lines with their newlines.
        after: lines with their newlines.
        before_name: what the diff calls the file before.
        after_name: what it calls the file after.
    """
    for number, group in enumerate(_Matcher(None, before, after).get_grouped_opcodes()):
        if not number:
            yield f"--- {before_name}\n"
            yield f"+++ {after_name}\n"
        _, first, _, first_after, _ = group[0]
        _, _, last, _, last_after = group[-1]
        yield f"@@ -{_range(first, last)} +{_range(first_after, last_after)} @@\n"
        for kind, start, stop, start_after, stop_after in group:
            if kind == "equal":
                yield from (f" {line}" for line in before[start:stop])
                continue
            yield from (f"-{line}" for line in before[start:stop])
            yield from (f"+{line}" for line in after[start_after:stop_after])


def _range(start: int, stop: int) -> str:
    """Lines as a hunk counts them: from 1, and an empty range by the line above it."""
    return str(start + 1) if stop - start == 1 else f"{start + (stop > start)},{stop - start}"


class _Part(NamedTuple):
    """Lines of both texts that are compared with each other."""

    start: int
    stop: int
    start_after: int
    stop_after: int


class _Matcher(difflib.SequenceMatcher[str]):
    """Finds equal lines between the lines that each text has once, as patience diff does."""

    #: both texts, as difflib keeps them
    a: Sequence[str]
    b: Sequence[str]

    def get_matching_blocks(self) -> list[difflib.Match]:
        """Return the equal ranges, in order; the last range is empty, as in difflib."""
        pairs: list[tuple[int, int]] = []
        parts = [_Part(0, len(self.a), 0, len(self.b))]
        while parts:
            part, equal = self._trim(parts.pop())
            pairs += equal
            # The lines that both sides of a part have once, as many as are in the same order.
            after = self.b[part.start_after : part.stop_after]
            counts, counts_after = Counter(self.a[part.start : part.stop]), Counter(after)
            places = {line: place for place, line in enumerate(after, part.start_after)}
            anchors = _rising(
                (place, places[line])
                for place, line in enumerate(self.a[part.start : part.stop], part.start)
                if counts[line] == 1 and counts_after[line] == 1
            )
            if not anchors:
                pairs += self._pairs(part)
                continue
            corners = [(part.start - 1, part.start_after - 1), *anchors]
            corners.append((part.stop, part.stop_after))
            pairs += anchors
            parts += (
                _Part(line + 1, next_line, line_after + 1, next_after)
                for (line, line_after), (next_line, next_after) in itertools.pairwise(corners)
            )
        return [*_blocks(sorted(pairs)), difflib.Match(len(self.a), len(self.b), 0)]

    def _trim(self, part: _Part) -> tuple[_Part, list[tuple[int, int]]]:
        """Return a part without the equal lines at both ends, and these."""
        start, stop, start_after, stop_after = part
        pairs = []
        while start < stop and start_after < stop_after and self.a[start] == self.b[start_after]:
            pairs.append((start, start_after))
            start, start_after = start + 1, start_after + 1
        while start < stop and start_after < stop_after and self.a[stop - 1] == self.b[stop_after - 1]:
            stop, stop_after = stop - 1, stop_after - 1
            pairs.append((stop, stop_after))
        return _Part(start, stop, start_after, stop_after), pairs

    def _pairs(self, part: _Part) -> Iterator[tuple[int, int]]:
        """Yield the equal lines of a part that has no line of its own."""
        start, stop, start_after, stop_after = part
        is_long = max(stop - start, stop_after - start_after) > _SMALL
        if is_long and stop - start == stop_after - start_after:
            # Lines were replaced, and none inserted.
            places = zip(range(start, stop), range(start_after, stop_after), strict=True)
            yield from ((line, line_after) for line, line_after in places if self.a[line] == self.b[line_after])
            return
        matcher = difflib.SequenceMatcher(None, self.a[start:stop], self.b[start_after:stop_after], autojunk=is_long)
        for line, line_after, size in matcher.get_matching_blocks():
            yield from ((start + line + n, start_after + line_after + n) for n in range(size))


def _rising(pairs: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest series of pairs whose numbers both rise; the first numbers rise already."""
    tails: list[int] = []
    chains: list[tuple[tuple[int, int], int]] = []
    ends: list[int] = []
    for pair in pairs:
        place = bisect.bisect_left(tails, pair[1])
        chains.append((pair, ends[place - 1] if place else -1))
        tails[place : place + 1] = [pair[1]]
        ends[place : place + 1] = [len(chains) - 1]
    series = []
    number = ends[-1] if ends else -1
    while number >= 0:
        pair, number = chains[number]
        series.append(pair)
    return series[::-1]


def _blocks(pairs: Sequence[tuple[int, int]]) -> Iterator[difflib.Match]:
    """Join neighbouring pairs to ranges."""
    distances = [(line - number, line_after - number) for number, (line, line_after) in enumerate(pairs)]
    start = 0
    for _, together in itertools.groupby(distances):
        size = len(list(together))
        yield difflib.Match(*pairs[start], size)
        start += size
