"""A program that writes where its report belongs steers nothing: without the secret there is no report."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opcheck.common.errors import CaptureError
from opcheck.device.emulator import emulated_run
from opcheck.device.emulator.emulation_request import RunOutcome, RunRequest
from opcheck.model.records import Report
from opcheck.worker.protocol import WorkFailure, seal
from tests.made import call, make_report

if sys.platform == "win32":
    pytest.skip("there are no named pipes in folders", allow_module_level=True)

_REQUEST = RunRequest(program="program.py", torch="2.13", macos="15.0")
_REPORT: Report = msgspec.structs.replace(make_report(call("aten::mm")), graph=())
_FORGED = RunOutcome(report=_REPORT)


def replace(path: Path, by: Callable[[Path], object]) -> None:
    path.unlink()
    by(path)


def link_folder(path: Path) -> None:
    path.parent.rename(f"{path.parent}-moved")
    path.parent.symlink_to("/proc")


#: What a program does to the file of its outcome, and what comes of it.
_ATTACKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "an outcome": (lambda p: p.write_bytes(msgspec.json.encode(_FORGED)), "wrote over"),
    "an outcome with a guess": (lambda p: p.write_bytes(seal(_FORGED, "0" * 32)), "wrote over"),
    "a failure": (
        lambda p: p.write_bytes(msgspec.json.encode(WorkFailure(error="UsageError", message="x"))),
        "wrote over",
    ),
    "prose": (lambda p: p.write_bytes(b"\x1b[2Jdone\n::error::x"), "wrote over"),
    "no text": (lambda p: p.write_bytes(b"\xff\xfe\x00"), "wrote over"),
    "a number": (lambda p: p.write_bytes(b"1" * 5000), "wrote over"),
    "deep": (lambda p: p.write_bytes(b"[" * 100_000), "wrote over"),
    "without end": (lambda p: os.truncate(p, 1 << 40), "longer than 256 MiB"),
    "empty": (lambda p: p.write_bytes(b""), "left no report"),
    "removed": (Path.unlink, "left no report"),
    "unreadable": (lambda p: replace(p, lambda q: q.symlink_to(q)), "wrote over"),
    "a named pipe": (lambda p: replace(p, os.mkfifo), "not a regular file"),
    "a device": (lambda p: replace(p, lambda q: q.symlink_to("/dev/zero")), "not a regular file"),
    "a folder": (lambda p: replace(p, Path.mkdir), "Is a directory"),
    "the folder removed": (lambda p: shutil.rmtree(p.parent), "left no report"),
    "a link for the folder": (link_folder, "left no report"),
}


@pytest.mark.parametrize("attack", _ATTACKS)
def test_a_forged_outcome_is_three_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    change, message = _ATTACKS[attack]

    def run_program(_function: str, asked: Path, *_others: Any, **_named: Any) -> int:
        change(Path(msgspec.json.decode(asked.read_bytes(), type=RunRequest).answer))
        return 0

    monkeypatch.setattr(emulated_run, "run_program", run_program)
    with pytest.raises(CaptureError, match=message) as error:
        emulated_run.run(_REQUEST)
    assert error.value.context == "program.py"
    assert error.value.hint


def test_ctrl_c_before_the_program_begins_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_run, "run_program", lambda *_, **_named: -signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        emulated_run.run(_REQUEST)


def test_an_outcome_with_the_secret_is_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_program(_function: str, asked: Path, *_others: Any, **_named: Any) -> int:
        request = msgspec.json.decode(asked.read_bytes(), type=RunRequest)
        Path(request.answer).write_bytes(seal(_FORGED, request.secret))
        return 0

    monkeypatch.setattr(emulated_run, "run_program", run_program)
    assert emulated_run.run(_REQUEST) == _FORGED


def test_a_program_does_not_find_the_secret_in_the_files_of_its_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import glob, json, os, tempfile\n"
        "for name in glob.glob(tempfile.gettempdir() + '/opcheck-*/request.json'):\n"
        "    request = json.load(open(name))\n"
        "    if request['program'] == __file__:\n"
        "        found = 'secret' in request and request['secret']\n"
        "        os.remove(request['answer']) if found else open(request['answer'], 'w').write('{}')\n"
        "        os._exit(0)\n"
    )
    with pytest.raises(CaptureError, match="wrote over the report"):
        emulated_run.run(RunRequest(program=str(program), torch="2.13", macos="15.0"))


def test_a_pipe_or_a_link_in_place_of_the_report_neither_waits_nor_leads_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = tmp_path / "theirs"
    theirs.write_text("mine")
    for change in ("os.mkfifo(name)", f"os.symlink({str(theirs)!r}, name)"):
        program = tmp_path / "program.py"
        program.write_text(
            f"import glob, os\nname = glob.glob({str(tmp_path)!r} + '/opcheck-*/outcome.json')[0]\n"
            f"os.remove(name)\n{change}\n"
        )
        with pytest.raises(CaptureError, match="wrote over the report"):
            emulated_run.run(RunRequest(program=str(program), torch="2.13", macos="15.0"))
    assert theirs.read_text() == "mine"


#: Programs that damage the Python of their own process, and the error; empty: there is a report nevertheless.
_DAMAGE = {
    "no modules": ("import torch\ntorch.ones(2, device='mps') + 1\nimport sys\nsys.modules.clear()", "cannot report"),
    "a wrong function": ("import builtins\nbuiltins.len = None", "left no report"),
    "no builtins": ("import builtins\nvars(builtins).clear()", "left no report"),
    "no descriptors": ("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", "left no report"),
    "a code that raises": (
        "class E(SystemExit):\n    @property\n    def code(self): raise RuntimeError('code')\nraise E",
        "cannot report what the program did: RuntimeError: code",
    ),
    "no stdout": ("import sys\nsys.stdout = None", ""),
    "no hook": ("import sys\nsys.excepthook = None\n1 / 0", ""),
    "a class that raises": (
        "class M(type):\n    def __getattribute__(c, n): raise RuntimeError\n"
        "class E(Exception, metaclass=M): pass\nraise E",
        "",
    ),
    "a long chain": (
        "e = None\nfor i in range(100_000):\n    n = ValueError(i)\n    n.__cause__ = e\n    e = n\nraise e",
        "",
    ),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_a_program_that_damages_python_leaves_no_traceback_of_opchecks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    text, message = _DAMAGE[damage]
    program = tmp_path / "program.py"
    program.write_text(text)
    error = ""
    try:
        emulated_run.run(RunRequest(program=str(program), torch="2.13", macos="15.0"))
    except CaptureError as raised:
        error = str(raised)
    assert message in error if message else not error
    assert "opcheck/" not in capfd.readouterr().err
