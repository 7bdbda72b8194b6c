"""Our verdicts held against simulated observations: what PyTorch's own CI expects of MPS, as if a Mac had been watched.

Needs the recordings that ``python -m scripts.run_opinfo_all`` leaves on this machine, and no torch:

    python -m scripts.verify_opinfo [RELEASE-LINE] [--macos 15.0] [--list]

Without a release line it is 2.13.  An OpInfo with a dtype is one thing: it is predicted to raise
where one of its recorded calls does (the CI does not set the fallback variable), and observed to
where the CI expects a failure.  The two go through the comparison that ``opcheck verify`` makes of
reports.  Writes reports/verify.md; each contradiction needs a reason in
op_lists/opinfo/disagreements.yaml.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from opcheck.common.errors import OpcheckError
from opcheck.common.files import write_text
from opcheck.common.vocabulary import Confidence, Status
from opcheck.data.registrations import load
from opcheck.device.observe.log_parsing import CONFIDENCE
from opcheck.device.verify import Verification, ratio, verify
from opcheck.model.records import CallGroup, CaptureFacts, OpListFacts, Partition, Report, ReportTarget
from scripts.opinfo import disagreements, store
from scripts.opinfo.compare import Pair, compare
from scripts.opinfo.evaluation import Pass
from scripts.pages import ROOT, aligned_table, page_text

PAGE = ROOT / "reports" / "verify.md"
LINE = "2.13"
_PREDICTED: dict[bool | None, Status] = {True: "unsupported", False: "native", None: "unknown"}
_OBSERVED: dict[str, Status] = {"xfail": "unsupported", "pass": "native"}


def main() -> int:
    """Print and write the page; 1 if a contradiction has no reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("line", nargs="?", default=LINE)
    parser.add_argument("--macos", default=store.SIMULATED_MACOS, choices=store.MACOS)
    parser.add_argument("--list", action="store_true", help="print every contradiction")
    given = parser.parse_args()
    try:
        pairs = list(compare(store.read(given.line), given.macos))
        explained = disagreements.load()
    except (OpcheckError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    results = {kind: verified(pairs, kind, given.line, given.macos) for kind in store.PASSES}
    page = "\n\n".join(_page(results, pairs, explained, given.line, given.macos)) + "\n"
    print(page)
    if given.list:
        for kind, verification in results.items():
            for pair in verification.contradictions:
                print(kind, pair.op, *pair.dtypes, pair.predicted, pair.observed, pair.because or "-")
    write_text(PAGE, page)
    return 1 if _unexplained(pairs, explained) else 0


def verified(pairs: Sequence[Pair], kind: str, line: str, macos: str) -> Verification:
    """The comparison of one pass, forward or gradient."""
    chosen = [pair for pair in pairs if pair.kind == kind]
    prediction = [_group(pair, _PREDICTED[pair.predicted], "registration") for pair in chosen]
    observation = [_group(pair, _OBSERVED[pair.expected], CONFIDENCE) for pair in chosen]
    target = ReportTarget(torch=line, macos=macos, cpu_fallback=False)
    return verify(_report("opcheck", target, prediction), _report("PyTorch's CI", target, observation), load())


def _report(name: str, target: ReportTarget, groups: Sequence[CallGroup]) -> Report:
    return Report(
        tool=name,
        headline="could not tell",
        model=name,
        target=target,
        totals={},
        findings=(),
        groups=tuple(groups),
        partition=Partition(),
        capture=CaptureFacts(complete=True),
        op_lists=OpListFacts(),
        not_checked=(),
    )


def _group(pair: Pair, status: Status, confidence: Confidence) -> CallGroup:
    return CallGroup(
        count=1, op=pair.opinfo, status=status, dtypes=(pair.dtype,), because=pair.because, confidence=confidence
    )


def _apart(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.predicted is not None and not pair.agrees]


def _unexplained(pairs: Sequence[Pair], explained: Sequence[disagreements.Explanation]) -> list[Pair]:
    return [pair for pair in _apart(pairs) if disagreements.explain(pair, explained) is None]


def _page(
    result: Mapping[Pass, Verification],
    pairs: Sequence[Pair],
    explained: Sequence[disagreements.Explanation],
    line: str,
    macos: str,
) -> Iterator[str]:
    yield f"# Predictions held against PyTorch's CI, torch {line}, macOS {macos}"
    yield page_text("contradictions")
    rows = [
        (kind, each.status, *counts, ratio(each.both, each.predicted), ratio(each.both, each.observed))
        for kind, verification in result.items()
        for each in verification.rates
        for counts in [(each.predicted, each.observed, each.both)]
    ]
    headers = ("pass", "status", "predicted", "observed", "both", "precision", "recall")
    yield aligned_table(headers, rows)
    apart = _apart(pairs)
    unknown = sum(pair.predicted is None for pair in pairs)
    contradictions = sum(len(verification.contradictions) for verification in result.values())
    stated = len(apart) - len(_unexplained(pairs, explained))
    counts = {"pairs": len(pairs), "unknown": unknown, "contradictions": contradictions, "stated": stated}
    yield page_text("contradictions, counts", **counts)
    yield "## Contradictions, by their reason"
    yield aligned_table(("class", "pairs", "the CI", "OpInfos", "reason"), list(_reasons(apart, explained)))


def _reasons(
    apart: Sequence[Pair], explained: Sequence[disagreements.Explanation]
) -> Iterator[tuple[str, int, str, str, str]]:
    """Each reason that is used, with its pairs of OpInfo and dtype; the most frequent first."""
    counts: Counter[int] = Counter()
    members: dict[int, dict[str, set[str]]] = {}
    for pair in apart:
        number = next((i for i, item in enumerate(explained) if item.named_by(pair)), -1)
        counts[number] += 1
        members.setdefault(number, {}).setdefault(pair.opinfo, set()).add(pair.dtype)
    for number, count in counts.most_common():
        explanation = explained[number] if number >= 0 else None
        named = "; ".join(f"{name} ({', '.join(sorted(dtypes))})" for name, dtypes in sorted(members[number].items()))
        reason = " ".join(explanation.reason.split()) if explanation else "none"
        yield (
            explanation.class_ if explanation else "unexplained",
            count,
            "fails" if explanation and explanation.expected == "xfail" else "passes",
            named,
            reason,
        )


if __name__ == "__main__":
    sys.exit(main())
