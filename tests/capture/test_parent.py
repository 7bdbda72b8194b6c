"""User code in a child process: whatever it does, the parent gets a trace or one clear error."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from opcheck.capture import parent
from opcheck.capture.child.run import leave_uncompiled
from opcheck.capture.parent import capture
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.common.versions import Target, Version
from opcheck.model.records import Trace
from opcheck.worker import worker
from tests.made import make_target

BEHAVIOURS = '''
import ctypes, os, pathlib, subprocess, sys, time
import torch
from torch import nn

print("printed at import")

class Linear(nn.Module):
    """Its behaviour comes after one call."""

    def __init__(self, after):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.after = after

    def forward(self, x):
        y = self.layer(x)
        return self.after(y)

def _after(after):
    return lambda: (Linear(after), {"x": torch.ones(2, 4)})

def _raise(error):
    raise error

def _hang(y):
    while True:
        time.sleep(0.05)

def _stubborn(y):
    while True:
        try:
            time.sleep(0.05)
        except Exception:
            pass

def _noisy(y):
    print("printed")
    os.write(1, b"written to the descriptor")
    return y

def _leaves_a_process(y):
    child = subprocess.Popen(["sleep", "3600"])
    pathlib.Path(__file__).with_name("sleeps").write_text(str(child.pid))
    return y

def _eats(y):
    kept = []
    while True:
        kept.append(bytearray(50_000_000))

def _closes_and_forks(y):
    if os.fork() == 0:
        return y  # the fork goes on, too
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)
    return y

eats = _after(_eats)
closes_and_forks = _after(_closes_and_forks)
raises = _after(lambda y: _raise(ValueError("no good")))
leaves = _after(lambda y: sys.exit(0))
hangs = _after(_hang)
stubborn = _after(_stubborn)
dies = _after(lambda y: os._exit(7))
crashes = _after(lambda y: ctypes.string_at(0))
works = _after(_noisy)
asks = _after(lambda y: input())
patches = _after(lambda y: setattr(torch, "relu", None) or y)
mixes = _after(lambda y: y + torch.ones(4))

@torch.jit.script
def _scripted(y: torch.Tensor) -> torch.Tensor:
    return y + torch.zeros(y.shape, device=y.device)

def _scripted_compiled_and_cast(y):
    y = torch.compile(torch.sin, fullgraph=True)(_scripted(_leaves_a_process(y)))
    return y.double()

varied = _after(_scripted_compiled_and_cast)
'''

HANGS = {
    "hangs_at_import": "import time\ntime.sleep(60)",
    # The interpreter holds its lock and looks at no signal.
    "hangs_in_c": "sum(range(10**13))",
}


@pytest.fixture(scope="module")
def behaviours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("user") / "behaviours.py"
    file.write_text(BEHAVIOURS, encoding="utf-8")
    return file


def _capture(file: Path, name: str, time_limit: float = 1200, save_graph: str = "") -> Trace:
    request = CaptureRequest(model=f"{file}:{name}", target=make_target(), time_limit=time_limit, save_graph=save_graph)
    return capture(request)


@pytest.fixture(scope="module")
def working(behaviours: Path) -> Trace:
    """Return the trace of a model that works, after a model that patches torch."""
    assert _capture(behaviours, "patches").complete
    return _capture(behaviours, "works", save_graph=str(behaviours.with_name("graph.py")))


@pytest.fixture(scope="module")
def varied(behaviours: Path) -> Iterator[Trace]:
    """Return the trace of a model that uses a script and torch.compile, casts, and leaves a process."""
    try:
        yield _capture(behaviours, "varied")
    finally:
        if sys.platform != "win32":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(behaviours.with_name("sleeps").read_text()), signal.SIGKILL)


def test_a_model_that_works_whatever_another_one_has_patched(working: Trace) -> None:
    trace = working
    assert [call.op for call in trace.calls] == ["aten::linear"]
    (call,) = trace.calls
    assert call.module == "layer"
    assert call.location is not None
    assert call.location.text == "y = self.layer(x)"
    assert [spec.argument for spec in call.inputs] == ["input", "weight", "bias"]
    assert trace.complete
    assert trace.parameters == 20
    assert trace.environment["PYTORCH_MPS_LOG_LEVEL"] == "1"
    assert trace.environment["PYTORCH_ENABLE_MPS_FALLBACK"] == "0"


def test_the_same_run_gives_the_same_trace_and_writes_its_graph(behaviours: Path, working: Trace) -> None:
    graph = behaviours.with_name("graph.json")
    assert _capture(behaviours, "works", save_graph=str(graph)) == working
    assert '"op": "aten::linear"' in graph.read_text()
    assert "torch.ops.aten.linear.default" in graph.with_suffix(".py").read_text()


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("raises", "model_raised", "the model raised ValueError: no good"),
        pytest.param("leaves", "model_raised", "the model raised SystemExit: 0", marks=pytest.mark.slow),
        pytest.param(
            "asks", "model_raised", "the model raised EOFError: EOF when reading a line", marks=pytest.mark.slow
        ),
    ],
)
def test_what_ran_before_an_exception_is_kept(behaviours: Path, name: str, kind: str, message: str) -> None:
    trace = _capture(behaviours, name)
    assert not trace.complete
    assert [call.op for call in trace.calls] == ["aten::linear"]
    (problem,) = trace.problems
    assert (problem.kind, problem.message) == (kind, message)


@pytest.mark.parametrize("name", ["stubborn", pytest.param("hangs", marks=pytest.mark.slow)])
def test_a_model_that_hangs_is_ended_at_its_line(behaviours: Path, name: str) -> None:
    # Importing torch counts, and takes as long as the machine is busy.
    for limit in (5, 20, 80, 320):
        with contextlib.suppress(CaptureError):
            trace = _capture(behaviours, name, time_limit=limit)
            if trace.calls:
                break
    (problem,) = trace.problems
    assert problem.kind == "timeout"
    assert problem.location is not None
    assert "time.sleep" in problem.location.text


HANGS_BY_RELEASE = """
import pathlib, time
import torch
from torch import nn

class Net(nn.Linear):
    def forward(self, x):
        with open(pathlib.Path(__file__).with_name("runs"), "a") as runs:
            runs.write(torch.__version__ + " ")
        if {hangs}:
            time.sleep(1000)
        time.sleep(2)
        return super().forward(x)

net = Net(4, 4)
"""


def _capture_releases(folder: Path, hangs: str) -> list[str]:
    file = folder / "net.py"
    file.write_text(HANGS_BY_RELEASE.format(hangs=hangs))
    macos = Version(15, 0)
    targets = [Target(torch=Version.parse(release), macos=macos) for release in ("2.6", "2.8", "2.13")]
    request = CaptureRequest(model=f"{file}:net", target=targets[0], inputs=("2x4",), time_limit=5)
    captured = parent.capture_many(request, targets)
    return [
        each.message if isinstance(each, OpcheckError) else ",".join(problem.message for problem in each.problems)
        for each in captured
    ]


def test_after_a_run_that_hangs_no_other_target_has_one(tmp_path: Path) -> None:
    late = "not done after 5 s"
    others = f"not run, because the run for another target was {late}"
    assert _capture_releases(tmp_path, "True") == [others, others, late]
    assert len((tmp_path / "runs").read_text().split()) == 1


@pytest.mark.slow
def test_each_run_has_the_time_limit_again(tmp_path: Path) -> None:
    assert _capture_releases(tmp_path, "False") == ["", "", ""]
    assert len((tmp_path / "runs").read_text().split()) == 3


@pytest.mark.parametrize(
    ("name", "how"),
    [pytest.param("dies", "exited with code 7", marks=pytest.mark.slow), ("crashes", "was ended by SIGSEGV")],
)
def test_a_process_that_dies_is_an_error_in_three_lines(behaviours: Path, name: str, how: str) -> None:
    with pytest.raises(CaptureError) as caught:
        _capture(behaviours, name)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"the process that ran the model {how} before it was done"
    assert lines[1].startswith(f"  in: {behaviours}:{name}, while running on the simulated Mac")
    assert lines[2] == "  help: run again with -v to see all that it printed"


def test_a_model_that_eats_memory_is_ended_at_its_line(behaviours: Path) -> None:
    request = CaptureRequest(model=f"{behaviours}:eats", target=make_target(), time_limit=1200, memory_limit=0.5)
    trace = capture(request)
    assert [call.op for call in trace.calls] == ["aten::linear"]
    (problem,) = trace.problems
    assert problem.kind == "memory"
    assert problem.message.endswith("more memory of this machine than it may take: MemoryError")
    assert problem.location is not None
    assert "bytearray" in problem.location.text


def test_a_model_that_closes_its_files_and_forks(behaviours: Path) -> None:
    assert _capture(behaviours, "closes_and_forks").complete


@pytest.mark.parametrize(
    ("name", "grace", "message"),
    [
        ("hangs_at_import", 60, "the model was not loaded after 1 s"),
        ("hangs_in_c", 2, "the model was not done after 1 s and was ended"),
    ],
)
def test_what_hangs_where_no_trace_can_be_is_an_error_in_three_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, grace: float, message: str
) -> None:
    monkeypatch.setattr(parent, "GRACE", grace)
    monkeypatch.setattr(worker, "GRACE", grace)
    file = tmp_path / f"{name}.py"
    file.write_text(HANGS[name], encoding="utf-8")
    request = CaptureRequest(model=f"{file}:f", target=make_target(), time_limit=1)
    with pytest.raises(CaptureError, match=message):
        capture(request)


def test_a_process_that_the_model_started_holds_nothing_up(varied: Trace) -> None:
    # A capture that waited for it would not end within its own limit.
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGKILL")
    assert varied.complete


def test_a_tensor_left_on_the_cpu(behaviours: Path) -> None:
    refused = [call for call in _capture(behaviours, "mixes").calls if call.refusal]
    assert [call.op for call in refused] == ["aten::add.Tensor"]


def test_float64_is_followed_to_be_judged(varied: Trace) -> None:
    *_, cast = varied.calls
    assert (cast.op, cast.outputs[0].dtype) == ("aten::_to_copy", "float64")


def test_an_error_of_the_loader_passes_whole(behaviours: Path) -> None:
    with pytest.raises(OpcheckError) as caught:
        _capture(behaviours, "nowhere")
    assert type(caught.value).__name__ == "ModelLoadError"
    assert caught.value.message == f"{behaviours} has no attribute 'nowhere'"


def test_torchscript_and_what_is_compiled_run_as_the_python_that_they_were(varied: Trace) -> None:
    assert [call.op for call in varied.calls] == [
        *("aten::linear", "aten::zeros", "aten::add.Tensor", "aten::sin", "aten::_to_copy")
    ]
    added = varied.calls[2]
    assert added.location is not None
    assert added.location.function == "_scripted"
    assert [problem.kind for problem in varied.problems] == ["eager"]
    assert varied.complete


def test_a_saved_script_is_refused_in_three_lines() -> None:
    with leave_uncompiled([]), pytest.raises(OpcheckError, match=r"torch\.jit\.load is not supported") as caught:
        torch.jit.load("saved.pt")
    lines = str(caught.value).splitlines()
    assert lines[1] == "  in: torch.jit.load('saved.pt')"
    assert lines[2].endswith("or save it by torch.export.save(), as file.pt2")
