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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from opcheck.common.files import write_text
from opcheck.common.versions import Version
from opcheck.data import lint
from opcheck.data.lint import TEXTS, fragments
from opcheck.data.registrations import data_directory, load
from opcheck.data.strict_yaml import read_entries
from opcheck.lookup.plain_call import OperatorLookup
from scripts.cross_dtypes import crossed
from scripts.opinfo import disagreements, reference, store
from scripts.opinfo.compare import Pair, compare
from scripts.pages import ROOT, aligned_table
from scripts.propose_limitations import PREFIX

FIGURES = ROOT / "reports" / "agreement.json"
TEXT = Path(__file__).with_name("agreement_page.txt")
PAGE = ROOT / "docs" / "explanation" / "agreement.md"

#: From this release on the tests of some random operators compare summaries (op_lists/opinfo: they pass since).
_SUMMARIES_SINCE = Version.parse("2.13")


#: The shares of a table, as parts of a whole.
_SHARES = (("agree", "judged"), ("without_ci", "judged"), ("same_not_refused", "not_refused"), ("same", "compared"))


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
                {"torch": line} | counted(own) | {"without_ci": counted(p for p in fewer if p.kind == kind)["agree"]}
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
    print(f"{tabulate_by_dtype(all_pairs)}\n\nWithout `{PREFIX}*`:\n\n{tabulate_by_dtype(all_fewer)}")
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
    return aligned_table(("torch", "pass", "dtype", "pairs", "agree", "precision", "recall"), rows)


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
    return "an unknown call decides" if "::" in pair.because else "a sample did not run on the simulated Mac"


def _of_reports() -> dict[str, int]:
    entries, _ = read_entries(data_directory() / lint.REPORTS, "reports", lint.PublicReport)
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
    return {"texts": len(texts), "statements": sum(lint.is_quoted(t, quoted) for t in texts)}


def page(figures: dict[str, Any]) -> str:
    """Return the page: its text is agreement_page.txt, its tables are made here."""
    total = _total(figures["opinfo"]["forward"])
    cross = [(row["torch"], row["compared"], row["contradictions"]) for row in figures["cross"]]
    return TEXT.read_text(encoding="utf-8").format(
        **figures,
        prefix=PREFIX,
        summaries_since=_SUMMARIES_SINCE,
        total=total,
        same_share=_share(total["same"], total["compared"]),
        agree_share=_share(total["agree"], total["judged"]),
        tables={
            "opinfo": "\n\n".join(_of_pass(*item) for item in figures["opinfo"].items()),
            "not_judged": _table(figures["not_judged"], "why"),
            "disagreements": _table(figures["disagreements"], "class"),
            "cross": aligned_table(("torch", "compared", "contradictions"), cross),
            "causes": _table(figures["causes"], "cause"),
        },
    )


def _of_pass(kind: str, rows: Sequence[dict[str, Any]]) -> str:
    table = []
    for row in (*rows, _total(rows)):
        shares = (_share(row[part], row[whole]) for part, whole in _SHARES)
        table.append((row["torch"], f"{row['pairs']:,}", f"{row['judged']:,}", *shares))
    without = f"agree without `{PREFIX}*`"
    return aligned_table(("torch", f"pairs, {kind}", "judged", "agree", without, "only refused", "none"), table)


def _table(counts: dict[str, int], title: str) -> str:
    return aligned_table((title, "pairs"), [(name, f"{count:,}") for name, count in counts.items()])


def _total(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"torch": "all"} | {key: sum(row[key] for row in rows) for key in rows[0] if key != "torch"}


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


if __name__ == "__main__":
    sys.exit(main())
