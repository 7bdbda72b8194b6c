"""``opcheck repro`` and ``opcheck issue``: where the finding comes from, what is written, the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.render import render
from opcheck.reproducer import program_check
from opcheck.reproducer.program_check import TriedProgram
from tests.cli.test_command_line import modules_after
from tests.command_line import CommandLine
from tests.made import call, make_report

REPORT = make_report(call("aten::foo"), call("aten::mm", 2))


@pytest.fixture
def saved(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> str:
    """A report in a file; nothing is tried."""
    Path("report.json").write_text(render(REPORT, "json"), encoding="utf-8")
    tried = TriedProgram(text="import torch\n", on_cpu=True, emulated=True, notes=("Tried.",), expected=())
    monkeypatch.setattr(program_check, "make", lambda _: tried)
    return "report.json"


def test_without_a_number_the_findings_are_listed(opcheck: CommandLine, saved: str) -> None:
    result = opcheck("repro", saved)
    assert result.code == 0
    assert result.out.splitlines()[0] == "model.py:Net: torch 2.13, macOS 15.0"
    assert result.out.splitlines()[1].startswith("   1  OC102   aten::foo: ")
    assert "-" in result.out.splitlines()[2][:5]
    assert opcheck("issue", saved).out == result.out.replace("opcheck repro", "opcheck issue")
    assert max(map(len, result.out.splitlines())) <= 100


def test_the_list_of_findings_ends_with_the_command_for_the_first_program(opcheck: CommandLine, saved: str) -> None:
    assert opcheck("repro", saved).out.splitlines()[-1] == "next  opcheck repro report.json 1"
    opcheck.report = REPORT
    flags = ("--torch", "2.13", "--macos", "15.0")
    listed = opcheck("repro", "model.py:Net", *flags).out.splitlines()
    assert listed[-1] == f"next  opcheck repro model.py:Net {' '.join(flags)} 1"
    opcheck.report = make_report(call("aten::mm", 2))
    assert opcheck("repro", "model.py:Net").out.splitlines()[-1].startswith("next  opcheck audit model.py:Net ")


def test_the_program_goes_to_stdout_or_a_file(opcheck: CommandLine, saved: str) -> None:
    result = opcheck("repro", saved, "1")
    assert (result.code, result.out, result.err) == (0, "import torch\n", "Tried.\n")
    assert opcheck("repro", saved, "OC102", "-o", "repro.py").out == ""
    assert Path("repro.py").read_text(encoding="utf-8") == "import torch\n"


def test_yaml_is_read_too(opcheck: CommandLine, saved: str) -> None:
    Path("report.yaml").write_text(render(REPORT, "yaml"), encoding="utf-8")
    assert opcheck("repro", "report.yaml", "foo").out == "import torch\n"


def test_the_issue_says_where_it_goes_beside_the_text(opcheck: CommandLine, saved: str) -> None:
    result = opcheck("issue", saved, "1")
    assert result.code == 0
    assert result.out.startswith("### ")
    assert "goes to https://github.com/pytorch/pytorch/issues/141287: a comment" in result.err


def test_what_could_not_be_tried_exits_with_3(
    opcheck: CommandLine, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    untried = TriedProgram(text="x\n", on_cpu=None, emulated=None, notes=("Not tried.",), expected=())
    monkeypatch.setattr(program_check, "make", lambda _: untried)
    assert opcheck("repro", saved, "1") == (3, "x\n", "Not tried.\n")
    assert opcheck("issue", saved, "1").code == 3


def test_a_model_is_audited_as_its_flags_say(opcheck: CommandLine, saved: str) -> None:
    opcheck.report = REPORT
    result = opcheck("repro", "model.py:Net", "1", "--torch", "2.13", "--macos", "15", "--fallback")
    assert result.code == 0
    (request,) = opcheck.requests
    assert (request.model, str(request.target.torch), request.target.cpu_fallback) == ("model.py:Net", "2.13", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.json", "1"), "cannot read the report"),
        (("other.json", "1"), "not a report of an audit"),
        (("damaged.json", "1"), "a damaged report"),
        (("report.json", "7"), "no finding '7' in the report"),
        (("report.json", "2"), "is not about a single call"),
        ((), "Missing argument"),
    ],
)
@pytest.mark.parametrize("verb", ["repro", "issue"])
def test_bad_input_is_three_lines(
    opcheck: CommandLine, saved: str, verb: str, arguments: tuple[str, ...], said: str
) -> None:
    Path("other.json").write_text('{"schema": "opcheck-doctor/1"}', encoding="utf-8")
    Path("damaged.json").write_text('{"schema": "opcheck-report/1"}', encoding="utf-8")
    result = opcheck(verb, *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert len(result.err.splitlines()) == 3


def test_a_listing_needs_no_torch(opcheck: CommandLine, saved: str) -> None:
    assert "torch" not in modules_after("repro", saved)
