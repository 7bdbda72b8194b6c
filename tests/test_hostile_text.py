"""One hostile text, wherever other people's texts come from, in every format of every verb."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from opcheck import cli
from opcheck.cli import streams
from opcheck.common import sanitize
from opcheck.common.errors import OpcheckError
from opcheck.device.verify import Pair, ReportedCalls, Verification
from opcheck.features.gate.gate_records import Failed, GateCell, GateReport, Known
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS
from opcheck.model.fingerprint import add_fingerprints, fingerprints
from opcheck.model.records import Finding, GroupLocation, Problem, SourceLocation
from opcheck.render import ANSWERS, FORMATS, WITHOUT_PAGE, render, step_summary, write
from opcheck.render import report as report_page
from opcheck.render import verification_page as verified
from opcheck.render.document import Bullets, Document, Heading, Lines, Table
from opcheck.render.html import as_html
from opcheck.render.text import as_text
from opcheck.source.scan_records import ScanFinding, ScanReport
from tests.made import hostile_report

#: What each means something to: logs, terminals, readers, Markdown, spreadsheets, HTML, XML, YAML.
HOSTILE = (
    "::error file=a.py,line=1::injected",
    "\n::error file=a.py::injected\n::set-output name=a::b\n",
    "\n \u00a0 ::add-mask::a",
    "##[error]injected",
    "a ##vso[task.setvariable variable=a]b",
    "##TeamCity[message text='a']",
    "\x1b[31mred\x1b]0;title\x07\x9b31m\r\x08\x00\x7f",
    "\x7f",
    "\u202eright to left\u2066\u2069\u061c\u200e",
    "\u200bno\u200dth\u2060ing\ufeff\u00ad\U000e0041\ufe0f\u3164",
    "\u2028\u2029\x85\x0b\x0c\x1c",
    "\udc80\ud800",
    "\ufffe\uffff",
    "@somebody",
    "(@some/body)",
    "somebody@evil.example",
    "#123",
    "GH-123 org/repo#45 !67",
    "https://evil.example",
    "https://github.com.evil.example/a https://github.com/pytorch@evil.example",
    "www.evil.example",
    "[a](https://evil.example)",
    "![a][b]",
    "\n\n[b]: https://evil.example",
    "<https://evil.example>",
    "https://evil.example> <img src=x onerror=alert(1)>",
    "<img src=x onerror=alert(1)>",
    "<!-- hidden -->",
    "`code` ``@somebody`` ``` \\`@somebody\\`",
    "\n```\n@somebody\n~~~\n",
    "| a | b |\n|---|---|\n",
    "- a\n+ b\n1. c\n> d\n# e\n===\n",
    "    indented",
    "*a* _b_ ~~c~~ $d$ &lt;e&gt; \\",
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\uff1d1+1",
    "',\"; a",
    "</script><script>alert(1)</script>",
    "' onclick='a' \" onclick=\"a\"",
    "]]><![CDATA[ --> &amp; <?xml?>",
    "{{7*7}} ${HOME} %(a)s {0} %0A::error::x",
    "a: b # c\n- d\n--- !!python/object:a\n...",
    "[red]a[/] [/b]",
    "x" * 95 + "::error file=a::b",
    ("x" * 20 + " ") * 4 + "yyyyyyyyyy ::error file=a::b",
)
EVERY = " ".join(HOSTILE)
TEXT = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=6)), max_size=3).map("".join)
PLAIN = "plain"


def hostile(check: Callable[..., None]) -> Callable[..., None]:
    """The check with each of the texts, with all of them, and with what hypothesis makes of them."""
    for text in (*HOSTILE, EVERY):
        check = example(text=text)(check)
    return settings(max_examples=15, deadline=None)(given(text=TEXT)(check))


# What must not be

HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe0f\ufeff\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
ANYWHERE = re.compile(r"##(\[|vso\[|teamcity\[)", re.IGNORECASE)
REFERS = re.compile(r"(?<!\w)@\w|(?<!\w)#\d|\bGH-\d|://|www\.|\w@\w", re.IGNORECASE)
OURS = re.compile(r"https://(github\.com/pytorch|docs\.pytorch\.org|developer\.apple\.com)/")


def check_log(written: str) -> None:
    """Nothing commands a terminal, a reader or a CI service."""
    written.encode("utf-8")
    assert not HIDDEN.search(written)
    assert not ANYWHERE.search(written)
    for line in written.split("\n"):
        assert not re.match(r"\s*::.*::", line), line


def check_annotations(written: str) -> None:
    """Only commands of ours, a line each."""
    assert not HIDDEN.search(written)
    assert not ANYWHERE.search(written)
    for line in written.split("\n"):
        if line.lstrip().startswith("::"):
            match = re.fullmatch(r"::(?:error|warning|notice)(?: ([^:]*))?::(.*)", line)
            assert match
            names = [entry.partition("=")[0] for entry in (match[1] or "title").split(",")]
            assert set(names) <= {"file", "line", "title"}


#: The elements around a text that is seen when it is unfolded.
FOLD = ("<details><summary>the whole text</summary>\n", "</details>\n")


def check_markdown(written: str) -> None:
    """Rendered, it has no element and no reference but those of ours."""
    check_log(written)
    parser = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    for block in parser.parse(written):
        if block.type == "html_block" and block.content in FOLD:
            continue
        assert block.type not in {"html_block", "hr", "blockquote_open", "code_block"}, block
        for token in block.children or ():
            assert token.type not in {"html_inline", "image", "s_open", "em_open"}, token
            if token.type == "link_open":
                assert OURS.match(str(token.attrs["href"]))
            if token.type == "text":
                assert not REFERS.search(OURS.sub("", token.content)), token.content


def check_csv(written: str) -> None:
    """No cell is computed, and a row is a line."""
    check_log(written)
    rows = list(csv.reader(io.StringIO(written)))
    assert len(rows) == written.count("\n")
    assert not [cell for row in rows for cell in row if re.match("[=+@\t\uff1d-]", cell)]


def check_json(written: str) -> None:
    check_log(written)
    for text in written.splitlines() if written.startswith('{"') else [written]:
        json.loads(text)


def check_yaml(written: str) -> None:
    check_log(written)
    yaml.safe_load(written)


def check_xml(written: str) -> None:
    check_log(written)
    ET.fromstring(written)  # noqa: S314


def check_html(written: str) -> None:
    """No element or attribute but those of the page itself, and nothing hidden, in its data neither."""
    from html.parser import HTMLParser

    assert not HIDDEN.search(written)
    assert not ANYWHERE.search(written)

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            names = {name for name, _ in attrs}
            assert tag not in {"img", "a b"}
            assert not {name for name in names if name.startswith("on")}
            if tag == "script":
                scripts.append(tag)

    scripts: list[str] = []
    Reader().feed(written)
    assert len(scripts) <= 2  # the data, and what draws it


CHECKS: dict[str, Callable[[str], None]] = {
    "text": check_log,
    "markdown": check_markdown,
    "github": check_annotations,
    "csv": check_csv,
    "json": check_json,
    "jsonl": check_json,
    "sarif": check_json,
    "gitlab": check_json,
    "yaml": check_yaml,
    "junit": check_xml,
    "html": check_html,
}


# Where texts come from


def finding_of(text: str) -> Finding:
    location = SourceLocation(file=text, line=1, function=text, text=text)
    place = GroupLocation.at(location, module=text, count=1)
    return Finding(rule="OC201", severity="error", message=text, hint=text, prints=text, locations=(place,), count=1)


def gate_of(text: str) -> GateReport:
    report = hostile_report(text)
    against = tuple(own for owns in fingerprints(report.findings) for own in owns)[:1]
    known = Known(fingerprint="a", rule="OC101", op=text, where=text, line=text)
    failed = Failed(message=text, context=text, hint=text)
    cells = (
        GateCell(
            model=text,
            target="torch 2.13, macOS 26",
            libraries=(),
            headline=report.headline,
            code=FINDINGS,
            reasons=(text,),
            against=against,
            known=(),
            fixed=(known,),
            failed=None,
            report=report,
        ),
        GateCell(
            model=f"{text} ",
            target="torch 2.13, macOS 26",
            libraries=(),
            headline="could not tell",
            code=COULD_NOT_TELL,
            reasons=(text,),
            against=(),
            known=(),
            fixed=(),
            failed=failed,
            report=None,
        ),
    )
    return GateReport(
        tool="opcheck",
        op_lists="a",
        exit_code=FINDINGS,
        models=(text,),
        targets=("torch 2.13, macOS 26",),
        baseline=False,
        cells=cells,
        notes=(text,),
        left=(text,),
    )


def scan_of(text: str) -> ScanReport:
    location = SourceLocation(file=text, line=1)
    problems = (
        Problem(kind="syntax_error", message=text, location=location, module=text),
        Problem(kind="unreadable", message=text, location=None, module=text),
    )
    return ScanReport(
        tool="opcheck",
        target={"torch": "2.13", "macos": "26"},
        paths=(text,),
        read={"python": 1, "lines": 1},
        totals={"error": 1, "warning": 0, "note": 0},
        by_rule={"OC201": 1},
        findings=tuple(add_fingerprints([ScanFinding(**msgspec.structs.asdict(finding_of(text)))])),
        notes=(text,),
        problems=problems,
        skipped={text: 1},
        not_checked=("nothing",),
    )


def document_of(text: str) -> Document:
    """What the answers of all other verbs are made of."""
    return (
        Heading(text, 1),
        Lines((text, f"a {text}")),
        Heading(text),
        Bullets((text, f"a {text}")),
        Table((text, "b"), ((text, text), (f"a {text}", text)), code=(1,)),
    )


def verification_of(text: str) -> Verification:
    calls = ReportedCalls(op=text, status="native", line=text)
    pair = Pair(
        op=text,
        line=text,
        predicted="native",
        observed="unsupported",
        seen=text,
        dtypes=(),
        count=1,
        because=text,
        agrees=False,
    )
    return Verification(
        prediction=text,
        observation=text,
        torch="2.13",
        macos="26",
        machine=text,
        build=text,
        pairs=(pair,),
        unobserved=(calls,),
        unpredicted=(calls,),
        notes=(text,),
    )


def answered(text: str, kind: str) -> str:
    return write(finding_of(text), document_of(text), kind)


def verified_in(text: str, kind: str) -> str:
    result = verification_of(text)
    return write(result, verified.document(result), kind)


WRITERS: dict[str, tuple[Callable[[str, str], str], tuple[str, ...]]] = {
    "audit": (lambda text, kind: render(hostile_report(text), kind), tuple(FORMATS)),
    "gate": (lambda text, kind: render(gate_of(text), kind), WITHOUT_PAGE),
    "scan": (lambda text, kind: render(scan_of(text), kind), WITHOUT_PAGE),
    "answers": (answered, ANSWERS),
    "verify": (verified_in, ANSWERS),
    "narrow": (lambda text, _: as_text(report_page.document(hostile_report(text)), width=40, full=True), ("text",)),
    "summary": (lambda text, _: step_summary(hostile_report(text)), ("markdown",)),
    "sweep": (lambda text, _: as_html(document_of(text)), ("html",)),
}
CASES = [(writer, kind) for writer, (_, kinds) in WRITERS.items() for kind in kinds]


@pytest.mark.parametrize(("writer", "kind"), CASES)
def test_a_hostile_text_is_text_in_every_format(writer: str, kind: str) -> None:
    write_it = WRITERS[writer][0]

    @hostile
    def check(text: str) -> None:
        CHECKS[kind](write_it(text, kind))

    check()


@pytest.mark.parametrize(("writer", "kind"), CASES)
def test_the_checks_let_a_plain_text_pass(writer: str, kind: str) -> None:
    written = WRITERS[writer][0](PLAIN, kind)
    CHECKS[kind](written)
    assert PLAIN in written


def html_shape(page: str) -> list[object]:
    html5lib = pytest.importorskip("html5lib")
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    return [(element.tag, sorted(element.attrib)) for element in tree.iter()]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_browser_sees_the_same_elements(text: str) -> None:
    if not text.strip():
        return
    written, plain = (render(hostile_report(each), "html") for each in (f"a{text}", "ab"))
    ours = [entry for entry in html_shape(written) if entry[0] not in {"pre", "code"}]  # type: ignore[index]
    assert ours == [entry for entry in html_shape(plain) if entry[0] not in {"pre", "code"}]  # type: ignore[index]


def test_a_message_of_sarif_has_no_link() -> None:
    written = render(hostile_report("[a](https://evil.example)"), "sarif")
    for result in json.loads(written)["runs"][0]["results"]:
        assert "](" not in result["message"]["text"]
        assert "evil" in written


# stderr


class Stderr(io.StringIO):
    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize("text", [*HOSTILE, EVERY])
def test_an_error_is_text_on_stderr(
    text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_arguments: object, **_named: object) -> None:
        raise OpcheckError(text, context=text, hint=text)

    monkeypatch.setattr(cli.opcheck, "main", fails)
    assert cli.invoke([]) == 2
    check_log(capfd.readouterr().err)


@pytest.mark.parametrize("text", [*HOSTILE, EVERY])
def test_a_bug_is_told_in_text(text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def fails(*_arguments: object, **_named: object) -> None:
        raise KeyError(text)

    monkeypatch.setattr(cli.opcheck, "main", fails)
    assert cli.invoke([]) == 3
    check_log(capfd.readouterr().err)


@pytest.mark.parametrize("text", [*HOSTILE, EVERY])
def test_an_argument_is_text_on_stderr(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        [text],
        ["audit", "--torch", text, "a.py:A"],
        ["scan", text.replace("\0", "")],
        ["scan", "--select", text, "."],
        ["op", text],
        ["explain", text],
        ["gate", "--config", text.replace("\0", "")],
    ):
        cli.invoke(arguments)
        printed = capfd.readouterr()
        check_log(printed.err)
        check_log(printed.out)


@pytest.mark.parametrize("text", [*HOSTILE, EVERY])
def test_what_a_long_run_tells_is_text(
    text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with streams.progress(quiet=False, verbose=True) as progress:
        assert progress is not None
        progress(text)
    check_log(capfd.readouterr().err)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with streams.progress(quiet=False, verbose=False) as progress:
        assert progress is not None
        progress(text)  # [/] is no markup of ours


# Programs

MODEL = """
import torch
from torch import nn

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module(TEXT.replace(".", ""), nn.Linear(3, 3))
        self.register_parameter(TEXT.replace(".", "") + "w", nn.Parameter(torch.ones(3)))

    def forward(self, x):
        print(TEXT)
        import sys, warnings
        print(TEXT, file=sys.stderr)
        warnings.warn(TEXT)
        for module in self.children():
            x = module(x)
        x = torch.linalg.eigvals(torch.diag(x[0]))
        if FAILS:
            raise RuntimeError(TEXT)
        return x
"""
NAME = "x\n::error file=a::injected\n##[error]b \x1b[31m\u202e @somebody <img src=x> `a` | =1"


@pytest.mark.parametrize("fails", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_hostile_model_is_audited_in_every_format(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = f"TEXT = {NAME!r}\nFAILS = {fails}\n{MODEL}"
    (tmp_path / "m.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    cli.invoke(["audit", "m.py:Named", "--input", "1x3", "-f", "json", "-o", "r.json"])
    check_log(capfd.readouterr().err)
    cli.invoke(["audit", "m.py:Named", "--input", "1x3", "-f", "github", "-q"])
    printed = capfd.readouterr()
    check_annotations(printed.out)
    check_log(printed.err)
    check_markdown((tmp_path / "summary.md").read_text(encoding="utf-8"))
    cli.invoke(["audit", "m.py:Named", "--input", "1x3", "-q"])
    printed = capfd.readouterr()
    check_log(printed.out)
    check_log(printed.err)
    cli.invoke(["audit", "m.py:Named", "--input", "1x3", "-v"])
    printed = capfd.readouterr()
    # Twice by the model, once by its warning, and no line of them is a command.
    assert printed.err.count("injected") >= 3
    check_log(printed.out)
    check_log(printed.err)
    for arguments in (["diff", "r.json", "r.json"], ["repro", "r.json"]):
        cli.invoke(arguments)
        printed = capfd.readouterr()
        check_log(printed.out)
        check_log(printed.err)


@pytest.mark.parametrize("name", [b"::error::a.py", b"\n::error::a.py", b"\xff\x80.py", "\u202e@a [b](c).py".encode()])
def test_a_hostile_file_name_is_text_in_a_scan(
    name: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for folder, content in (("a", b"x.cuda()\n"), ("b", b"def f(:\n")):
        (tmp_path / folder).mkdir()
        with open(os.path.join(os.fsencode(tmp_path / folder), name), "wb") as file:  # noqa: PTH118, PTH123
            file.write(content)
    monkeypatch.chdir(tmp_path)
    for kind in WITHOUT_PAGE:
        monkeypatch.chdir("a")
        assert cli.invoke(["scan", ".", os.fsdecode(name), "-f", kind]) == 1
        printed = capfdbinary.readouterr()
        CHECKS[kind](printed.out.decode())
        check_log(printed.err.decode())
        monkeypatch.chdir(tmp_path)
        cli.invoke(["scan", ".", "-f", kind, "-o", "out"])
        CHECKS[kind]((tmp_path / "out").read_text(encoding="utf-8"))
        check_log(capfdbinary.readouterr().err.decode())


# The functions


def test_what_is_shown_is_unambiguous() -> None:
    assert sanitize.show_hidden("a\x1b\u202e\U000e0041\n") == "a\\x1b\\u202e\\U000e0041\n"
    assert sanitize.for_stderr("::error::a\na ::b") == "\\x3a:error::a\na ::b"
    assert sanitize.for_stderr("a ##vso[b]") == "a #\\x23vso[b]"
    assert json.loads(sanitize.for_json(json.dumps("##[a\u202e\U000e0041", ensure_ascii=False))) == (
        "##[a\u202e\U000e0041"
    )


def test_words_of_ours_stay_as_they_are() -> None:
    text = "aten::add.Tensor runs on the CPU: 3 % of 1,024 calls (see OC102); 日本語 é"
    assert sanitize.show_hidden(text) == sanitize.for_stderr(text) == sanitize.markdown(text) == text
    link = "https://github.com/pytorch/pytorch/issues/141287"
    assert sanitize.markdown(f"see {link}.") == f"see {link}."
