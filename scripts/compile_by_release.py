"""Compile forms of programs for Metal as each release writes it; write the table of docs/explanation/compile.md.

    python -m scripts.compile_by_release

A cell is what ``opcheck compile`` says for that release: the target's own Metal backend wrote the kernels, the
installed Inductor did the rest.  Needs the wheels of the cache; some minutes.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from opcheck.data.compile_defects import DECIDING
from opcheck.features.compile.compile_records import CompileReport, Variant
from scripts.compile_reports import judge_for
from scripts.opinfo.forks import in_processes
from scripts.pages import ROOT, aligned_table, replace_between

DOCS = ROOT / "docs" / "explanation" / "compile.md"
START, END = "<!-- by release -->\n", "<!-- end of by release -->"
RELEASES = ("2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")


class Form(NamedTuple):
    """A row: what it is, a program of examples/models/reported.py, and how it is compiled."""

    title: str
    program: str
    variant: Variant = Variant(backend="inductor", metal=True)


FORMS = msgspec.yaml.decode(Path(__file__).with_name("compile_forms.yaml").read_bytes(), type=list[Form])


def main() -> None:
    """Run each release in a process of its own; write the table."""
    columns = in_processes(cells, RELEASES, 2)
    rows = [(form.title, *(column[row] for column in columns)) for row, form in enumerate(FORMS)]
    replace_between(DOCS, START, END, aligned_table(("", *RELEASES), rows) + "\n")


def cells(release: str) -> list[str]:
    """Return the cells of a release, in the order of ``FORMS``."""
    judge = judge_for(release)
    return [cell(judge(form.program, form.variant)) for form in FORMS]


def cell(report: CompileReport) -> str:
    """Return the outcome, with the ids of the defects that made it or that stand beside it."""
    outcome = report.compiled.tried[0].outcome
    ids = [group.defect for group in report.failures if group.defect]
    ids += [a.id for a in report.advisories if a.effect not in DECIDING and a.kernels]
    known = ", ".join(dict.fromkeys(ids))
    return f"{outcome}: {known}" if known else outcome


if __name__ == "__main__":
    main()
