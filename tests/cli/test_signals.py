"""A verb that is told to end leaves no child, no daemon of the model's and no temporary folder, and says by which signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcheck import cli
from opcheck.worker import platform
from opcheck.worker.process import python

if sys.platform == "win32":
    pytest.skip("Windows has no signals", allow_module_level=True)

#: seconds after which a test gives up: a loaded machine takes its time.
PATIENCE = 300.0
MODEL = """
import os, time
import torch
from torch import nn

def wait():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    open(os.environ["STARTED"], "w").close()
    time.sleep(600)

class Net(nn.Module):
    def forward(self, x):
        wait()
        return x

def net():
    return Net(), torch.ones(2)

if __name__ == "__main__":
    wait()
"""
VERBS = {
    "audit": ("audit", "m.py:net"),
    "upgrade": ("upgrade", "m.py:net"),
    "diff": ("diff", "m.py:net", "--from", "torch=2.12", "--to", "torch=2.13"),
    "run": ("run", "--emulate", "m.py"),
    "gate": ("gate",),
    "gate -j 2": ("gate", "-j", "2"),
    "compile": ("compile", "m.py:net"),
    "compare": ("compare", "m.py:net", "--device", "cpu"),
    "sweep": ("sweep", "m.py:net", "--torch", "2.13", "--folder", "sweep"),
    "sweep -j 2": ("sweep", "m.py:net", "m.py:Net", "-j", "2", "--torch", "2.13"),
}
QUICK = ("audit", "run", "gate -j 2")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows environments")


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell starts a background job with SIGINT ignored, and every child would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Started:
    """A verb that is running, and what it has started."""

    def __init__(self, folder: Path, verb: str) -> None:
        (folder / "m.py").write_text(MODEL, encoding="utf-8")
        (folder / "opcheck.toml").write_text(
            '[[models]]\nname = "a"\nmodel = "m.py:net"\n[[models]]\nname = "b"\nmodel = "m.py:net"\n', encoding="utf-8"
        )
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._begun = folder / "begun"
        self._cookie = f"{folder}/{os.getpid()}".encode()
        self.process = subprocess.Popen(
            python("-m", "opcheck", *VERBS[verb]),
            cwd=folder,
            env={
                **os.environ,
                "TMPDIR": str(self.temporary),
                "STARTED": str(self._begun),
                "COOKIE": self._cookie.decode(),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait_for_the_model(self) -> None:
        ends = time.monotonic() + PATIENCE
        while not self._begun.exists():
            assert self.process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.05)

    def left(self) -> list[int]:
        """The processes that are still there, after as much time as they may need to end."""
        ends = time.monotonic() + 60
        while (results := [*self._processes()]) and time.monotonic() < ends:
            time.sleep(0.1)
        return results

    def _processes(self) -> Iterator[int]:
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    if self._cookie in (process / "environ").read_bytes():
                        yield int(process.name)
                except OSError:
                    continue

    def end(self) -> None:
        for number in self._processes():
            os.kill(number, signal.SIGKILL)
        self.process.wait()


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        pytest.param(verb, number, marks=() if verb in QUICK and number != signal.SIGHUP else pytest.mark.slow)
        for verb in VERBS
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        # Ctrl-C is the program's own, which may go on.
        if (verb, number) != ("run", signal.SIGINT)
    ],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
def test_a_signal_ends_the_verb_and_all_that_it_has_started(tmp_path: Path, verb: str, number: int) -> None:
    started = Started(tmp_path, verb)
    try:
        started.wait_for_the_model()
        started.process.send_signal(number)
        assert started.process.wait(PATIENCE) == 128 + number
        assert started.left() == []
        assert [*started.temporary.iterdir()] == []
    finally:
        started.end()


@pytest.mark.parametrize("verb", ["audit", pytest.param("sweep -j 2", marks=pytest.mark.slow)])
def test_a_verb_that_is_killed_leaves_no_child_of_ours(tmp_path: Path, verb: str) -> None:
    started = Started(tmp_path, verb)
    try:
        started.wait_for_the_model()
        started.process.kill()
        started.process.wait()
        ends = time.monotonic() + 60
        # The model's own daemon is no child of ours.
        while len([*started._processes()]) > 1 and time.monotonic() < ends:
            time.sleep(0.1)
        assert len([*started._processes()]) <= 1
    finally:
        started.end()


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        "from opcheck.worker.platform import handle_signals; handle_signals(); "
        "assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN; "
        "assert callable(signal.getsignal(signal.SIGTERM))"
    )
    assert subprocess.run(python("-c", code), check=False, cwd=tmp_path).returncode == 0


#: Runs a module of opcheck, and sends it a signal as an import begins.
_AT_IMPORT = """
import os, runpy, signal, sys
stage, number = sys.argv[1], int(sys.argv[2])
if number != signal.SIGINT:  # nohup lets its children ignore SIGHUP
    signal.signal(number, signal.SIG_DFL)
class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == stage and os.environ.pop("ONCE", ""):
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, AtImport())
module, *sys.argv[1:] = sys.argv[3:]
runpy.run_module(module, None, "__main__", True)
"""


_OP = ("opcheck", "op", "aten::mm")
_PROGRAM = ("opcheck.worker.child", "--program", "opcheck.device.emulator.child.emulated_program:main", "request")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("click", _OP),
        ("opcheck.cli.streams", _OP),
        ("opcheck.lookup.answer", _OP),
        ("opcheck.worker.platform", _PROGRAM),
        ("opcheck.device.emulator.user_program", _PROGRAM),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_modules_are_imported_writes_nothing(stage: str, words: tuple[str, ...], number: int) -> None:
    ended = subprocess.run(
        python("-c", _AT_IMPORT, stage, str(int(number)), *words),
        capture_output=True,
        check=False,
        env={**os.environ, "ONCE": "1"},
    )
    # A shell shows both as 128 and the signal.
    assert ended.returncode in {-number, 128 + number}
    assert ended.stdout + ended.stderr.strip() == b""  # click ends the line of ^C


def test_a_second_signal_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted_twice(_words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "invoke", interrupted_twice)
    monkeypatch.setattr(platform, "handle_signals", lambda: None)
    monkeypatch.setattr(platform, "ignore_signals", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["op"])
    assert ended.value.code == 130
    assert capfd.readouterr().err == ""
