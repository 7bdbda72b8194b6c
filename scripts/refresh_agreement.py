"""Write docs/explanation/agreement.md: how often the lists agree with each source, and what is circular.

Usage: python -m scripts.refresh_agreement [--measure]

With ``--measure`` the figures are computed anew, which needs the recordings of ``python -m scripts.run_opinfo_all``,
and kept in reports/agreement.json; the page is written from that file.  It also prints the agreement, the precision and
the recall by dtype, and the disagreements with PyTorch's CI that nothing explains: then the exit code is 1.

A pair is one OpInfo with one dtype.  We predict that its test fails where one of the recorded calls is unsupported, or
runs on the CPU only with PYTORCH_ENABLE_MPS_FALLBACK=1 (the CI does not set it).  Skipped tests are no pairs; expected
failures that say nothing of MPS (op_lists/opinfo/reference.yaml) are not judged.
"""

import argparse
import datetime as dt
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data import triage
from opcheck.data.registrations import data_directory, load
from opcheck.data.strict_yaml import read_entries
from opcheck.data.triage import TEXTS, fragments
from opcheck.lookup.plain_call import OperatorLookup
from scripts.cross_dtypes import crossed
from scripts.opinfo import disagreements, reference, store
from scripts.opinfo.compare import Pair, compare
from scripts.propose_limitations import PREFIX

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "reports" / "agreement.json"
PAGE = ROOT / "docs" / "explanation" / "agreement.md"

#: From this release on the tests of some random operators compare summaries (op_lists/opinfo: they pass since).
_SUMMARIES_SINCE = Version.parse("2.13")


def main() -> int:
    """Write the page; 1 where a disagreement is unexplained or an explanation unused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="compute the figures anew")
    problems: list[str] = []
    if parser.parse_args().measure:
        figures, problems = measure()
        write_text(FIGURES, json.dumps(figures, indent=1) + "\n")
    write_text(PAGE, page(json.loads(FIGURES.read_text(encoding="utf-8"))))
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


def measure() -> tuple[dict[str, Any], list[str]]:
    """Return the figures of every source, and what is wrong with the explanations; print the tables by dtype.

    Raises:
        OSError: a recording cannot be read.
        OpListError: the op lists are damaged.
    """
    lists = load()
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in store.PASSES}
    not_judged: Counter[str] = Counter()
    summaries: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    explained = disagreements.load()
    causes: Counter[str] = Counter()
    cross = []
    lookup = OperatorLookup(lists)
    all_pairs: list[Pair] = []
    all_fewer: list[Pair] = []
    for line in store.recorded():
        recording = store.read(line)
        pairs = list(compare(recording, store.SIMULATED_MACOS))
        fewer = list(compare(recording, store.SIMULATED_MACOS, without=PREFIX))
        all_pairs += pairs
        all_fewer += fewer
        for kind in store.PASSES:
            own = [pair for pair in pairs if pair.kind == kind]
            rows[kind].append(
                {"torch": line}
                | counted(own)
                | {"without_ci": counted(p for p in fewer if p.kind == kind)["agree"]}
            )
        if Version.parse(line) >= _SUMMARIES_SINCE:
            summaries.update(p.kind for p in pairs if p.because == reference.REASONS["random"])
        forward = [pair for pair in pairs if pair.kind == "forward"]
        not_judged.update(_why_not(pair) for pair in forward if pair.predicted is None)
        apart = [p for p in forward if p.predicted is not None and not p.agrees]
        classes.update(disagreements.explain(pair, explained) or "unexplained" for pair in apart)
        contradictions, counts = crossed(line, store.SIMULATED_MACOS, lookup)
        causes.update(cause for _, cause in contradictions)
        cross.append({"torch": line, "compared": counts, "contradictions": len(contradictions)})
    print(
        f"{tabulate_by_dtype(all_pairs)}\n\nWithout `{PREFIX}*`:\n\n{tabulate_by_dtype(all_fewer)}"
    )
    apart = [pair for pair in all_pairs if pair.predicted is not None and not pair.agrees]
    figures = {
        "computed": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "op_lists": lists.digest,
        "macos": store.SIMULATED_MACOS,
        "opinfo": rows,
        "not_judged": dict(not_judged.most_common()),
        "random_beside_summaries": {kind: summaries[kind] for kind in store.PASSES},
        "disagreements": dict(classes.most_common()),
        "cross": cross,
        "causes": dict(causes.most_common()),
        "reports": _of_reports(),
        "texts": _of_texts(),
    }
    return figures, disagreements.check(apart, explained)


def tabulate_by_dtype(pairs: Sequence[Pair]) -> str:
    """Return a table with a row a release, pass and dtype, and the totals of each release and pass."""
    counts: dict[tuple[str, str, str], Counter[tuple[str, bool | None]]] = defaultdict(Counter)
    for pair in pairs:
        for group in ((pair.line, "all"), ("all", pair.dtype), ("all", "all")):
            counts[(pair.kind, *group)][pair.expected, pair.predicted] += 1
    rows = []
    for (kind, line, dtype), count in sorted(counts.items()):
        right, wrong = count["xfail", True], count["pass", True]
        missed, quiet = count["xfail", False], count["pass", False]
        shares = (
            _share(right + quiet, right + wrong + missed + quiet),
            _share(right, right + wrong),
            _share(right, right + missed),
        )
        rows.append((line, kind, dtype, count.total(), *shares))
    headers = ("torch", "pass", "dtype", "pairs", "agree", "precision", "recall")
    return tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True)


def counted(pairs: Iterable[Pair]) -> dict[str, int]:
    """Count pairs: in all, judged and agreeing; and both with fewer and with no expectations left out.

    ``refused`` leaves out only the expected failures in which the CPU raises, ``compared`` none.
    """
    listed = list(pairs)
    judged = [pair for pair in listed if pair.predicted is not None]
    compared = [pair for pair in listed if pair.raises is not None]
    refused = [pair for pair in compared if pair.because != reference.REASONS["raises"]]
    return {
        "pairs": len(listed),
        "judged": len(judged),
        "agree": sum(pair.agrees for pair in judged),
        "not_refused": len(refused),
        "same_not_refused": sum(_same(pair) for pair in refused),
        "compared": len(compared),
        "same": sum(_same(pair) for pair in compared),
    }


def _same(pair: Pair) -> bool:
    return pair.raises == (pair.expected == "xfail")


def _why_not(pair: Pair) -> str:
    if pair.raises is not None:
        return pair.because
    return (
        "an unknown call decides"
        if "::" in pair.because
        else "a sample did not run on the simulated Mac"
    )


def _of_reports() -> dict[str, int]:
    entries, _ = read_entries(data_directory() / triage.REPORTS, "reports", triage.PublicReport)
    return {
        "addresses": len(entries),
        "statements": sum(bool(report.statements) for _, report in entries),
        "open": sum(report.why_none == "not yet judged" for _, report in entries),
    }


def _of_texts() -> dict[str, int]:
    texts = TEXTS.load().texts
    quoted = {
        piece
        for statement in load().statements.all
        if statement.error is not None
        for piece in fragments(statement.error.text)
    }
    return {"texts": len(texts), "statements": sum(triage.is_quoted(t, quoted) for t in texts)}


def page(figures: dict[str, Any]) -> str:
    """Return the page."""
    return "\n\n".join(_paragraphs(figures)) + "\n"


def _paragraphs(figures: dict[str, Any]) -> Iterator[str]:
    yield "# How often the lists agree with each source"
    yield (
        f"Computed on {figures['computed']} with the op lists {figures['op_lists']}; written by "
        "`python -m scripts.refresh_agreement`. Nothing was run on a Mac. A source that statements were "
        "made from agrees in part because of that: each section says how much."
    )
    yield from _opinfo(figures)
    yield from _crossed(figures)
    public, texts = figures["reports"], figures["texts"]
    yield "## Public reports"
    yield (
        f"`op_lists/reports.yaml` has {public['addresses']:,} addresses of issues and pull requests that were "
        f"read; {public['statements']:,} led to a statement or confirm it, {public['open']:,} are not judged yet, the "
        "others have a reason why there is no statement. **Circular**: the statements were written with these reports "
        "at hand, so that they cannot show how often the lists are right."
    )
    yield "## Texts in the wheels"
    yield (
        f"The MPS sources of the wheels contain {texts['texts']:,} texts. Statements quote {texts['statements']:,} of "
        "them; each of the others has a reason in `op_lists/texts.yaml`. **Not a check of verdicts**: a text proves "
        "that a refusal exists; its condition was read or inferred."
    )
    yield "## Refusals of the CPU"
    yield (
        "`op_lists/refused_dtypes.json` is what the CPU of one release refuses and PyTorch's operator database lists "
        "for no device. **Circular**: it is that source; the texts that a Mac prints there are not known."
    )


def _opinfo(figures: dict[str, Any]) -> Iterator[str]:
    yield "## PyTorch's CI"
    yield (
        "PyTorch ships, from 2.8 on, the list of tests that it expects to fail on MPS. A pair is one row of the "
        f"operator database with one dtype (macOS {figures['macos']}, skipped tests left out). opcheck predicts a "
        "failure where a call that the samples make on the simulated Mac is unsupported, or needs the fallback "
        "variable. An expected failure is no evidence of MPS where the CPU of the installed release fails the same "
        "test by itself. The columns leave out different pairs for this reason: *agree* leaves out all of them, "
        "*only refused* those that raise on the CPU, *none* leaves out no pair. The verdicts are the same."
    )
    total = _total(figures["opinfo"]["forward"])
    yield (
        f"**Forward, the verdicts agree in {_share(total['same'], total['compared'])} of {total['compared']:,} pairs "
        f"if no pair is left out, and in {_share(total['agree'], total['judged'])} of {total['judged']:,} that are "
        "judged. The difference is a matter of evidence, not of corrected verdicts**: the pairs between "
        "the two are expected failures, and leaving out those that opcheck does not predict raises the share."
    )
    for kind, rows in figures["opinfo"].items():
        yield tabulate(
            [
                (
                    row["torch"],
                    f"{row['pairs']:,}",
                    f"{row['judged']:,}",
                    _share(row["agree"], row["judged"]),
                    _share(row["without_ci"], row["judged"]),
                    _share(row["same_not_refused"], row["not_refused"]),
                    _share(row["same"], row["compared"]),
                )
                for row in (*rows, _total(rows))
            ],
            headers=(
                "torch",
                f"pairs, {kind}",
                "judged",
                "agree",
                f"agree without `{PREFIX}*`",
                "only refused",
                "none",
            ),
            tablefmt="github",
            disable_numparse=True,
        )
    yield (
        f"**Circular in part.** The statements whose id begins with `{PREFIX}` come from these lists; the column "
        "without them is not circular in that way. Other statements cite the lists and a check in the library. The "
        "registrations, which decide most pairs, are read from the wheels, which do not depend on the lists."
    )
    yield "Forward pairs that are not judged, and why:"
    yield _table(figures["not_judged"], "why")
    yield (
        "The rows about the CPU, the seed and the copied input are expected failures that prove nothing about MPS: "
        "`python -m scripts.opinfo_reference` runs each test on the CPU of the installed release again, with another "
        "seed, with new memory filled and on copies of the inputs. The other releases are taken to do the same."
    )
    beside = figures["random_beside_summaries"]
    yield (
        f"From {_SUMMARIES_SINCE} on PyTorch compares the draws of some operators by summary, and those tests pass. "
        f"{beside['forward']:,} forward and {beside['gradient']:,} gradient pairs of these releases are still left "
        "out because the CPU's result depends on the seed (dropout's gradients, attention, fractional pooling and the "
        "like). Whether PyTorch compares any of them by summary was not read, so that some may be evidence after all."
    )
    yield (
        "Forward disagreements by class; `op_lists/opinfo/disagreements.yaml` has the reason of each. *Ties* and "
        "*results differ* run on MPS and give other results, which no verdict of opcheck claims to predict:"
    )
    yield _table(figures["disagreements"], "class")


def _crossed(figures: dict[str, Any]) -> Iterator[str]:
    yield "## Dtypes, crossed"
    yield (
        "`python -m scripts.cross_dtypes` compares the verdicts of `opcheck op` by dtype with two sources: the lists "
        "above, where an OpInfo is about one overload alone, and the names of the Metal kernels in the wheels. The "
        "kernels' names are **not circular** where a statement cites a text; a missing name proves nothing."
    )
    yield tabulate(
        [(row["torch"], row["compared"], row["contradictions"]) for row in figures["cross"]],
        headers=("torch", "compared", "contradictions"),
        tablefmt="github",
        disable_numparse=True,
    )
    yield "The contradictions by cause:"
    yield _table(figures["causes"], "cause")


def _table(counts: dict[str, int], title: str) -> str:
    rows: Sequence[tuple[str, str]] = [(name, f"{count:,}") for name, count in counts.items()]
    return tabulate(rows, headers=(title, "pairs"), tablefmt="github", disable_numparse=True)


def _total(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"torch": "all"} | {
        key: sum(row[key] for row in rows) for key in rows[0] if key != "torch"
    }


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


if __name__ == "__main__":
    sys.exit(main())
