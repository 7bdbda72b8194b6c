"""Logs as reports: statuses, counts, lines, and what a log cannot tell."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from opcheck import cli
from opcheck.common.errors import UnknownTargetError, UsageError
from opcheck.data.registrations import OpLists
from opcheck.device.observe.log_report import read, resolution
from opcheck.judge.policy import exit_code
from opcheck.model.records import CallGroup, Report, ReportTarget
from opcheck.model.saved import json_schema
from opcheck.render import FORMATS, render
from tests.call_count import count_calls

WARNING = (
    "/w/train.py:12: UserWarning: The operator 'aten::linalg_eig' is not currently supported on the MPS backend and "
    "will fall back to run on the CPU. This may have performance implications. (Triggered internally at "
    "/Users/runner/work/pytorch/pytorch/aten/src/ATen/mps/MPSFallback.mm:34.)\n  w, v = torch.linalg.eig(x)\n"
)
RUN = "CPU Fallback::aten::linalg_eig:MPS:Float[3, 3] (id=1, run={}, CopyOverhead=36 bytes)\n"
MISSING = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 30, in <module>\n    y = step(x)\n'
    '  File "/w/venv/lib/python3.12/site-packages/torch/functional.py", line 7, in f\n    return _C.f(x)\n'
    "NotImplementedError: The operator 'aten::linalg_eig' is not currently implemented for the MPS device. If you want this op to be "
    "considered for addition please comment on https://github.com/pytorch/pytorch/issues/141287\n"
)
FLOAT64 = "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead.\n"


def made(text: str, lists: OpLists, **asked: str) -> Report:
    return read([("ci.log", text)], lists, **asked)


def only(report: Report, op: str) -> CallGroup:
    (group,) = (group for group in report.groups if group.op == op)
    return group


def test_a_fallback_has_its_count_its_bytes_and_its_line(lists: OpLists) -> None:
    report = made(WARNING + "".join(RUN.format(n) for n in (1, 2, 3)), lists, torch="2.13", macos="15")
    group = only(report, "aten::linalg_eig")
    assert (group.verdict.status, group.verdict.kind, group.count) == ("fallback", "env", 3)
    assert group.verdict.confidence == "observed"
    assert "108 bytes copied" in group.verdict.because
    assert [str(place.location) for place in group.locations] == ["/w/train.py:12"]
    assert report.target == ReportTarget(torch="2.13", macos="15.0", cpu_fallback=True)
    assert report.headline == "runs, partly on the CPU"
    assert not any("first CPU fallback" in item for item in report.not_checked)


def test_a_single_warning_says_that_others_may_be_hidden(lists: OpLists) -> None:
    report = made(WARNING, lists)
    assert any("first CPU fallback of a process only" in item for item in report.not_checked)
    assert any("torch release" in item and "--torch" in item for item in report.not_checked)


def test_an_error_names_the_programs_line_and_fails(lists: OpLists) -> None:
    report = made(MISSING + FLOAT64, lists, torch="2.13", macos="15")
    group = only(report, "aten::linalg_eig")
    assert (group.verdict.status, group.verdict.kind) == ("fallback", "env")
    assert str(group.locations[0].location) == "/w/train.py:30"
    assert report.target.cpu_fallback is False
    assert report.headline == "fails"
    rules = {finding.rule for finding in report.findings}
    assert {"OC102", "OC105"} <= rules


@pytest.mark.parametrize(
    ("text", "torch", "macos"),
    [
        ("PyTorch version: 2.9.1\nOS: macOS 14.6.1 (arm64)\n", "2.9", "14.6"),
        ("torch==2.7.0.dev20250107\nmacOS-15.3.2-arm64-arm-64bit\n", "2.7", "15.3"),
        ("[pip3] torch==2.4.0\nOS Version:            macOS 13.1 (22C65)\n", "2.4", "13.1"),
        ("PyTorch version: 1.12.1\n", "1.13", "26.0"),
        ("", "2.15", "26.0"),
    ],
)
def test_the_target_is_the_logs_own(text: str, torch: str, macos: str, lists: OpLists) -> None:
    target = made(text + WARNING, lists).target
    assert (target.torch, target.macos) == (torch, macos)


def test_the_wording_bounds_the_release(lists: OpLists) -> None:
    old = "The operator 'aten::foo' is not currently implemented for the MPS device. If you want this op to be added in priority"
    assert made(old, lists).target.torch == "2.5"


def test_a_commit_names_the_release(lists: OpLists) -> None:
    commit = lists.release("2.11").commit
    text = MISSING.rstrip() + f" and mention use-case, that resulted in missing op as well as commit hash {commit}."
    assert made(text, lists).target.torch == "2.11"


def test_what_is_asked_for_wins(lists: OpLists) -> None:
    assert made("PyTorch version: 2.9.1\n" + WARNING, lists, torch="2.13").target.torch == "2.13"
    with pytest.raises(UnknownTargetError):
        made(WARNING, lists, torch="1.2")
    with pytest.raises(UsageError):
        read([], lists)


def test_an_abort_is_what_ended_the_process(lists: OpLists) -> None:
    report = made("MPSNDArray.mm:794: failed assertion `[MPSNDArray x] Error: y'\n", lists)
    (group,) = report.groups
    assert group.verdict.status == "unsupported"
    assert "ended the process" in group.verdict.because
    assert report.capture.complete is False


def test_every_format_takes_it(lists: OpLists) -> None:
    report = made(WARNING + MISSING + FLOAT64, lists)
    for name in FORMATS:
        assert render(report, name)
    jsonschema.validate(json.loads(render(report, "json")), json_schema())


def test_a_log_of_nothing_could_not_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "empty.log"
    log.write_bytes(b"\xff\xfe nothing here\n")
    assert cli.invoke(["observe", str(log)]) == 3
    shown = capsys.readouterr()
    assert "could not tell" in shown.out
    assert "read from a Mac's log" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 100


def test_bad_input_is_said_in_three_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(["observe", str(tmp_path / "none.log")]) == 2
    assert cli.invoke(["observe"]) == 2
    log = tmp_path / "a.log"
    log.write_text(WARNING, encoding="utf-8")
    assert cli.invoke(["observe", str(log), "--torch", "x"]) == 2
    assert all(line for line in capsys.readouterr().err.splitlines())
    assert cli.invoke(["observe", str(log), "--fail-on", "fallback"]) == 1
    assert cli.invoke(["observe", str(log)]) == 0


@pytest.mark.parametrize(
    "text",
    [
        "AssertionError: Torch not compiled with CUDA enabled\n",
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.77 GB)\n",
        "MPSNDArray.mm:794: failed assertion `Error: buffer is not large enough'\n",
        "NotImplementedError: Could not run 'aten::_coalesce' with arguments from the 'SparseMPS' backend.\n",
        FLOAT64,
    ],
)
def test_the_exit_code_agrees_with_the_headline_although_the_log_names_no_line(lists: OpLists, text: str) -> None:
    report = made(text, lists, torch="2.13", macos="15")
    assert report.headline == "fails"
    assert exit_code(report, fail_on="unsupported", strict=False) == 1
    assert exit_code(report, fail_on="never", strict=False) == 3


def test_a_name_without_an_overload_is_found_without_a_search_of_all_operators(lists: OpLists) -> None:
    line = "2.13"
    assert resolution("aten::no_such_operator", line, lists) == ("unknown", None)
    assert count_calls(lambda: resolution("aten::norm", line, lists)) < 1000
    assert resolution("aten::norm", line, lists) != ("unknown", None)
