"""How far our verdicts agree with what PyTorch's own CI expects of MPS, release by release and dtype by dtype.

Needs the recordings that ``python -m scripts.run_opinfo_all`` leaves on this machine, and no torch:

    python -m scripts.agreement [--macos 15.0] [--without ci-] [--markdown FILE] [--list] [RELEASE-LINE ...]

A pair is one OpInfo with one dtype.  We predict that its test fails where one of the recorded calls
is unsupported, or runs on the CPU only with PYTORCH_ENABLE_MPS_FALLBACK=1 (the CI does not set
it).  Skipped tests are no pairs; expected failures that say nothing of MPS
(op_lists/opinfo/reference.yaml) are not judged.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Version
from scripts.opinfo import disagreements, store
from scripts.opinfo.compare import Pair, compare
from scripts.propose_limitations import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scripts.opinfo.store import Recording


#: Classes of disagreement in which the CI's test fails though the operator runs.
DIFFERENT = ("ties", "results differ")


def main() -> int:
    """Print the table; 1 if a disagreement is unexplained or an explanation unused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", nargs="*", help="release lines, all recorded ones by default")
    parser.add_argument("--macos", default=store.SIMULATED_MACOS, choices=store.MACOS)
    parser.add_argument(
        "--without", default="", help="leave out statements whose id begins so, such as ci-"
    )
    parser.add_argument(
        "--markdown", type=Path, help="write the tables, with and without ci-, here"
    )
    parser.add_argument("--list", action="store_true", help="print every disagreement")
    given = parser.parse_args()
    try:
        recordings = [store.read(line) for line in given.lines or store.recorded()]
        pairs = judged_pairs(recordings, given.macos, given.without)
        explained = disagreements.load()
    except (OpcheckError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(pairs))
    if given.markdown:
        fewer = judged_pairs(recordings, given.macos, PREFIX)
        parts = (
            table(pairs),
            f"Without the statements whose id begins with `{PREFIX}`:",
            table(fewer),
        )
        given.markdown.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    judged = [pair for pair in pairs if pair.predicted is not None]
    apart = [pair for pair in judged if not pair.agrees]
    problems = disagreements.check(apart, explained, complete=not given.lines and not given.without)
    classes = Counter(disagreements.explain(pair, explained) or "unexplained" for pair in apart)
    print()
    print(
        tabulate(
            classes.most_common(), headers=("class of disagreement", "pairs"), tablefmt="github"
        )
    )
    forward = [pair for pair in judged if pair.kind == "forward"]
    running = [
        p for p in forward if disagreements.explain(p, explained) not in DIFFERENT or p.agrees
    ]
    right = sum(pair.agrees for pair in running)
    print(
        f"\nforward, leaving out the classes {', '.join(DIFFERENT)}: {_ratio(right, len(running))}"
    )
    if given.list:
        for pair in apart:
            print(pair.line, pair.kind, pair.opinfo, pair.dtype, pair.expected, pair.because or "-")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def judged_pairs(recordings: Sequence[Recording], macos: str, without: str) -> list[Pair]:
    """Every pair of the recordings, judged without the statements whose id begins so."""
    return [pair for recording in recordings for pair in compare(recording, macos, without=without)]


def table(pairs: Sequence[Pair]) -> str:
    """One row a release, pass and dtype group, with the totals of each release and pass."""
    rows = []
    lines = sorted({pair.line for pair in pairs}, key=Version.parse)
    for kind in store.PASSES:
        for line in lines:
            of_line = [pair for pair in pairs if pair.line == line and pair.kind == kind]
            rows.append(_row(line, kind, "all", of_line))
        of_kind = [pair for pair in pairs if pair.kind == kind]
        rows += [
            _row("all", kind, dtype, of_dtype)
            for dtype in store.DTYPES
            if (of_dtype := [pair for pair in of_kind if pair.dtype == dtype])
        ]
        rows.append(_row("all", kind, "all", of_kind))
    headers = ("torch", "pass", "dtype", "pairs", "agree", "precision", "recall", "not judged")
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def _row(line: str, kind: str, dtype: str, pairs: Iterable[Pair]) -> tuple[str, ...]:
    counts: Counter[tuple[str, bool | None]] = Counter((p.expected, p.predicted) for p in pairs)
    right, wrong = counts["xfail", True], counts["pass", True]
    missed, quiet = counts["xfail", False], counts["pass", False]
    total = right + wrong + missed + quiet
    return (
        line,
        kind,
        dtype,
        str(total),
        _ratio(right + quiet, total),
        _ratio(right, right + wrong),
        _ratio(right, right + missed),
        str(sum(number for (_, predicted), number in counts.items() if predicted is None)),
    )


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


if __name__ == "__main__":
    sys.exit(main())
