"""Writes a finding as an issue for PyTorch's tracker; pure functions."""

import re
from collections.abc import Iterator

from opcheck.common.sanitize import for_log, markdown, markdown_code, markdown_fence
from opcheck.common.versions import Version
from opcheck.data.messages import not_implemented
from opcheck.model.records import Record
from opcheck.reproducer.chosen import ChosenFinding
from opcheck.reproducer.program_check import TriedProgram

_NEW = "https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml"
_ISSUE = re.compile(r"https://github\.com/pytorch/pytorch/issues/\d+")


class Issue(Record, frozen=True, kw_only=True):
    """The text of an issue, and where it belongs."""

    #: an address, and what it is
    where: str
    reason: str
    body: str


def _fence(text: str, language: str = "") -> tuple[str, str, str]:
    fence = markdown_fence(text)
    return f"{fence}{language}", text, fence


def write(chosen: ChosenFinding, tried: TriedProgram) -> Issue:
    """The Markdown for a comment or a new issue, with the program that shows the finding."""
    where, reason = _where(chosen)
    return Issue(where=where, reason=reason, body=for_log("\n".join(_body(chosen, tried))) + "\n")


def _where(chosen: ChosenFinding) -> tuple[str, str]:
    report, calls = chosen.report, chosen.calls
    assert calls is not None
    if _is_missing(chosen):
        op = calls.named or calls.op
        refusal = not_implemented(op, Version.parse(report.target.torch), report.op_lists.commit)
        if match := _ISSUE.search(calls.prints) or _ISSUE.search(refusal):
            return match[0], "a comment there: this is where PyTorch collects operators that MPS lacks"
    for name in chosen.statement_names:
        for link in report.statements[name].links if name in report.statements else ():
            if _ISSUE.fullmatch(link):
                return link, "it is known there: add what is new, or nothing"
    return _NEW, "a new issue, with the label module: mps; check for an existing issue"


def _is_missing(chosen: ChosenFinding) -> bool:
    """Return whether the operator has no kernel, rather than a kernel that refuses this call."""
    calls = chosen.calls
    is_refused = calls is not None and calls.status in {"fallback", "unsupported"}
    return is_refused and not chosen.statement_names


def _body(chosen: ChosenFinding, tried: TriedProgram) -> Iterator[str]:
    report, calls, finding = chosen.report, chosen.calls, chosen.finding
    assert calls is not None
    op = calls.named or calls.op
    # Headings as in PyTorch's own form.
    yield from ("### 🐛 Describe the bug", "")
    yield f"{markdown_code(op)} {_what(chosen)} on MPS, torch {markdown(report.op_lists.torch)}."
    yield from ("", "**Use case.** <!-- what the program is for; one sentence -->")
    training = " (a training step)" if report.capture.mode == "train" else ""
    yield f"{markdown_code(report.model)}{training}"
    for place in finding.locations[:3]:
        module = f" in {markdown_code(place.module)}" if place.module else ""
        yield from ("", f"{markdown(place.line)}{module}:", "", *_fence(place.text, "python"))
    yield from ("", "**Minimal program.**", "", *_fence(tried.text.rstrip(), "python"), "")
    variable = "with" if report.target.cpu_fallback else "without"
    yield f"**Expected.** The result of the CPU. **Instead**, {variable} PYTORCH_ENABLE_MPS_FALLBACK=1:"
    yield from ("", *_fence("\n".join(tried.expected)), "", "### Versions", "")
    torch = f"PyTorch version: {report.op_lists.torch}\nPyTorch commit: {report.op_lists.commit}"
    yield from (*_fence(f"{torch}\nOS: macOS {report.target.macos} (arm64)"), "")
    if chosen.observed:
        yield "<!-- add what `python -m torch.utils.collect_env` prints there -->"
    else:
        yield (
            f"Predicted by {markdown(report.tool)} from the release's registrations; nothing was observed on a Mac. "
            "<!-- run the program on a Mac before this is sent, then replace this line with the output of "
            "`python -m torch.utils.collect_env` there -->"
        )
    yield from ("", "Evidence:", "")
    for entry in calls.evidence:
        yield "- " + markdown(": ".join(filter(None, (entry.kind, entry.where, entry.detail))))


def _what(chosen: ChosenFinding) -> str:
    calls = chosen.calls
    assert calls is not None
    if chosen.silent:
        return "gives a wrong result, without an error,"
    if calls.status == "unsupported":
        return "has no kernel" if _is_missing(chosen) else "refuses this call"
    if calls.status == "fallback":
        others = {"always": "always runs on the CPU", "internal": "runs on the CPU inside its kernel"}
        return others.get(calls.kind or "", "has no kernel")
    return "does not do what it does on the CPU"
