from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists
from opcheck.model.records import Report
from opcheck.render import render
from tests.command_line import CommandLine
from tests.made import call, make_report

OLD = make_report(call("aten::foo"), call("aten::mm", 2))
NEW = make_report(call("aten::mm", 2), call("mine::op", 3))


def test_what_is_better_stands_below_what_is_gone(opcheck: CommandLine) -> None:
    assert len(opcheck("diff", "2.12", "2.13").out.splitlines()) <= 15
    result = opcheck("diff", "2.12", "2.13", "-v")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "torch 2.12 to 2.13 on macOS 26.0"
    assert lines.index("Removed") < lines.index("Better")
    assert any(line.strip().startswith("aten::grid_sampler_2d_backward") for line in lines)


@pytest.mark.slow
def test_formats(opcheck: CommandLine) -> None:
    content = json.loads(opcheck("diff", "2.12", "2.13", "-f", "json").out)
    assert content["schema"] == "opcheck-diff/1"
    assert len(content["changes"]) == sum(content["counts"].values()) > 0
    assert opcheck("diff", "2.12", "2.13", "-f", "markdown").out.startswith("# torch 2.12 to 2.13")
    assert opcheck("diff", "2.12", "2.13", "-f", "yaml").out.startswith("schema: opcheck-diff/1\n")


def test_a_gate_on_regressions(opcheck: CommandLine) -> None:
    assert opcheck("diff", "2.12", "2.13", "--fail-on", "regressions").code == 1
    assert opcheck("diff", "2.13", "2.13.0", "--fail-on", "regressions").code == 0


def test_errors(opcheck: CommandLine) -> None:
    newer = opcheck("diff", "2.9", "9.9")
    assert newer.code == 3
    assert "answers for 9.9, which is newer than the op lists" in newer.out
    assert opcheck("diff", "x", "2.9").code == 2
    assert opcheck("diff", "2.9").code == 2
    below = opcheck("diff", "2.9", "2.15", "--macos", "14")
    assert below.code == 2
    assert "does not start its MPS backend" in below.err


@pytest.fixture
def saved(opcheck: CommandLine) -> CommandLine:
    """A directory with old.json and new.yaml."""
    Path("old.json").write_text(render(OLD, "json"), encoding="utf-8")
    Path("new.yaml").write_text(render(NEW, "yaml"), encoding="utf-8")
    return opcheck


def test_two_reports(saved: CommandLine) -> None:
    result = saved("diff", "old.json", "new.yaml")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "old.json to new.yaml"
    assert lines.index("New") < lines.index("Fixed")
    assert all(len(line) <= 100 for line in lines)
    back = saved("diff", "new.yaml", "old.json")
    assert (back.code, "  error OC102 aten::foo" in back.out) == (1, True)
    assert saved("diff", "old.json", "old.json", "--fail-on", "note").code == 0


def test_the_formats_of_two_reports_say_the_same(saved: CommandLine) -> None:
    content = json.loads(saved("diff", "old.json", "new.yaml", "-f", "json").out)
    assert content["schema"] == "opcheck-changes/1"
    assert content["counts"]["new"] == len(content["new"]) > 0
    assert {item["rule"] for item in content["fixed"]} == {"OC102", "OC110"}
    markdown = saved("diff", "old.json", "new.yaml", "-f", "markdown").out
    assert "- warning OC104 mine::op" in markdown


@pytest.mark.parametrize(("level", "code"), [("error", 0), ("warning", 1), ("note", 1), ("never", 0)])
def test_the_level_decides_about_what_is_new(saved: CommandLine, level: str, code: int) -> None:
    assert saved("diff", "old.json", "new.yaml", "--fail-on", level).code == code


def test_reports_of_two_models_are_warned_about(saved: CommandLine) -> None:
    other = msgspec.structs.replace(NEW, model="b.py:Net")
    Path("new.json").write_text(render(other, "json"), encoding="utf-8")
    result = saved("diff", "old.json", "new.json")
    assert "Careful: two different models: model.py:Net and b.py:Net." in result.out
    assert result.err.startswith("careful: two different models")


def test_a_run_that_broke_off_vouches_for_nothing(saved: CommandLine) -> None:
    broken = make_report(call("aten::mm", 2), complete=False)
    Path("new.json").write_text(render(broken, "json"), encoding="utf-8")
    assert saved("diff", "old.json", "new.json", "--fail-on", "never").code == 3


def test_two_targets_of_one_model(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[CaptureRequest, Sequence[Target]]] = []

    def audit_targets(
        request: CaptureRequest, targets: Sequence[Target], lists: OpLists, **_: object
    ) -> tuple[Report, ...]:
        asked.append((request, targets))
        return OLD, NEW

    monkeypatch.setattr("opcheck.orchestrator.audit_targets", audit_targets)
    aims = ("--from", "torch=2.9,macos=14", "--to", "macos=15, torch=2.13,fallback=1")
    result = opcheck("diff", "m.py:Net", *aims, "--input", "1x3", "-f", "json")
    assert result.code == 0
    ((request, (before, after)),) = asked
    assert (request.model, request.inputs) == ("m.py:Net", ("1x3",))
    assert str(before) == "torch 2.9, macOS 14.0"
    assert (str(after.torch), str(after.macos), after.cpu_fallback) == ("2.13", "15.0", True)
    content = json.loads(result.out)
    assert content["before"]["name"] == "torch 2.9, macOS 14.0"
    assert [item["op"] for item in content["new"]] == ["mine::op"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("m.py:Net",), "give two releases or two reports"),
        (("a", "b", "c"), "give two releases or two reports"),
        (("m.py:Net", "--from", "torch=2.9"), "--from and --to go together"),
        (("a", "b", "--from", "torch=2.9", "--to", "torch=2.13"), "--from and --to go together"),
        (("m.py:Net", "--from", "2.9", "--to", "torch=2.13"), "not a target: '2.9'"),
        (("m.py:Net", "--from", "torch=2.9,torch=2.8", "--to", "torch=2.13"), "not a target"),
        (("m.py:Net", "--from", "fallback=maybe", "--to", "torch=2.13"), "not a yes or no"),
        (("m.py:Net", "--from", "torch=2.15,macos=14", "--to", "torch=2.13"), "does not start"),
        (("old.json", "nothing.json"), "cannot read the report"),
        (("old.json", "new.yaml", "--macos", "15"), "--macos is for two releases"),
        (("old.json", "new.yaml", "--fail-on", "regressions"), "regressions are those of two"),
        (("2.9", "2.13", "--fail-on", "error"), "two releases have no findings"),
    ],
)
def test_misuse_is_three_lines(saved: CommandLine, args: tuple[str, ...], message: str) -> None:
    result = saved("diff", *args)
    assert (result.code, result.out) == (2, "")
    assert message in result.err.splitlines()[0]
    assert len(result.err.splitlines()) == 3
