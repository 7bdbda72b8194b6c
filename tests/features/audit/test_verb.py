from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from opcheck.common.errors import CaptureError, ModelLoadError, OpcheckError
from opcheck.model.records import OpCall
from tests.command_line import CommandLine
from tests.made import call, make_report, make_target

NATIVE = call("aten::mm")
ENV = call("aten::foo")
UNKNOWN = call("mylib::op")
RAISES = call("aten::stub")


def test_the_report_goes_to_stdout_and_nothing_else_does(opcheck: CommandLine) -> None:
    result = opcheck("audit", "m.py:Net")
    assert result.code == 0
    assert result.out.startswith(
        "runs natively: m.py:Net on torch 2.13 (the newest release), macOS 15.0; its one call is native\n"
    )
    assert result.err == ""


def test_the_request_is_what_was_asked_for(opcheck: CommandLine) -> None:
    flags = "--torch 2.13.1 --macos 15.1 --fallback --input 1x3 --input x=2:int64 --config a=1"
    more = "--config b=[1,x] --dtype half --grad --tracer fx --save-graph g.py --timeout 5"
    assert opcheck("audit", "m.py:Net", *flags.split(), *more.split()).code == 0
    (request,) = opcheck.requests
    assert (request.model, request.target) == ("m.py:Net", make_target("2.13", "15.1", cpu_fallback=True))
    assert request.inputs == ("1x3", "x=2:int64")
    assert request.config == {"a": 1, "b": [1, "x"]}
    assert (request.dtype, request.grad, request.tracer) == ("float16", True, "fx")
    assert (request.save_graph, request.time_limit) == ("g.py", 5.0)


def test_a_training_step_is_asked_for_by_flag_variable_and_key(
    opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pyproject.toml").write_text('[tool.opcheck]\noptimizer = "sgd:momentum=0.9"\n')
    monkeypatch.setenv("OPCHECK_AUTOCAST", "half")
    assert opcheck("audit", "m.py:Net", "--mode", "train").code == 0
    (request,) = opcheck.requests
    assert (request.mode, request.optimizer, request.autocast) == ("train", "sgd:momentum=0.9", "float16")


def test_without_a_word_it_is_inference(opcheck: CommandLine) -> None:
    opcheck("audit", "m.py:Net")
    (request,) = opcheck.requests
    assert (request.mode, request.optimizer, request.autocast) == ("inference", "adamw", "")


def test_the_newest_release_and_macos_are_the_default(opcheck: CommandLine) -> None:
    opcheck("audit", "m.py:Net")
    assert opcheck.requests[0].target == make_target("2.15", "26.0")


@pytest.mark.parametrize(
    ("made", "flags", "code"),
    [
        (NATIVE, "", 0),
        (RAISES, "", 1),
        (RAISES, "--fail-on never", 0),
        (ENV, "", 1),
        (ENV, "--fallback", 0),
        (ENV, "--fallback --fail-on fallback", 1),
        (UNKNOWN, "", 0),
        (UNKNOWN, "--fail-on unknown", 1),
        (UNKNOWN, "--strict", 3),
    ],
)
def test_exit_codes(opcheck: CommandLine, made: OpCall, flags: str, code: int) -> None:
    opcheck.report = make_report(NATIVE, made)
    assert opcheck("audit", "m.py:Net", *flags.split()).code == code


def test_a_run_that_broke_off_exits_with_3(opcheck: CommandLine) -> None:
    opcheck.report = make_report(NATIVE, complete=False)
    assert opcheck("audit", "m.py:Net").code == 3


@pytest.mark.parametrize("flags", ["", "-q", "-f json"])
def test_passing_with_unknown_calls_is_never_silent(opcheck: CommandLine, flags: str) -> None:
    opcheck.report = make_report(NATIVE, UNKNOWN, UNKNOWN)
    result = opcheck("audit", "m.py:Net", *flags.split())
    assert result.code == 0
    assert result.err == (
        "this result does not vouch for 2 calls: nothing is known about them (--strict makes that exit with 3)\n"
    )


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ModelLoadError("no such file", context="m.py", hint="name one that exists"), 2),
        (CaptureError("it hung", context="m.py:Net", hint="--timeout"), 3),
    ],
)
def test_an_error_is_three_lines_and_no_traceback(opcheck: CommandLine, failure: OpcheckError, code: int) -> None:
    opcheck.failure = failure
    result = opcheck("audit", "m.py:Net")
    assert result == (code, "", f"{failure}\n")
    assert len(result.err.splitlines()) == 3


def test_ctrl_c_exits_with_130_and_no_traceback(opcheck: CommandLine) -> None:
    opcheck.failure = KeyboardInterrupt()
    result = opcheck("audit", "m.py:Net", "-o", "report.yaml")
    assert result.code == 130
    assert "Traceback" not in result.err
    assert list(Path.cwd().iterdir()) == []


def test_a_bug_does_not_look_like_findings(opcheck: CommandLine) -> None:
    opcheck.failure = ZeroDivisionError("oops")
    result = opcheck("audit", "m.py:Net")
    assert result.code == 3
    assert "ZeroDivisionError: oops" in result.err
    assert result.err.endswith("this is a bug in opcheck; the audit could not be done\n")


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ("--autocast float64", 2, "autocast on MPS casts to no float64"),
        ("--mode train --tracer fx", 2, "the tracer fx follows no training step"),
        ("--torch 1.2", 2, "there is no op list for torch 1.2"),
        ("--torch new", 2, "not a version: 'new'"),
        ("--torch 2.13 --macos 16", 2, "there is no macOS 16"),
        ("--torch 2.15 --macos 14", 2, "torch 2.15 does not start its MPS backend on macOS 14"),
        ("--dtype float33", 2, "unknown dtype: 'float33'"),
        ("--config a", 2, "not a setting: 'a'"),
        ("--config a=[1", 2, "not a YAML value: '[1'"),
        ("--timeout 0", 2, "the timeout must be more than nothing"),
        ("--format xml", 2, "Invalid value for '--format'"),
        ("--tracer dynamo", 2, "Invalid value for '--tracer'"),
        ("--nonsense", 2, "No such option"),
        ("-o missing/report.yaml", 2, "cannot write the report: no such directory"),
        ("-o .", 2, "cannot write the report: it is a directory"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_capture(
    opcheck: CommandLine, flags: str, code: int, message: str
) -> None:
    result = opcheck("audit", "m.py:Net", *flags.split())
    assert result.code == code
    assert result.out == ""
    assert message in result.err.splitlines()[0]
    assert len(result.err.splitlines()) == 3
    assert opcheck.requests == []


def test_a_model_is_needed(opcheck: CommandLine) -> None:
    result = opcheck("audit")
    assert result.code == 2
    assert result.err.splitlines()[0] == "Missing argument 'MODEL'."


@pytest.mark.parametrize("name", ["report.yaml", "report.yml"])
def test_the_suffix_of_the_output_chooses_the_format(opcheck: CommandLine, name: str) -> None:
    result = opcheck("audit", "m.py:Net", "-o", name)
    assert result == (0, "", f"runs natively; the report is in {name}\n")
    assert yaml.safe_load(Path(name).read_text())["headline"] == "runs natively"
    assert [path.name for path in Path.cwd().iterdir()] == [name]


def test_a_format_that_is_asked_for_wins_over_the_suffix(opcheck: CommandLine) -> None:
    opcheck("audit", "m.py:Net", "-o", "report.txt", "-f", "json")
    assert json.loads(Path("report.txt").read_text())["model"] == "m.py:Net"


def test_a_file_that_cannot_be_replaced_stays_as_it_was(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("report.md").write_text("before")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(Path, "replace", refuse)
    result = opcheck("audit", "m.py:Net", "-o", "report.md")
    assert result.code == 2
    assert len(result.err.splitlines()) == 3
    assert "Permission denied" in result.err
    assert Path("report.md").read_text() == "before"
    assert [path.name for path in Path.cwd().iterdir()] == ["report.md"]


def test_a_variable_stands_for_a_flag_and_the_flag_wins(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPCHECK_TORCH", "2.9")
    monkeypatch.setenv("OPCHECK_FALLBACK", "1")
    monkeypatch.setenv("OPCHECK_FORMAT", "json")
    assert json.loads(opcheck("audit", "m.py:Net").out)["target"]["cpu_fallback"] is True
    opcheck("audit", "m.py:Net", "--torch", "2.13", "--no-fallback")
    assert [(str(r.target.torch), r.target.cpu_fallback) for r in opcheck.requests] == [("2.9", True), ("2.13", False)]


@pytest.mark.parametrize(
    ("flags", "environment", "coloured"),
    [
        ("", {}, False),
        ("--color always", {}, True),
        ("--color always", {"NO_COLOR": "1"}, True),
        ("--color never", {}, False),
    ],
)
def test_colour(
    opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch, flags: str, environment: dict[str, str], *, coloured: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in opcheck("audit", "m.py:Net", *flags.split()).out) == coloured


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_colour_on_a_terminal(
    opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], *, coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert ("\x1b[" in opcheck("audit", "m.py:Net").out) == coloured


def test_verbose_tells_the_stages_on_stderr(opcheck: CommandLine) -> None:
    result = opcheck("audit", "m.py:Net", "-v")
    assert result.err == "building the model\n"
    assert "building" not in result.out


def test_precision_is_float32_unless_it_says_more(opcheck: CommandLine) -> None:
    assert opcheck("audit", "m.py:net").code == 0
    assert opcheck("audit", "m.py:net", "--precision").code == 0
    assert opcheck("audit", "m.py:net", "--precision", "float16,bfloat16,float16").code == 0
    asked = [request.precision for request in opcheck.requests]
    assert asked == [(), ("float32",), ("float16", "bfloat16")]


def test_precision_refuses_what_it_cannot_compare(opcheck: CommandLine) -> None:
    result = opcheck("audit", "m.py:net", "--precision", "int8")
    assert result.code == 2
    assert result.err.splitlines() == [
        "no run in int8 is compared with float64",
        "  in: --precision",
        "  help: it compares float32, float16, bfloat16",
    ]


def test_inputs_are_read_from_files(opcheck: CommandLine) -> None:
    assert opcheck("audit", "m.py:net", "--input-file", "x=x.npy", "--input-file", "y.pt").code == 0
    assert opcheck.requests[0].input_files == ("x=x.npy", "y.pt")
