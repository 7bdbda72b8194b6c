"""One run of a verb in this process, and the oracle that every run is held against.

The oracle is the table of exit codes and what a caller may rely on beside it: an answer on stdout that parses in the
format that was asked for, an error of three lines on stderr, files where they were asked for and nowhere else.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import pytest
import yaml

from opcheck.cli import invoke
from opcheck.common.errors import CaptureError

#: Seconds after which a run hangs; a run takes milliseconds, so that a loaded machine does not reach it.
_PATIENCE = 120
#: Characters that command a terminal; a line of stderr may hold none of them.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BUG = ("Traceback (most recent call last)", "this is a bug in opcheck")
_FORMATS = {"json", "yaml", "jsonl", "sarif", "gitlab", "junit", "csv"}


class HangError(BaseException):
    """A run did not end; no handler of the code under test catches it."""


class Run(NamedTuple):
    """What one run of the command line did."""

    code: int
    out: str
    err: str
    #: the files of the working directory afterwards that were not there before
    made: frozenset[str]


class Trial:
    """Runs the command line in directories of its own, and judges each run."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self._home = root / "home"
        self._temporary = root / "tmp"

    def __call__(self, args: Sequence[str], files: dict[str, bytes], *, stdin: bytes = b"") -> Run:
        """Run it among these files, and hold what it did against the oracle."""
        done = self._done(args, files, stdin)
        _judge(args, done, allowed=_outputs(args))
        assert self._left() == [], f"temporary files are left: {self._left()}"
        return done

    def _done(self, args: Sequence[str], files: dict[str, bytes], stdin: bytes) -> Run:
        for folder in (self.work, self._home, self._temporary):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for name, content in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        before = self._files()
        with _streams(stdin) as (out, err), _surroundings(self._home, self._temporary, self.work), _ended_in_time():
            code = invoke(list(args))
        return Run(code, _written(out), _written(err), self._files() - before)

    def _files(self) -> frozenset[str]:
        return frozenset(str(path.relative_to(self.work)) for path in self.work.rglob("*") if path.is_file())

    def _left(self) -> list[str]:
        return [str(path) for path in self._temporary.rglob("*")]


def _judge(args: Sequence[str], done: Run, *, allowed: frozenset[str]) -> None:
    about = f"opcheck {' '.join(map(ascii, args))}\n{done.err[-2000:]}"
    assert done.code in {0, 1, 2, 3}, about
    for text in _BUG:
        assert text not in done.err, about
    assert not _COMMANDS.search(done.err), f"stderr commands the terminal: {about!a}"
    assert done.made <= allowed, f"files nobody asked for: {sorted(done.made - allowed)}\n{about}"
    if done.code == 2:
        _judge_error(done, about)
    elif done.out.strip():
        assert _parses(done.out, _format(args)), f"stdout is no {_format(args)}: {done.out[:300]}"


def _judge_error(done: Run, about: str) -> None:
    assert done.out == "", f"an error leaves stdout alone: {done.out[:300]!r}\n{about}"
    if done.err.startswith("Usage: opcheck"):  # no verb at all: the help
        return
    lines = done.err.splitlines()
    assert len(lines) == 3, f"an error has three lines: {about}"
    assert lines[1].startswith("  in: "), about
    assert lines[2].startswith("  help: "), about


def _format(args: Sequence[str]) -> str:
    """The format that stdout is asked for; empty: a text."""
    asked = [value for flag, value in pairwise(args) if flag in {"-f", "--format"}]
    name = asked[-1] if asked else ""
    return name if name in _FORMATS and not _outputs(args) else ""


def _outputs(args: Sequence[str]) -> frozenset[str]:
    """The files that the arguments ask for."""
    flags = {"-o", "--output", "--propose", "--save-graph", "--baseline"}
    return frozenset(
        os.path.normpath(value) for flag, value in pairwise(args) if flag in flags and value not in {"", "-"}
    )


def _parses(text: str, name: str) -> bool:
    if name in {"json", "sarif", "gitlab"}:
        json.loads(text, parse_constant=_refuse)
    elif name == "jsonl":
        for line in text.splitlines():
            json.loads(line, parse_constant=_refuse)
    elif name == "yaml":
        yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe
    elif name == "junit":
        ET.fromstring(text)  # noqa: S314 - our own output
    elif name == "csv":
        rows = list(csv.reader(io.StringIO(text, newline="")))
        return len({len(row) for row in rows}) == 1
    return True


def _refuse(word: str) -> None:
    raise AssertionError(word)


def _written(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8")


@contextlib.contextmanager
def _streams(stdin: bytes) -> Iterator[tuple[io.TextIOWrapper, io.TextIOWrapper]]:
    # stderr is written as Python itself opens it: what cannot be encoded is escaped.
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield out, err
    finally:
        sys.stdin = before


@contextlib.contextmanager
def _surroundings(home: Path, temporary: Path, work: Path) -> Iterator[None]:
    """A working directory, a home and a temporary folder of its own; warnings are an error of ours."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPCHECK_", "GITHUB_", "XDG_", "PYTORCH_"))
    }
    environment |= {"HOME": str(home), "TMPDIR": str(temporary)}
    before, directory = dict(os.environ), Path.cwd()
    kept = tempfile.tempdir
    try:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(work)
        tempfile.tempdir = str(temporary)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
        results = [str(each.message) for each in warned if each.category is not ResourceWarning]
        assert not results, f"Python warns on stderr: {results}"
    finally:
        tempfile.tempdir = kept
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _ended_in_time() -> Iterator[None]:
    if sys.platform == "win32":
        pytest.skip("Windows has no timers that raise")

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no verb start a process: each would import torch.  What the child would be asked is still written."""

    def refuse(command: Sequence[str], *_args: Any, **_options: Any) -> None:
        if command[0] == sys.executable:
            raise CaptureError("no process is started here", context="a test", hint="none")
        raise FileNotFoundError(2, "No such file or directory", command[0])

    replaced: Callable[..., None] = refuse
    monkeypatch.setattr(subprocess, "Popen", replaced)
