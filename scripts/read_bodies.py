"""Keep what the C++ bodies of composites call that no run reaches, as the wheels' libraries show it.

Each composite overload that neither op_lists/composites.json nor op_lists/schema_bodies.json knows is
looked up in the library of each release's own wheel: every operator that its body calls through the
dispatcher, all branches together, without those that only other layouts and devices lead to.  What
the code alone does not tell stands in op_lists/bodies.yaml (`written`), and what stays unknown
there, too, with the reason (`unknown`).  The result is op_lists/read_bodies.json; an unknown overload
without a reason is printed, and makes the exit code 1.
"""

import sys
from collections import defaultdict

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data import composites
from opcheck.data.registrations import OpLists, data_directory, load
from scripts.compare_bodies import ELSEWHERE, calls_of
from scripts.opinfo.earlier import why_unknown, written_bodies
from scripts.schema_bodies import Bodies, file_text, unknown


def bodies(line: str, calls: dict[str, tuple[str, ...]], lists: OpLists) -> Bodies:
    """Return what the unknown composites of a release call: always, and on some branch."""
    entries = [entry for entry in written_bodies(data_directory()) if Version.parse(line) in entry.torch]
    read: Bodies = {}
    for op in unknown(line, composites.run_body):
        written = next((entry for entry in entries if entry.covers(op)), None)
        if written is not None:
            read[op] = (sorted(written.always), sorted(written.sometimes))
            continue
        called = [name for name in calls.get(op, ()) if name in lists.operators(line)]
        dense = [name for name in called if not ELSEWHERE.fullmatch(name)]
        # A body without a single call may do nothing, or do nothing but raise: the code has to be read.
        if (dense or called) and not why_unknown(op, data_directory()):
            read[op] = ([], sorted(dense or called))
    return read


def main() -> int:
    """Read the wheels, write the file, print what stays unknown; 1 if something does."""
    lists = load()
    read = {}
    for release in lists.releases:
        read[release.line] = bodies(release.line, calls_of(release.torch, lists), lists)
    without: dict[str, list[str]] = defaultdict(list)
    for line, known in read.items():
        for op in unknown(line, composites.run_body):
            if op not in known and not why_unknown(op, data_directory()):
                without[op].append(line)
    for op, held in without.items():
        print(f"{held[0]} to {held[-1]}  {op}: nothing is known, and bodies.yaml has no reason")
    text = file_text(read, {release.line: release.torch for release in lists.releases})
    write_text(data_directory() / composites.READ.name, text)
    return int(bool(without))


if __name__ == "__main__":
    sys.exit(main())
