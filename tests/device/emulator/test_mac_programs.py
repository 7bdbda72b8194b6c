"""Short programs as users write them, each held against what a Mac makes of it.

The first lines of each file under ``programs/`` are comments ``# key: value``:

* ``source``: the file of PyTorch (with its release), or the public report, that the Mac's behaviour is known from.
* ``torch``, ``macos``: the targets, one run for each torch; 2.13 and 15 where they are left out.
* ``expect``: ``exit 0``, or ``exit 1, raises TypeError "text" at line 12`` (a part of the text).
* ``fallback: 1`` runs it with PYTORCH_ENABLE_MPS_FALLBACK=1; ``needs`` names libraries of the extra ``programs``.
* ``slow: 1`` leaves it to ``make test-all``; ``warns`` is a part of what the program writes to stderr.

Assertions inside of a program say what it sees on a Mac.  No program was run on one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from opcheck.device.emulator.emulation_request import RunOutcome, RunRequest
from opcheck.judge.policy import exit_code
from opcheck.worker.protocol import WorkFailure

PROGRAMS = Path(__file__).parent / "programs"
_HEAD = re.compile(r"# (\w+): (.*)")
_EXPECT = re.compile(r'exit (?P<code>\d)(?:, raises (?P<type>\w+) "(?P<text>.*)" at line (?P<line>\d+))?')


class Head(NamedTuple):
    """What the first lines of a program say."""

    source: str
    expect: str
    torch: str = "2.13"
    macos: str = "15"
    fallback: str = ""
    needs: str = ""
    slow: str = ""
    warns: str = ""


def head_of(program: Path) -> Head:
    """Read the comments at the top.

    Raises:
        TypeError: a key is unknown, or ``source`` or ``expect`` is missing.
    """
    entries = {}
    for line in program.read_text(encoding="utf-8").splitlines():
        entry = _HEAD.fullmatch(line)
        if entry is None:
            break
        entries[entry[1]] = entry[2]
    return Head(**entries)


def cases() -> Iterator[object]:
    """Each program on each of its targets."""
    for program in sorted(PROGRAMS.glob("*.py")):
        head = head_of(program)
        marks = [pytest.mark.programs] if head.needs else []
        marks += [pytest.mark.slow] if head.slow else []
        for torch in head.torch.split():
            yield pytest.param(program, head, torch, id=f"{program.stem}-{torch}", marks=marks)


class Server:
    """A process with torch imported, which forks one more for each program."""

    def __init__(self, settings: Path) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTORCH_ENABLE_MPS_FALLBACK": "0",
            # Libraries neither ask the network nor write into the home directory.
            "HF_HUB_OFFLINE": "1",
            "YOLO_OFFLINE": "true",
            "YOLO_CONFIG_DIR": str(settings),
            "MPLCONFIGDIR": str(settings),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("program_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, request: RunRequest, directory: Path) -> tuple[RunOutcome | WorkFailure, str]:
        """The outcome of the program, and what it wrote to both of its streams."""
        asked = directory / "request.json"
        asked.write_bytes(msgspec.json.encode(request))
        code, text = self.work(asked, directory)
        answer = Path(request.answer)
        assert answer.exists(), f"exit {code}\n{text}"
        return msgspec.json.decode(answer.read_bytes(), type=RunOutcome | WorkFailure), text

    def work(self, asked: Path, directory: Path) -> tuple[int, str]:
        """The exit code of the program of a request, and what it wrote to both of its streams."""
        output = directory / "output"
        job = {"request": str(asked), "cwd": str(directory), "output": str(output)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        return code, output.read_text(encoding="utf-8")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("settings"))
    yield made
    made.close()


@pytest.mark.parametrize(("program", "head", "torch"), list(cases()))
def test_a_program_ends_as_on_a_mac(server: Server, tmp_path: Path, program: Path, head: Head, torch: str) -> None:
    for library in head.needs.split():
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed: pip install 'opcheck[programs]'")
    expected = _EXPECT.fullmatch(head.expect)
    assert expected, head.expect
    request = RunRequest(
        program=str(program),
        torch=torch,
        macos=f"{head.macos}.0",
        cpu_fallback=bool(head.fallback),
        answer=str(tmp_path / "answer.json"),
    )
    outcome, output = server.run(request, tmp_path)
    assert isinstance(outcome, RunOutcome), outcome
    report = outcome.report
    code = exit_code(report, fail_on="unsupported", strict=False)
    assert (code, outcome.exit_code != 0) == (int(expected["code"]), expected["type"] is not None), output
    assert head.warns in output
    if expected["type"] is None:
        return
    last = next(line for line in reversed(output.splitlines()) if re.match(r"\w+: ", line))
    assert last.startswith(f"{expected['type']}: "), output
    assert expected["text"] in output[output.rindex(last) :]
    lines = re.findall(rf'File "{re.escape(str(program))}", line (\d+)', output)
    assert lines[-1] == expected["line"], output


def test_there_are_programs_of_several_releases_and_systems() -> None:
    heads = [head_of(program) for program in PROGRAMS.glob("*.py")]
    assert {"1.13", "2.3", "2.9", "2.13", "2.15"} <= {t for h in heads for t in h.torch.split()}
    assert {"13", "14", "15", "26"} <= {head.macos for head in heads}
