"""Write op_lists/routes.json: what computes each overload with an MPS kernel, release by release, read from the wheels.

    python -m scripts.read_routes [RELEASE ...] [--time]

Reads each release of op_lists/releases.yaml, or those that are named, and prints which overloads of an older release
changed.  A kernel whose code cannot be followed is ``unknown``.  ``--time`` writes nothing: it prints the seconds of
the processor, and how many times as long the reading takes as opening the wheel; 1 where a release takes more than 180.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from opcheck.common import documents
from opcheck.common.errors import OpcheckError
from opcheck.common.files import write_text
from opcheck.data.files import read_releases
from opcheck.data.history import SCHEMA, Entry, History, dump, expand, with_column
from opcheck.data.kernel_routes import CALLS, KINDS, TABLE, UNKNOWN, VIEW
from opcheck.data.registrations import OpLists, data_directory, load
from opcheck.data.wheels import metal_source
from opcheck.data.wheels.image import Image
from opcheck.kernels import library
from scripts.wheels import routes
from scripts.wheels.library import open_library

#: What a release may take.
_MOST_SECONDS = 180


def column(image: Image, line: str, lists: OpLists, kernels: Iterable[str]) -> dict[str, str]:
    """Return the value of each overload that has an MPS kernel in a release, whose Metal kernels are named.

    Raises:
        OpListError: the registrations of the library cannot be read.
    """
    reached = routes.read_routes(image, lists.operators(line))
    native = {op for op, value in lists.operators(line).items() if value == "kernel"}
    known = routes.stems(kernels)
    return {op: value(reached.get(op), known) for op in sorted(native)}


def value(reached: routes.Reached | None, known: Collection[str] = ()) -> str:
    """Return what the data file says of a kernel: its marks and Metal kernels, else the overloads that it calls."""
    if reached is None:
        return UNKNOWN
    marks = [kind for kind in KINDS if kind in reached.marks]
    # Any kernel may copy an argument first; a copy counts where the kernel does nothing else.
    if computing := [mark for mark in marks if mark != "copy"] or marks:
        names = routes.named_kernels(reached.texts, known) if "metal" in computing else []
        return "+".join(computing) + (f":{' '.join(names)}" if names else "")
    return f"{CALLS}:{' '.join(sorted(reached.calls))}" if reached.calls else VIEW


def build(release: str, line: str, lists: OpLists) -> tuple[dict[str, str], float]:
    """Return the column of a release, read from its wheel, and the seconds of the processor that opening it takes.

    Raises:
        OpListError: the wheel cannot be had, or is damaged.
    """
    start = time.process_time()
    with open_library(release) as opened:
        seconds = time.process_time() - start
        sources = metal_source.functions(documents.read(opened.path, documents.MOST_LARGE))
        kernels = {*library.read(release).functions, *(each.name for each in sources)}
        return column(opened.image, line, lists, kernels), seconds


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each overload whose value in a release differs from that of the last reading."""
    names = sorted({*before, *after})
    return [
        f"  {name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def main() -> int:
    """Read the releases; 2 or 3 where a wheel cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", help="such as 2.15.0; left out: all")
    parser.add_argument("--time", action="store_true", help="write nothing, and time the reading")
    options = parser.parse_args()
    slowest = 0.0
    lists, path = load(), data_directory() / TABLE.name
    lines = tuple(release.line for release in lists.releases)
    operators: Mapping[str, Sequence[Entry]] = TABLE.load().operators
    try:
        releases, _ = read_releases(data_directory() / "releases.yaml")
        for release in releases:
            if options.releases and release.torch not in options.releases:
                continue
            start = time.process_time()
            now, opening = build(release.torch, release.line, lists)
            seconds = time.process_time() - start
            slowest = max(slowest, seconds)
            before = {
                name: values[release.line]
                for name, history in operators.items()
                if release.line in (values := expand(history, lines))
            }
            counts = Counter(text.partition(":")[0] for text in now.values())
            shown = ", ".join(f"{kind} {count}" for kind, count in counts.most_common())
            ratio = f"{seconds:.0f} s, {seconds / opening - 1:.1f} times as long as opening the wheel"
            print(f"torch {release.torch}: {shown}; {ratio}", flush=True)
            if options.time:
                continue
            if before and (different := changes(before, now)):
                print("\n".join(different))
            merged = with_column(operators, lines, release.line, now)
            history = History(schema=SCHEMA, namespace="aten", key="routes", operators=merged)
            write_text(path, dump(history))
            operators = merged
    except OpcheckError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return int(options.time and slowest > _MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
