"""Standard streams that are closed, full, or read by nobody are no bug of opcheck's."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.cli import streams
from opcheck.worker.process import python


def shell(tmp_path: Path, arguments: str, rest: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.join(python('-m', 'opcheck'))} {arguments} {rest}"
    return subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        # Streams without a buffer have nothing left that Python would write at its end.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


@pytest.mark.parametrize("arguments", ["op add", "op add --help", "--version", "scan a.py"])
@pytest.mark.parametrize(
    ("closed", "reason"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")]
)
def test_stdout_that_takes_nothing_is_three_lines(tmp_path: Path, arguments: str, closed: str, reason: str) -> None:
    (tmp_path / "a.py").write_text("x.cuda()\n")
    done = shell(tmp_path, arguments, closed)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3
    assert reason in done.stderr.splitlines()[0]


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("arguments", "code"), [("op add", 0), ("op nonsense", 2), ("nonsense", 2), ("", 2)])
def test_stderr_that_takes_nothing_changes_no_exit_code(tmp_path: Path, closed: str, arguments: str, code: int) -> None:
    assert shell(tmp_path, arguments, closed).returncode == code


def test_no_stdin_is_an_empty_one(tmp_path: Path) -> None:
    done = shell(tmp_path, "observe -", "<&-")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False)


def test_a_file_is_written_where_stdout_is_closed(tmp_path: Path) -> None:
    assert shell(tmp_path, "op add -o op.json", ">&-").returncode == 0
    assert (tmp_path / "op.json").is_file()


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    done = shell(tmp_path, "op add -f json", "| head -1")  # more than a pipe holds
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


def test_a_working_directory_that_is_gone_is_three_lines(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f"cd {gone} && rmdir {gone} && {shlex.join(python('-m', 'opcheck'))} audit m.py:M"
    gone.mkdir()
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
@pytest.mark.parametrize("verb", ["audit", "run --emulate", "sweep", "gate"])
def test_a_name_that_is_not_utf_8_is_three_lines(tmp_path: Path, verb: str) -> None:
    name = os.fsdecode(b"m\xff.py")
    (tmp_path / name).write_text("def f(x):\n    return x\n")
    model = name if verb.startswith("run") else f"{name}:f"
    done = shell(tmp_path, f"{verb} {shlex.quote(model)}", "")
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_file_of_such_a_name_is_written_and_read(tmp_path: Path) -> None:
    name = shlex.quote(os.fsdecode(b"o\xff.json"))
    assert shell(tmp_path, f"op add -o {name}", "").returncode == 0
    assert shell(tmp_path, f"diff {name} {name}", "").returncode == 2


def test_progress_in_a_log_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("opcheck.cli.streams.time.monotonic", lambda: now)
    with streams.progress(quiet=False, verbose=False, redirected=True) as show:
        assert show is not None
        for second in range(25):
            now = float(second)
            show(f"second {second}")
    assert capsys.readouterr().err == "second 11\nsecond 22\n"


@pytest.mark.parametrize(("quiet", "redirected"), [(True, True), (False, False)])
def test_other_logs_show_no_progress(quiet: bool, redirected: bool) -> None:
    with streams.progress(quiet=quiet, verbose=False, redirected=redirected) as show:
        assert show is None
