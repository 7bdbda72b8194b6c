"""A disk that is full and a reader that stops: three lines, or nothing at all, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no full device")
@pytest.mark.parametrize("args", [["--help"], ["op", "aten::mm"]])
def test_a_full_disk_is_said_in_three_lines(args: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "opcheck", *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    first, _, hint = done.stderr.splitlines()
    assert done.returncode == 2
    assert first.endswith(": No space left on device")
    assert hint.startswith("  help: ")


def test_a_reader_that_stops_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", "--help"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
