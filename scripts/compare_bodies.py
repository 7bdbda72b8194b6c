"""Find composites whose body in an older release calls other operators than the known body.

Only differences on which a verdict depends count.

python -m scripts.compare_bodies [RELEASE ...]: reads the macOS wheels (from the cache, else downloaded) and
prints a table; 1 if something is neither mended nor reviewed, or if op_lists/bodies.yaml contradicts a wheel.

`opcheck op` knows the bodies of 2.8 and later (composites.json).
A body is compared by what it calls through the dispatcher, all of its branches together; what a difference comes to is
judged by the older release's registrations.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from typing import NamedTuple

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data.registrations import OpLists, data_directory, load
from opcheck.data.wheels.archive import default_cache
from scripts.opinfo.earlier import earlier_bodies, reviewed
from scripts.wheels.bodies import bodies
from scripts.wheels.library import open_library

BASE = "2.8"

#: Calls that no dense tensor of MPS leads to: sparse, quantized and nested tensors, other devices' kernels.
ELSEWHERE = re.compile(
    r"aten::_?(values|indices|\w+_indices|nnz|sparse_dim|dense_dim|is_coalesced|coalesce\w*|to_sparse\w*|sparse_\w+"
    r"|validate_\w+|q_\w+|qscheme|dequantize|quantize\w*|empty_quantized|to_padded_tensor|nested\w*|mkldnn\w*|cudnn\w*"
    r"|miopen\w*|scaled_dot_product_(cudnn|flash|efficient|fused)\w*)(\.\w+)?"
)


class Found(NamedTuple):
    """One composite in one release."""

    op: str
    line: str
    #: without a kernel there: what only the newer body calls, and what only the older one does.
    newer: tuple[str, ...]
    older: tuple[str, ...]


class Bodies:
    """What each release's composites call, and what that comes to."""

    def __init__(self, lists: OpLists, calls: dict[str, dict[str, tuple[str, ...]]]) -> None:
        self.lists = lists
        #: by release line
        self.calls = calls

    def compared(self, line: str) -> list[str]:
        """The composites of a release that the newer one has a body of, too."""
        return [
            op
            for op in self.calls[line]
            if op in self.calls[BASE]
            and self.lists.resolve(op, line).status == "composite"
            and self.lists.resolve(op, line).chain[-1] == op
        ]

    def differing(self, line: str) -> list[str]:
        """Those that call something else."""
        old, new = self.calls[line], self.calls[BASE]
        return [op for op in self.compared(line) if set(old[op]) != set(new[op])]

    def body_in(self, op: str, line: str) -> Found:
        """What decides in the difference: both bodies' calls, followed in the older release."""
        older, newer = (self._reached(self.calls[of][op], line) for of in (line, BASE))
        return Found(op, line, self._lacking(newer - older, line), self._lacking(older - newer, line))

    def _reached(self, calls: tuple[str, ...], line: str) -> set[str]:
        seen: set[str] = set()
        left = list(calls)
        while left:
            op = left.pop()
            if op in seen:
                continue
            seen.add(op)
            resolution = self.lists.resolve(op, line)
            left += resolution.chain[1:]
            if resolution.status == "composite":
                left += self.calls[line].get(op, ())
        return seen

    def _lacking(self, ops: set[str], line: str) -> tuple[str, ...]:
        fine = ("native", "composite")
        return tuple(
            op for op in sorted(ops) if self.lists.resolve(op, line).status not in fine and not ELSEWHERE.fullmatch(op)
        )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", help="such as 2.5.1; all before the newer one")
    lists = load()
    asked = [Version.parse(release) for release in parser.parse_args().releases]
    lines = [
        release.line
        for release in lists.releases
        if Version.parse(release.line) < Version.parse(BASE) and (not asked or Version.parse(release.line) in asked)
    ]
    releases = {release.line: release.torch for release in lists.releases}
    read = Bodies(lists, {line: calls_of(releases[line], lists) for line in (*lines, BASE)})
    rows: dict[str, list[Found]] = defaultdict(list)
    for line in lines:
        differing = read.differing(line)
        print(f"{line}: {len(read.compared(line))} composites, {len(differing)} differ")
        for op in differing:
            source = read.body_in(op, line)
            if (source.newer or source.older) and not op.endswith(("out", "_copy")):
                rows[op].append(source)
    reasons = reviewed(data_directory())
    table: dict[str, list[str]] = defaultdict(list)
    for op, every in sorted(rows.items()):
        for source in every:
            reason = f"reviewed: {reasons[op]}" if op in reasons else "OPEN"
            parts = [f"newer calls {', '.join(source.newer)}"] if source.newer else []
            parts += [f"older calls {', '.join(source.older)}"] if source.older else []
            row = f"{op}: {'; '.join(parts)} -> {mended_by_table(op, source.line) or reason}"
            table[row].append(source.line)
    for row, held in table.items():
        print(f"{held[0]} to {held[-1]}  {row}")
    is_open = any(row.endswith("OPEN") for row in table)
    wrong = contradictions(read, lines)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if is_open or wrong else 0


def contradictions(read: Bodies, lines: list[str]) -> list[str]:
    """Where bodies.yaml says what a wheel does not."""
    texts = []
    for entry in earlier_bodies(data_directory()):
        name = entry.differing
        for line in lines:
            calls = read.calls[line].get(name)
            if calls is None or Version.parse(line) not in entry.torch:
                continue
            texts += [f"{entry.op} {line}: {name} calls no {c}" for c in entry.calls if c not in calls]
            texts += [f"{entry.op} {line}: {name} calls {c}" for c in entry.without if c in calls]
        later = read.calls[BASE][name]
        texts += [f"{entry.op}: {name} of {BASE} calls no {c}" for c in entry.without if c not in later]
    return texts


def mended_by_table(op: str, line: str) -> str:
    """Whether bodies.yaml has the release's body."""
    entries = (body for body in earlier_bodies(data_directory()) if body.differing == op)
    return "bodies.yaml" if any(Version.parse(line) in entry.torch for entry in entries) else ""


def calls_of(release: str, lists: OpLists) -> dict[str, tuple[str, ...]]:
    """What the composites of a release call; a wheel is read once and kept beside the wheels."""
    kept = default_cache().parent / "bodies" / f"{release}.json"
    if not kept.exists():
        print(f"reading torch {release}", file=sys.stderr)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with open_library(release) as opened:
            write_text(kept, json.dumps(bodies(opened.image, lists.names()), indent=1))
    return {op: tuple(calls) for op, calls in json.loads(kept.read_text("utf-8")).items()}


if __name__ == "__main__":
    sys.exit(main())
