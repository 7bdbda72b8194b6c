"""The services of the operating system, and the ways for systems that are not at hand."""

from __future__ import annotations

import os
import platform as host
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opcheck
from opcheck.worker import platform
from opcheck.worker.process import python

ROOT = Path(opcheck.__file__).parent
#: What only the platform module may name.
WORDS = ("os.fork", "signal.SIG", '"/proc', "/proc/", "resource.", "fcntl", "os.waitpid", "os.killpg")


def elsewhere(code: str, system: str) -> subprocess.CompletedProcess[str]:
    """Run a program that takes the ways of another system."""
    return subprocess.run(
        python("-c", code),
        env={**os.environ, "OPCHECK_TEST_SYSTEM": system},
        capture_output=True,
        text=True,
        check=False,
    )


def gone(number: int) -> bool:
    """Return whether the process ends within a minute."""
    ends = time.monotonic() + 60.0
    while platform.exists(number) and time.monotonic() < ends:
        time.sleep(0.05)
    return not platform.exists(number)


@pytest.mark.parametrize("folder", [ROOT, ROOT.parent / "scripts"], ids=["opcheck", "scripts"])
def test_only_the_platform_module_names_the_services_of_a_system(folder: Path) -> None:
    # Two programs set what Ctrl-C does before they import anything of opcheck.
    programs = {ROOT / "__main__.py", ROOT / "worker" / "child.py"}
    own = {Path(platform.__file__), *programs}
    results = [
        f"{path.relative_to(folder.parent)}: {line.strip()}"
        for path in sorted(folder.rglob("*.py"))
        if path not in own
        for line in path.read_text(encoding="utf-8").splitlines()
        if any(word in line for word in WORDS)
    ]
    assert results == []


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_a_copy_of_the_process_is_refused_in_three_lines(system: str) -> None:
    done = elsewhere(
        "from opcheck.worker.platform import Fork\nfrom opcheck.common.errors import UsageError\n"
        "try: Fork(lambda: 0)\nexcept UsageError as error: print(error)",
        system,
    )
    assert len(done.stdout.splitlines()) == 3, done.stderr
    assert system in done.stdout


def test_a_program_without_timers_is_interrupted_and_goes_on_after() -> None:
    done = elsewhere(
        "import time\nfrom opcheck.worker import platform\n"
        "platform.limit_time(0.1)\n"
        "try:\n    while True: time.sleep(0.01)\n"
        "except platform.TimeLimitReached as error: print(error)\n"
        "platform.stop_time_limit()\ntime.sleep(1.2)\nprint('and on')",
        "win32",
    )
    assert done.stdout == "not done after 0.1 s\nand on\n", done.stderr


def test_a_timer_of_the_programs_own_is_not_taken_for_the_time_limit() -> None:
    done = elsewhere(
        "import signal, time\nfrom opcheck.worker import platform\n"
        "platform.limit_time(2)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.1)\n"
        "try: time.sleep(10)\n"
        "except platform.AlarmError as error: print(error)\n"
        "try: time.sleep(10)\n"
        "except platform.TimeLimitReached as error: print(error)",
        "linux",
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("SIGALRM ends the program"), done.stderr
    assert second == "not done after 2 s"


def test_memory_that_cannot_be_limited_is_watched() -> None:
    done = elsewhere(
        "import time\nfrom opcheck.worker import platform\n"
        "platform.limit_memory(50_000_000)\n"
        "kept = []\n"
        "try:\n    while len(kept) < 10_000: kept.append(bytearray(1_000_000)); time.sleep(0.001)\n"
        "except MemoryError: print('full', len(kept) < 10_000)",
        "darwin",
    )
    assert done.stdout == "full True\n", done.stderr


def test_a_program_that_keeps_its_memory_is_ended() -> None:
    done = elsewhere(
        "import time\nfrom opcheck.worker import platform\n"
        "platform._FREEING = 0.2\nplatform.limit_memory(50_000_000)\n"
        "kept = []\n"
        "while True:\n    try:\n        while True:\n            kept = kept or bytearray(200_000_000)\n"
        "            time.sleep(0.01)\n    except MemoryError: pass",
        "darwin",
    )
    assert done.returncode == platform.OVER_MEMORY
    assert "MiB of memory" in done.stderr


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_a_child_ends_with_its_parent(system: str, tmp_path: Path) -> None:
    file = tmp_path / "number"
    child = (
        "import os, time; from opcheck.worker import platform\n"
        f"platform.die_with_parent(); open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    elsewhere(
        "import os, time; from opcheck.worker.process import Child, python\n"
        f"Child(python('-c', {child!r}), os.environ)\n"
        f"while not (os.path.exists({str(file)!r}) and os.path.getsize({str(file)!r})): time.sleep(0.01)\n"
        "os._exit(1)",
        system,
    )
    assert gone(int(file.read_text()))


def test_killing_a_tree_ends_what_a_process_has_started(tmp_path: Path) -> None:
    file, starts = tmp_path / "number", tmp_path / "starts.py"
    starts.write_text(
        "import subprocess, sys\n"
        "process = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(file)!r}, 'w').write(str(process.pid))\n"
        "process.wait()"
    )
    done = elsewhere(
        "import os, sys, time; from opcheck.worker import platform\n"
        "from opcheck.worker.process import Child\n"
        f"child = Child([sys.executable, {str(starts)!r}], os.environ)\n"
        f"while not (os.path.exists({str(file)!r}) and os.path.getsize({str(file)!r})): time.sleep(0.01)\n"
        "platform.kill(child.process.pid, group=True); child.process.wait()",
        "win32",
    )
    assert not done.returncode, done.stderr
    assert gone(int(file.read_text()))


def test_one_process_has_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.touch()
    tries = (
        f"import os, sys; from opcheck.worker import platform\nprint(platform.lock(os.open({str(file)!r}, os.O_RDWR)))"
    )
    descriptor = os.open(file, os.O_RDWR)
    assert platform.lock(descriptor)
    assert elsewhere(tries, sys.platform).stdout == "False\n"
    os.close(descriptor)
    assert elsewhere(tries, sys.platform).stdout == "True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux confines signals")
def test_a_confined_process_signals_what_it_starts_and_no_other() -> None:
    tries = """
import os, subprocess, sys
from opcheck.worker import platform
platform.confine_signals()
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
child.kill()
child.wait()
try:
    os.kill(os.getppid(), 0)
except PermissionError:
    print("refused")
"""
    printed = elsewhere(tries, "linux").stdout
    if not printed and tuple(map(int, host.release().split(".")[:2])) < (6, 12):
        pytest.skip("this kernel cannot confine signals")
    assert printed == "refused\n"
