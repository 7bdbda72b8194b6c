"""Models whose process does what no model should: the parent says so in time, in little memory, and leaves nothing."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch

from opcheck.capture import parent
from opcheck.capture.child.shared import capture_live
from opcheck.capture.parent import capture
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError, InputError
from opcheck.worker import platform, process, worker
from opcheck.worker.protocol import WorkFailure, error_of
from tests.made import make_target
from tests.worker.test_process import DAEMON, PATIENCE, gone

MODELS = f"""
import os, signal, sys, time
from torch import nn

def daemon():
    file = os.path.join(os.path.dirname(__file__), "daemon")
    code = {DAEMON!r}
    sys.argv = ["", file]
    exec(code, {{"__name__": "daemon"}})

def write(content):
    for descriptor in range(3, 16):
        try:
            os.write(descriptor, content)
        except OSError:
            pass

class Model(nn.Module):
    def forward(self, x):
        getattr(self, self.__class__.__name__)()
        return x + 1

class works(Model):
    def works(self):
        daemon()

class exits(Model):
    def exits(self):
        daemon()
        os._exit(3)

class hangs(Model):
    def hangs(self):
        daemon()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(600)

class dies(Model):
    def dies(self):
        os.kill(os.getpid(), 35)
        time.sleep(600)

class says(Model):
    def says(self):
        write(b"hello\\n")

class floods(Model):
    def floods(self):
        while True:
            write(b"x" * 65536)
"""
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows environments")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "models.py"
    file.write_text(MODELS, encoding="utf-8")
    monkeypatch.setattr(parent, "GRACE", 3.0)
    monkeypatch.setattr(worker, "GRACE", 3.0)
    return file


def request(models: Path, name: str, seconds: float = 300.0) -> CaptureRequest:
    return CaptureRequest(model=f"{models}:{name}", target=make_target(), inputs=("2x2",), time_limit=seconds)


@pytest.mark.parametrize(
    ("name", "seconds", "message"),
    [
        ("exits", 300, "exited with code 3"),
        ("hangs", 1, "not done after 1 s and was ended"),
        ("dies", 300, r"was ended by signal 35"),
        ("says", 300, "wrote what is no answer of opcheck's: 'hello'"),
    ],
)
def test_it_is_an_error_in_three_lines(models: Path, name: str, seconds: float, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as caught:
        capture(request(models, name, seconds))
    assert len(str(caught.value).splitlines()) <= 3
    daemon = models.with_name("daemon")
    assert not daemon.exists() or sys.platform != "linux" or gone(int(daemon.read_text()))


@ON_LINUX
def test_a_daemon_does_not_outlive_a_capture_that_works(models: Path) -> None:
    assert capture(request(models, "works")).complete
    assert gone(int(models.with_name("daemon").read_text()))


def test_a_model_cannot_fill_the_memory_of_its_parent(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LONGEST_LINE", 1 << 20)
    with pytest.raises(CaptureError, match="a line of more than 1 MiB"):
        capture(request(models, "floods"))


@pytest.mark.parametrize("name", ["annotations", "__dict__", "ClassVar", "nothing", "UsageError"])
def test_a_child_names_exceptions_of_opcheck_alone(name: str) -> None:
    error = error_of(WorkFailure(error=name, message="m", context="c", hint="h"))
    assert type(error).__name__ == (name if name == "UsageError" else "CaptureError")
    assert isinstance(error_of(WorkFailure(error="InputError", message="m")), InputError)


def test_the_working_directory_takes_the_place_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("msgspec", "json", "torch", "typing", "opcheck", "yaml", "re", "signal", "enum"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('imported from here')\n")
    monkeypatch.chdir(tmp_path)
    model = "torch.nn.functional:relu"
    asked = CaptureRequest(model=model, target=make_target(), inputs=("2x2",))
    assert capture(asked).complete


def test_a_model_imports_its_neighbours_and_what_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far.py").write_text("def f(x):\n    return x + 1\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "near.py").write_text("from far import f\n")
    (tmp_path / "models" / "net.py").write_text("from near import f\ndef net(x):\n    return f(x)\n")
    monkeypatch.chdir(tmp_path)
    for model in ("models/net.py:net", "far:f"):
        asked = CaptureRequest(model=model, target=make_target(), inputs=("2x2",))
        assert [call.op for call in capture(asked).calls] == ["aten::add.Tensor"]


@pytest.mark.skipif(not platform.CAN_FORK, reason="this system copies no process")
def test_a_model_that_no_signal_ends_has_its_time_and_one_grace(models: Path) -> None:
    def hang(_tensor: object) -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException:  # noqa: BLE001, S110 - as a program does that is not to be ended
                pass

    start = time.monotonic()
    with pytest.raises(CaptureError, match="not done after 1 s"):
        capture_live(request(models, "f", 1.0), hang, torch.ones(2))
    assert time.monotonic() - start < PATIENCE / 2
