"""The short answer: one headline that no finding contradicts, the findings, at most eight lines."""

from __future__ import annotations

import msgspec
import pytest

from opcheck.common.text import flop_count, percent
from opcheck.model.records import Finding, Lifetime, Problem, Report
from opcheck.render import render
from opcheck.render.report import SECTIONS, document
from opcheck.render.summary import deciding_numbers, facts, headline
from opcheck.render.text import as_text
from tests.made import call, make_report, make_statement, problem, spec
from tests.render.test_formats import REPORTS

GIB = 1 << 30
HUGE = (Lifetime(storage=1, nbytes=300 * GIB, first=0, freed=None, kind="result"),)
ADD = make_statement("add-shape", ops=("aten::add_.Tensor",))


def text(report: Report, *shown: str) -> str:
    return as_text(document(report, shown))


@pytest.mark.parametrize(
    ("report", "numbers"),
    [
        (make_report(call("aten::mm")), "its one call is native"),
        (make_report(call("aten::mm"), call("aten::mm")), "all 2 calls native"),
        (
            make_report(call("aten::mm", flops=99), call("aten::embedding_renorm_", flops=1)),
            "1 of 2 calls on the CPU, 1 % of the FLOPs",
        ),
        (make_report(call("aten::mm"), call("aten::embedding_renorm_")), "1 of 2 calls on the CPU"),
        (make_report(call("aten::foo"), call("aten::mm")), "1 of 2 calls needs the variable"),
        (make_report(call("aten::stub"), call("aten::mm")), "1 of 2 calls fails"),
        (
            make_report(call("aten::stub"), call("aten::foo"), call("aten::mm")),
            "2 errors: 1 of 3 calls fails, 1 needs PYTORCH_ENABLE_MPS_FALLBACK=1",
        ),
        (make_report(call("mylib::op"), call("aten::mm")), "1 of 2 calls unknown"),
        (make_report(call("aten::mm"), complete=False), "it ends after 1 call"),
        (make_report(complete=False), "it ends before its first call"),
        (make_report(), "it calls no operator on mps"),
        (
            make_report(call("aten::mm"), problems=(Problem(kind="quantized", message="", answered="gptq"),)),
            "OC127 says why",
        ),
        (make_report(call("aten::mm"), lifetimes=HUGE), "an estimated 300.0 GiB on a Mac of 512 GB"),
    ],
)
def test_the_headline_has_the_numbers_that_decide_it(report: Report, numbers: str) -> None:
    assert deciding_numbers(report) == numbers
    assert headline(report) == f"{report.headline}: model.py:Net on {report.target}; {numbers}"
    assert text(report).replace("\n", " ").startswith(headline(report))


@pytest.mark.parametrize(
    "report",
    [
        *REPORTS.values(),
        make_report(call("aten::mm"), lifetimes=HUGE),
        make_report(call("aten::mm"), lifetimes=HUGE, mac=8),
        make_report(call("aten::add_.Tensor"), statements=(ADD,)),
        make_report(call("aten::mm", refusal=("device_mismatch", "two devices"))),
        *(make_report(call("aten::mm"), problems=(problem(kind),)) for kind in ("needs_cuda",)),
        make_report(call("aten::mm"), problems=(problem("timeout"),), complete=False),
    ],
)
def test_no_finding_contradicts_the_headline(report: Report) -> None:
    errors = {finding.rule for finding in report.findings if finding.severity == "error"}
    if report.headline in {"runs natively", "runs, partly on the CPU"}:
        assert not errors
    elif report.headline.startswith("runs only"):
        assert errors == {"OC102"}
    elif report.headline == "could not tell":
        assert errors <= {"OC120", "OC125", "OC102"}


def test_a_release_that_nobody_chose_is_said_once_in_the_headline() -> None:
    report = msgspec.structs.replace(make_report(call("aten::mm")), newest=True)
    assert "on torch 2.13 (the newest release), macOS 15.0; " in text(report)
    assert text(report).count("newest") == 1
    assert "newest" not in text(make_report(call("aten::mm")))


@pytest.mark.parametrize("name", REPORTS)
def test_the_summary_has_at_most_eight_lines(name: str) -> None:
    assert len(facts(REPORTS[name], short=True).items) <= 8


def test_the_answer_for_a_native_model_has_at_most_ten_lines() -> None:
    lines = text(REPORTS["native"]).splitlines()
    assert len(lines) <= 10
    assert lines[-1].startswith("  next ") or lines[-2].startswith("  next ")


def test_notes_alone_are_counted_in_the_headline() -> None:
    finding = Finding(rule="OC104", severity="note", message="m")
    noted = msgspec.structs.replace(make_report(call("aten::mm")), findings=(finding,))
    assert text(noted).splitlines()[:2] == [f"{headline(noted)}; 1 note", ""]
    assert "; 1 note" not in text(noted, "notes").splitlines()[0]


@pytest.mark.parametrize(("severity", "entries"), [("warning", 1), ("error", 3)])
def test_warnings_of_a_rule_with_the_same_help_are_shown_once_and_errors_each(severity: str, entries: int) -> None:
    alike = [
        msgspec.convert(
            {
                "rule": "OC120",
                "severity": severity,
                "message": f"{op} m",
                "op": op,
                "hint": "h",
                "confidence": "unknown",
            },
            Finding,
        )
        for op in ("aten::a", "aten::b", "aten::c")
    ]
    shown = text(msgspec.structs.replace(make_report(call("aten::mm")), findings=tuple(alike)))
    assert shown.count("    help: h") == entries
    assert ("  and OC120 for aten::b, aten::c" in shown) == (entries == 1)
    assert "more finding" not in shown


def test_findings_are_grouped_by_what_mends_them() -> None:
    ops = ("aten::stub", "aten::foo", "aten::add_.Tensor", "aten::svd", "aten::embedding_renorm_")
    calls = [call(op, line) for line, op in enumerate(ops, 20)]
    lines = text(make_report(*calls, call("aten::foo", 30), statements=(ADD,))).splitlines()
    assert len(lines) <= 30
    assert [line for line in lines[2:] if line[:1].strip()] == [
        "Change 2 lines: model.py:20, 22",
        "Set PYTORCH_ENABLE_MPS_FALLBACK=1 for 3 lines: model.py:21, 23, 30",
        "On the CPU, slower, in 1 line: model.py:24",
    ]
    assert " ".join(lines[:2]).endswith("; 4 errors: 2 of 6 calls fail, 3 need PYTORCH_ENABLE_MPS_FALLBACK=1")
    assert lines[-1] == "  next         opcheck explain OC101"


def test_many_findings_are_cut_and_all_their_lines_are_named() -> None:
    calls = [call(f"mylib::op{line}", line) for line in range(1, 40)]
    page = text(make_report(*calls))
    assert "Check 39 lines: model.py:1, 2, 3, 4, 5, 6, 7, 8 and 31 more" in page
    assert "and OC104 for mylib::op10, mylib::op11, mylib::op12, mylib::op13, mylib::op14 and 33 more" in page
    errors = tuple(Finding(rule="OC101", severity="error", message=f"m{line}") for line in range(1, 40))
    page = text(msgspec.structs.replace(make_report(call("aten::mm")), findings=errors))
    assert "and 34 more findings (-v shows all)" in page
    assert len(page.splitlines()) <= 30


def test_notes_are_named_and_only_verbose_shows_them() -> None:
    report = REPORTS["everything"]
    notes = [finding for finding in report.findings if finding.severity == "note"]
    assert notes
    short, whole = text(report), as_text(document(report), full=True)
    assert "and 8 more findings and 3 notes (-v shows all)" in short
    for finding in notes:
        assert f"note {finding.rule}" in whole
        assert f"note {finding.rule}" not in short
    assert "note OC123" in text(report, "notes")


@pytest.mark.parametrize("name", SECTIONS[1:])
def test_a_section_is_shown_where_it_is_picked(name: str) -> None:
    titles = {"operators": "Operators", "memory": "Memory on MPS", "transfers": "Transfers", "evidence": "Evidence"}
    for other, title in titles.items():
        has_title = f"\n{title}" in text(REPORTS["everything"], name)
        assert has_title == (other == name)
        assert f"\n{title}" in as_text(document(REPORTS["everything"]))


def test_markdown_has_the_order_of_the_text_and_folds_what_a_mac_prints() -> None:
    report = make_report(call("aten::foo", 1), call("aten::svd", 2))
    page = render(report, "markdown")
    order = [page.index(title) for title in ("## Findings", "## Summary", "## Operators")]
    assert order == sorted(order)
    # The text is the same for both, but for the operator.
    assert page.count("is not currently implemented for the MPS device") == 2
    assert page.count("<details>") == page.count("</details>") == 1


def test_what_leaves_the_gpu_is_a_share_of_flops_and_bytes() -> None:
    rows = dict(facts(make_report(call("aten::mm", flops=75), call("aten::foo", flops=25)), short=True).items)
    assert rows["off the GPU"] == (
        "25 % of 100 FLOP, 50 % of 96 bytes read and written; 1 copy to the CPU "
        "(24 bytes), 1 back (24 bytes), around 1 CPU region"
    )
    native = dict(facts(make_report(call("aten::mm", flops=75)), short=False).items)
    assert native["off the GPU"] == "nothing: 75 FLOP and 48 bytes read and written stay on it"


def test_what_was_assumed_is_said() -> None:
    report = make_report(
        call("aten::mm"),
        inputs_note="inputs as the model is documented",
        problems=(Problem(kind="guess", message="guessed", op="aten::item", answered="1.0"),),
        installed_torch="2.9.1",
    )
    assert dict(facts(report, short=True).items)["assumed"] == (
        "inputs as the model is documented: x: float32[2, 3]; 1 guessed value that branches or "
        "shapes rest on; Python code of torch 2.9.1 in place of 2.13"
    )
    assert "assumed" not in dict(facts(make_report(call("aten::mm")), short=True).items)


def test_the_lines_that_wait_are_named_the_most_frequent_first() -> None:
    calls = [call("aten::mm", line, outputs=(), waits=True) for line in (1, 2, 2, 3)]
    rows = dict(facts(make_report(*calls), short=True).items)
    assert rows["waits"] == (
        "the CPU waits for the GPU 4 times: aten::mm model.py:2 x2, aten::mm model.py:1 and 1 more"
    )


def test_one_cause_is_one_finding() -> None:
    moved = [
        call("aten::_to_copy", location=None, module=f"layer{n}", phase="move", outputs=(spec(n, dtype="float64"),))
        for n in range(3, 50)
    ]
    used = [call("aten::mm", n, inputs=(spec(n, dtype="float64"),)) for n in range(3, 50)]
    report = make_report(*moved, *used)
    assert [finding.rule for finding in report.findings if finding.severity == "error"] == ["OC140"]
    mixed = [call(op, refusal=("device_mismatch", "two")) for op in ("aten::mm", "aten::relu")]
    (finding,) = make_report(*mixed).findings
    assert finding.message == (
        "its tensors are on two devices, and a Mac refuses that whatever is registered (2 calls of 2 operators)"
    )


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (1000, "1.0 kFLOP"),
        (999_960, "1.0 MFLOP"),
        (3_600_000_000, "3.6 GFLOP"),
        (10**18, "1000.0 PFLOP"),
    ],
)
def test_flops_have_a_unit(number: int, written: str) -> None:
    assert flop_count(number) == written


def test_a_share_never_reads_as_none_or_as_all() -> None:
    assert [percent(part, 10_000) for part in (0, 1, 99, 100, 9_900, 9_999, 10_000)] == [
        "0 %",
        "<1 %",
        "<1 %",
        "1 %",
        "99 %",
        ">99 %",
        "100 %",
    ]
    assert percent(0, 0) == "0 %"
