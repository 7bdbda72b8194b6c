"""``opcheck run`` on a Mac, with recorded processes in the Mac's place, and once with an emulated Mac as the device."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from opcheck import cli
from opcheck.common.errors import CaptureError
from opcheck.data.registrations import OpLists
from opcheck.device.observe import observed_run
from opcheck.device.observe.observed_run import run
from opcheck.device.observe.recording import ObserveRequest, Start, Warned
from opcheck.model.records import CallGroup, Report, ReportTarget, SourceLocation
from opcheck.render import render
from tests.device.observe.recorded import START, Process, during, end, fell, row

REQUEST = ObserveRequest(program="train.py", cpu_fallback=True)


def observed(process: Process, lists: OpLists, request: ObserveRequest = REQUEST) -> Report:
    return run(request, lists, process).report


def group(report: Report, op: str) -> CallGroup:
    (result,) = (item for item in report.groups if item.op == op)
    return result


def test_three_fallbacks_are_three(lists: OpLists) -> None:
    log = (
        during(1, fell("aten::linalg_eig"))
        + during(1, fell("aten::linalg_eig", 2))
        + during(2, fell("aten::special_airy_ai"))
        + during(3, fell("aten::_linalg_eigvals"))
        + during(4)
        + "  1      2        0.120           0.240          48 bytes      aten::linalg_eig\n"
    )
    rows = [
        row(1, "aten::linalg_eig", 3),
        row(2, "aten::special_airy_ai", 5),
        row(3, "aten::_linalg_eigvals", 7),
        row(4, "aten::add.Tensor", 8),
    ]
    report = observed(Process(START, *rows, end({1: 2, 2: 1, 3: 1, 4: 9}), log=log), lists)
    fallbacks = [item for item in report.groups if item.verdict.status == "fallback"]
    assert [fallback.op for fallback in fallbacks] == [
        "aten::_linalg_eigvals",
        "aten::linalg_eig",
        "aten::special_airy_ai.out",
    ]
    eig = group(report, "aten::linalg_eig")
    assert eig.count == 2
    assert "48 bytes copied, 0.240 ms on the CPU (Apple M2)" in eig.verdict.because
    assert [str(place.location) for place in eig.locations] == ["train.py:3"]
    assert {item.verdict.confidence for item in report.groups} == {"observed"}
    assert group(report, "aten::add.Tensor").count == 9
    assert report.target == ReportTarget(torch="2.13", macos="15.3", cpu_fallback=True)
    assert report.capture.packages == {"macos": "15.3.2", "machine": "Apple M2", "macos build": "24D81"}
    assert "a run observed on this Mac" in render(report, "text")


def test_a_kernel_that_copies_there_and_back_is_a_detour(lists: OpLists) -> None:
    there = "BlitCopySync: MPS:Float[64, 64] --> CPU:Float[64, 64] (len=16.00 KiB)"
    back = "BlitCopySync: CPU:Float[64, 64] --> MPS:Float[64, 64] (len=16.00 KiB)"
    one_number = "BlitCopySync: MPS:Float[] --> CPU:Float[] (len=4 bytes)"
    log = during(1, there, back) + during(2, there, back) + during(3, one_number)
    rows = [row(1, "aten::linalg_svd"), row(2, "aten::_to_copy"), row(3, "aten::nonzero")]
    report = observed(Process(START, *rows, end({1: 1, 2: 1, 3: 1}), log=log), lists)
    verdict = group(report, "aten::linalg_svd").verdict
    assert (verdict.status, verdict.kind) == ("fallback", "internal")
    assert group(report, "aten::_to_copy").verdict.status == "native"
    assert group(report, "aten::nonzero").verdict.status == "native"
    assert (report.partition.transfers_to_cpu, report.partition.transfers_to_mps) == (1, 1)


def test_a_release_without_the_profiler_is_told_by_its_warnings(lists: OpLists) -> None:
    text = "The operator 'aten::linalg_qr.out' is not currently supported on the MPS backend and will fall back to run on the CPU."
    warned = Warned(text=text, location=SourceLocation(file="train.py", line=3), count=4)
    start = Start(torch="2.0.1", macos="13.4", machine="Apple M1")
    process = Process(start, row(1, "aten::linalg_qr", 3), end({1: 4}, warned=(warned,)))
    request = ObserveRequest(program="train.py", cpu_fallback=True, stand_in="2.0/13.4")
    report = observed(process, lists, request)
    (result,) = report.groups
    assert (result.op, result.count, result.verdict.status) == ("aten::linalg_qr.out", 4, "fallback")
    assert any("the profiler came with torch 2.1" in item for item in report.not_checked)
    assert "PYTORCH_MPS_LOG_PROFILE_INFO" not in process.environment


def test_an_abort_names_the_call_that_was_running(lists: OpLists) -> None:
    log = during(1) + "\x1e2<\x1eMPSNDArray.mm:794: failed assertion `[MPSNDArray x] Error: y'\n"
    rows = [row(1, "aten::add.Tensor", 1), row(2, "aten::linear", 2)]
    report = observed(Process(START, *rows, log=log, code=-6), lists)
    result = group(report, "aten::linear")
    assert result.verdict.status == "unsupported"
    assert str(result.locations[0].location) == "train.py:2"
    assert report.headline == "fails"
    assert report.capture.complete is False
    assert any("ended with code -6" in problem.message for problem in report.problems)


def test_an_error_of_a_kernel_is_its_calls(lists: OpLists) -> None:
    ended = end(
        {},
        exit_code=1,
        error="RuntimeError",
        message="MPS: Unsupported Border padding mode",
        location=SourceLocation(file="train.py", line=9),
        row=1,
    )
    report = observed(Process(START, row(1, "aten::grid_sampler_2d", 9), ended, code=1), lists)
    result = group(report, "aten::grid_sampler_2d")
    assert result.verdict.status == "unsupported"
    assert "grid-sampler-2d-border" in result.verdict.limitations
    assert str(result.locations[0].location) == "train.py:9"


def test_an_error_of_the_program_is_a_problem_and_no_verdict(lists: OpLists) -> None:
    ended = end({1: 1}, exit_code=1, error="KeyError", message="'a'")
    report = observed(Process(START, row(1, "aten::add.Tensor"), ended, code=1), lists)
    assert [group.verdict.status for group in report.groups] == ["native"]
    assert report.headline == "could not tell"
    assert report.problems[0].kind == "program_raised"


def test_the_variables_are_set_before_and_said(lists: OpLists, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_run, "installed_line", lambda: "2.13")
    process = Process(START, end({}))
    result = " ".join(observed(process, lists).not_checked)
    assert process.environment["PYTORCH_ENABLE_MPS_FALLBACK"] == "1"
    assert process.environment["PYTORCH_MPS_LOG_PROFILE_INFO"] == "102"
    assert "PYTORCH_MPS_LOG_PROFILE_INFO=102 was set: torch 2.13 reads it" in result
    assert "no release of PyTorch reads PYTORCH_MPS_LOG_LEVEL" in result


def test_a_macos_that_the_lists_do_not_know_is_said(lists: OpLists) -> None:
    start = Start(torch="2.13.0", macos="27.1", machine="Apple M9")
    report = observed(Process(start, row(1, "aten::add.Tensor"), end({1: 1})), lists)
    assert report.target.macos == "27.1"
    assert report.target.beyond.startswith("macOS 27 is newer than the op lists")


def test_the_first_fallback_that_strict_raises_is_one(lists: OpLists) -> None:
    text = "The operator 'aten::linalg_eig' is not currently supported on the MPS backend and will fall back to run on the CPU."
    ended = end({}, exit_code=1, error="UserWarning", message=text, row=1)
    report = observed(Process(START, row(1, "aten::linalg_eig", 4), ended, code=1), lists)
    (result,) = report.groups
    assert (result.op, result.count, result.verdict.kind) == ("aten::linalg_eig", 1, "env")


def test_what_leaves_nothing_behind_is_an_error(lists: OpLists) -> None:
    with pytest.raises(CaptureError, match="before the program began"):
        run(REQUEST, lists, Process(code=1))


def test_on_a_mac_the_run_is_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("", encoding="utf-8")
    log = during(1, fell("aten::linalg_eig"))
    process = Process(START, row(1, "aten::linalg_eig"), end({1: 1}), log=log)
    monkeypatch.setattr(observed_run, "_start", process)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cli.invoke(["run", "--fallback", str(script)]) == 0
    assert cli.invoke(["run", "--fallback", "--fail-on", "fallback", str(script)]) == 1
    assert cli.invoke(["run", "--fallback", "--strict", str(script)]) == 1
    assert cli.invoke(["run", "--torch", "2.12", str(script)]) == 2
    assert "add --emulate" in capsys.readouterr().err


SCRIPT = """
import sys
import torch
x = torch.randn(3, 3, device="mps")
for _ in range(3):
    y = torch.linalg.eigvals(x)
z = torch.linalg.lstsq(x, x).solution
print((torch.special.airy_ai(x) + 1).sum().item() != 0)
w = torch.ones(3, 3, device="mps", requires_grad=True)
loss = torch.atan(w).sum()
loss.backward()
sys.stderr.write("half a line")
"""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory, lists: OpLists) -> tuple[Report, str]:
    """A real child with an emulated Mac as its device, and what it let through to stderr."""
    script = tmp_path_factory.mktemp("run") / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    request = ObserveRequest(program=str(script), cpu_fallback=True, stand_in="2.13/15")
    with pytest.MonkeyPatch.context() as patch:
        passed = bytearray()

        class Stderr:
            class buffer:
                write = passed.extend

                @staticmethod
                def flush() -> None:
                    """Nothing waits."""

        patch.setattr(sys, "stderr", Stderr)
        report = run(request, lists).report
    return report, passed.decode()


def test_a_program_with_three_fallbacks_lists_three(emulated: tuple[Report, str]) -> None:
    report, _ = emulated
    fallbacks = {
        group.op: (group.count, [place.location.line for place in group.locations if place.location])
        for group in report.groups
        if group.verdict.status == "fallback"
    }
    assert fallbacks == {
        "aten::_linalg_eigvals": (3, [6]),
        "aten::linalg_lstsq.out": (1, [7]),
        "aten::special_airy_ai.out": (1, [8]),
    }
    native = {group.op for group in report.groups if group.verdict.status == "native"}
    assert "aten::add.Tensor" in native
    assert "aten::linalg_lstsq" not in native
    assert report.capture.tracer == "stand-in"
    assert "anything on a Mac" in report.not_checked[0]


def test_a_call_of_backward_has_the_line_of_its_forward(emulated: tuple[Report, str]) -> None:
    report, _ = emulated
    places = [
        (group.op, place.location.line)
        for group in report.groups
        for place in group.locations
        if place.phase == "backward" and place.location
    ]
    assert ("aten::addcmul_", 10) in places or ("aten::mul.Tensor", 10) in places, places


def test_marks_are_kept_from_the_terminal(emulated: tuple[Report, str]) -> None:
    _, passed = emulated
    assert "\x1e" not in passed
    assert passed.endswith("half a line")
    assert passed.count("'aten::_linalg_eigvals' is not currently supported") == 1


def test_the_report_reads_back(emulated: tuple[Report, str]) -> None:
    content = json.loads(render(emulated[0], "json"))
    assert {item["confidence"] for item in content["calls"]} == {"observed"}
