"""Whatever a child does, its parent hears of it in time, in little memory, and leaves nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opcheck.worker import process
from opcheck.worker.platform import how_it_ended
from opcheck.worker.process import Child, GarbledError, LateError, LineReader, python

#: A process in a session of its own that holds all pipes open, and writes its number to the file of the argument.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)
    os._exit(0)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
#: seconds after which a test gives up: a loaded machine takes its time.
PATIENCE = 120.0
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only /proc shows environments")


def is_there(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(number: int) -> bool:
    """Whether a process ends, in as much time as a machine may need."""
    ends = time.monotonic() + PATIENCE
    while is_there(number) and time.monotonic() < ends:
        time.sleep(0.05)
    return not is_there(number)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """Where a daemon leaves its number; it is ended after the test in any case."""
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGKILL")
    file = tmp_path / "daemon"
    yield file
    if file.exists() and is_there(int(file.read_text())):
        os.kill(int(file.read_text()), signal.SIGKILL)


def start(code: str, *arguments: str) -> Child:
    return Child(python("-c", code, *arguments), os.environ, stdout=subprocess.PIPE)


def lines_of(child: Child) -> LineReader:
    assert child.process.stdout is not None
    return LineReader(child.process.stdout.fileno(), lambda: child.alive)


def soon() -> float:
    return time.monotonic() + PATIENCE


@ON_LINUX
def test_a_daemon_that_holds_the_pipe_open_is_not_waited_for_and_is_ended(daemon: Path) -> None:
    child = start("print('{}', flush=True)\n" + DAEMON, str(daemon))
    try:
        lines = lines_of(child)
        assert lines.next(soon()) == b"{}"
        assert lines.next(soon()) is None
        assert is_there(int(daemon.read_text()))
    finally:
        assert child.end() == 0
    assert gone(int(daemon.read_text()))


def test_a_child_that_says_nothing_is_late() -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGKILL")
    child = start("import time; time.sleep(600)")
    try:
        with pytest.raises(LateError):
            lines_of(child).next(time.monotonic() + 0.2)
    finally:
        assert child.end() == -signal.SIGKILL


def test_a_line_may_not_be_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LONGEST_LINE", 1 << 20)
    child = start("import os\nwhile True: os.write(1, b'x' * 65536)")
    try:
        with pytest.raises(GarbledError, match="more than 1 MiB"):
            lines_of(child).next(soon())
    finally:
        child.end()


@ON_LINUX
def test_a_program_is_run_to_its_end_and_nothing_of_it_stays(daemon: Path) -> None:
    code = "import sys; print(repr(sys.stdin.read()))\n" + DAEMON + "\nsys.exit(3)"
    done = process.run(python("-c", code, str(daemon)), PATIENCE)
    assert (done.code, done.out.strip(), done.err, done.late) == (3, "''", "", False)
    assert gone(int(daemon.read_text()))


def test_a_program_that_takes_too_long_is_ended() -> None:
    done = process.run(python("-c", "import time; time.sleep(600)"), 0.2)
    assert done.late


def test_of_what_is_printed_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PRINTED", 1000)
    done = process.run(python("-c", "print('x' * 1000000); print('last')"), PATIENCE)
    assert len(done.out) == 1000
    assert done.out.endswith("last\n")


@pytest.mark.parametrize("number", [9, 35, 63])
def test_any_signal_has_a_name(number: int) -> None:
    code = f"import os, signal; os.kill(os.getpid(), {number})"
    assert process.run(python("-c", code), PATIENCE).code == -number
    assert how_it_ended(-number).endswith(("SIGKILL", f"signal {number}"))


@pytest.mark.parametrize("arguments", [("-m", "timeit", "-n1"), ("-c", "import json")])
def test_the_working_directory_is_not_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    for name in ("json", "timeit", "getopt", "runpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from here')\n")
    monkeypatch.chdir(tmp_path)
    done = process.run(python(*arguments), PATIENCE)
    assert (done.code, "imported from here" in done.err) == (0, False)


@ON_LINUX
def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGKILL")
    file = tmp_path / "child"
    sleeps = (
        "import os, time; from opcheck.worker.platform import die_with_parent; die_with_parent(); "
        f"open({str(file) + '.part'!r}, 'w').write(str(os.getpid())); "
        f"os.rename({str(file) + '.part'!r}, {str(file)!r}); time.sleep(600)"
    )
    starts = (
        "import os, signal, time; from opcheck.worker.process import Child, python\n"
        f"Child(python('-c', {sleeps!r}), os.environ)\n"
        f"while not os.path.exists({str(file)!r}): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run(python("-c", starts), check=False).returncode == -signal.SIGKILL
    assert gone(int(file.read_text()))


#: The command line with one verb, which starts a program that leaves a process without its variables.
CLEARED = f"""
import os, subprocess, sys
from opcheck import cli
from opcheck.worker import process

def invoke(args):
    code = "import os, subprocess, sys; subprocess.Popen(" + repr(
        [sys.executable, "-c", {DAEMON!r}, *args]
    ) + ", env={{}}, start_new_session=True).wait()"
    with process.end_started_on_error():
        child = process.Child([sys.executable, "-c", code], os.environ)
        child.wait()
        return child.end()

cli.invoke = invoke
cli.main(sys.argv[1:])
"""


@ON_LINUX
def test_a_process_without_the_variable_that_marks_it_does_not_outlive_the_command_line(daemon: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(python("-c", CLEARED, str(daemon)), env=environment, check=False)
    assert done.returncode == 0
    assert not is_there(int(daemon.read_text()))
