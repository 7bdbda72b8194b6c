"""Files of strangers that have no end, nest too deep or match too slowly: each verb ends soon, and says what it left out."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from tests.command_line import CommandLine

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")

#: Seconds that a case may take; each takes a fraction of one on a quiet machine.
MOST = 20
CUDA = "import torch\nx = torch.zeros(3).cuda()\n"


class TooSlowError(BaseException):
    """A case took too long; no reader that goes on after errors catches it."""


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    if sys.platform == "win32":
        raise NotImplementedError

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(MOST)
    # Native code that looks at no signal is ended with the whole process.
    faulthandler.dump_traceback_later(4 * MOST, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


Make = Callable[[Path], object]


def fifo(path: Path) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def to_itself(path: Path) -> None:
    path.symlink_to(path)


def folder(path: Path) -> None:
    path.mkdir()


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)


def listening(path: Path) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    at = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        # The whole path may be longer than the name of a socket.
        server.bind(f"/proc/self/fd/{at}/{path.name}" if sys.platform == "linux" else str(path))
    os.close(at)


def holding(text: str | bytes) -> Make:
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode())


NO_FILES = {
    "fifo": fifo, "endless": endless, "to itself": to_itself, "folder": folder, "sparse": sparse,
    "socket": listening,
}  # fmt: skip


class Case(NamedTuple):
    """A file to make, and what a verb says of it."""

    name: str
    make: Make
    arguments: tuple[str, ...]
    code: int
    #: in the output or in the error
    said: str = ""


def scanned(name: str, text: str | bytes, code: int, said: str = "") -> Case:
    return Case(name, holding(text), ("scan", "."), code, said)


def ignoring(pattern: str) -> Case:
    return Case(".gitignore", holding(pattern), ("scan", "."), 1, "OC201")


CASES = {
    # The context of a scan is left out, with a note; the source beside it is read.
    **{
        f".gitignore, {kind}": Case(".gitignore", make, ("scan", "."), 1, ".gitignore: ")
        for kind, make in NO_FILES.items()
    },
    **{
        f"{name}, {kind}": Case(name, make, ("scan", "."), 1, f"{name}: ")
        for name in ("b.py", "b.ipynb", "requirements.txt")
        for kind, make in NO_FILES.items()
        if kind in {"fifo", "endless", "sparse"}
    },
    # Files that the user or the project names are refused.
    **{
        f"{' '.join(arguments[:2])}, {kind}": Case("file.yaml", make, arguments, 2, "file.yaml")
        for arguments in (
            ("scan", "--baseline", "file.yaml", "."),
            ("gate", "m.py:M", "--baseline", "file.yaml"),
            ("diff", "file.yaml", "file.yaml"),
            ("verify", "file.yaml", "file.yaml"),
            ("repro", "file.yaml", "1"),
            ("doctor", "--from", "file.yaml"),
            ("observe", "file.yaml"),
            ("sweep", "file.yaml"),
        )
        for kind, make in [*NO_FILES.items()][:2]
    },
    **{
        f"{' '.join(arguments)}, {kind}": Case(name, make, arguments, 2, name)
        for name, arguments in (
            ("file.safetensors", ("upgrade", "file.safetensors")),
            ("file.ipynb", ("run", "file.ipynb")),
            ("file.py", ("run", "file.py")),
            ("file.json", ("issue", "file.json", "1")),
            ("file.yaml", ("lists", "merge", "file.yaml")),
            ("file.whl", ("lists", "build", "file.whl")),
            ("file.log", ("verify", "file.log", "file.log")),
            ("file.log", ("observe", "file.log")),
            ("opcheck.toml", ("init",)),
        )
        for kind, make in NO_FILES.items()
        # A large program or wheel is refused by what reads it, in words of its own.
        if kind != "sparse" or name.endswith((".ipynb", ".json", ".log", ".yaml", ".toml"))
    },
    # What cannot be written
    **{
        f"{' '.join(arguments[:2])} to {kind}": Case(name, make, arguments, 2, name)
        for name, arguments in (
            ("file.md", ("op", "aten::mm", "-o", "file.md")),
            ("file.md", ("history", "mm", "-o", "file.md")),
            (".github", ("init", "--model", "m.py:Net", "--workflow")),
            ("out", ("site", "build", "-o", "out/site")),
            ("out", ("sweep", "report", "out")),
        )
        for kind, make in NO_FILES.items()
        if kind in {"socket", "to itself"}
    },
    # Lists and logs
    "a list of one name": Case("f.yaml", holding("- a\n" * 100_000), ("sweep", "f.yaml"), 2, "'a'"),
    "a list of numbers": Case("f.yaml", holding(f"[{'1,' * 50_000}1]"), ("sweep", "f.yaml"), 2),
    "a list of anchors": Case(
        "f.yaml", holding("".join(f"- &a{n} b\n" for n in range(30_000))), ("sweep", "f.yaml"), 2, "'b'"
    ),
    "a proposal of numbers": Case(
        "f.yaml", holding(f"[{'1,' * 30_000}1]"), ("lists", "merge", "f.yaml"), 2, "a mapping"
    ),
    "a log of one line": Case("f.log", holding("x" * 3_000_000), ("observe", "f.log"), 3),
    "a log of null characters": Case("f.log", holding(bytes(3_000_000)), ("observe", "f.log"), 3),
    "a notebook of bytes": Case("f.ipynb", holding(bytes(9)), ("run", "f.ipynb"), 2, "not a notebook"),
    "a notebook without cells": Case("f.ipynb", holding("[]"), ("run", "f.ipynb"), 2, "not a notebook"),
    **{
        f"{name}, {kind}": Case(name, make, ("scan", "."), 2, name)
        for name in ("opcheck.toml", "pyproject.toml")
        for kind, make in [*NO_FILES.items()][:2]
    },
    # Patterns
    "stars": ignoring("*a" * 25 + "\n"),
    "thousands of stars": ignoring("*a" * 5000 + "\n"),
    "folders of stars": ignoring("**/" * 500 + "b\n"),
    "folders of stars and letters": ignoring("**/a*a*/" * 200 + "b\n"),
    "stars alone": ignoring("*" * 100_000 + "b\n"),
    "stars and one": ignoring("?*" * 1000 + "\n"),
    "brackets": ignoring("[" * 100_000 + "\n"),
    "ranges": ignoring("[a-" * 20_000 + "]\n"),
    "classes": ignoring("[!b]*" * 2000 + "\n"),
    "backslashes": ignoring("\\" * 100_001 + "\n"),
    "negated": ignoring("!" + "*a" * 25 + "\n" + "!" * 1000 + "\n"),
    "spaces": ignoring("a" + " " * 100_000 + "b" + " " * 100_000 + "\n"),
    "lines": ignoring("b\n!b\n" * 2000),
    "a line of a mebibyte": ignoring("b" * ((1 << 20) - 1)),
    "bytes": Case(".gitignore", holding(b"\xff\0\xfe[\xff-\xfe]*\n"), ("scan", "."), 1, "OC201"),
    # Requirements
    "dashes": scanned("requirements.txt", "a" + "-" * 300_000, 1),
    "lines of dashes": scanned("requirements.txt", "-\n" * 300_000, 1),
    "a marker of brackets": scanned("requirements.txt", "nvidia-nccl-cu12;" + "(" * 5000, 1),
    "quotes": scanned("b/pyproject.toml", '#"' * 400_000, 1),
    "a table of tables": scanned("b/pyproject.toml", "a=" + "[" * 100_000, 1, "pyproject.toml"),
    "dotted keys": scanned("b/pyproject.toml", "a." * 20_000 + "b=1", 1, "pyproject.toml"),
    # Source
    "open brackets": scanned("b.py", "(" * 100_000, 1, "b.py"),
    "signs": scanned("b.py", "x = " + "-" * 100_000 + "1", 1, "b.py"),
    "attributes": scanned("b.py", "x" + ".a" * 200_000, 1, "b.py"),
    "texts": scanned("b.py", "x = " + "'a' " * 300_000, 1),
    "a number": scanned("b.py", "x = " + "9" * 100_000, 1, "b.py"),
    "lambdas": scanned("b.py", "x = " + "lambda: " * 5000 + "1", 1, "b.py"),
    "blocks": scanned("b.py", "".join(" " * n + "if a:\n" for n in range(200)), 1, "b.py"),
    "a chain of classes": scanned(
        "b.py", CUDA + "class A0: pass\n" + "".join(f"class A{n + 1}(A{n}): pass\n" for n in range(5000)), 1
    ),
    "a chain of functions": scanned(
        "b.py", CUDA + "".join(f"def f{n}(device='cuda'): f{n + 1}(device)\n" for n in range(3000)), 1
    ),
    "ignoring comments": scanned(
        "b.py", "import torch\n" + "x.cuda()  # opcheck: ignore[OC201] w\n" * 10_000, 1
    ),
    "ignoring comments in one call": scanned(
        "b.py", "f(\n" + "  x.cuda(),  # opcheck: ignore[OC201] w\n" * 10_000 + ")\n", 1
    ),
    "codes": scanned("b.py", f"import torch  # opcheck: ignore[{'OC201,' * 100_000}] w\n", 1),
    "a comment of brackets": scanned("b.py", "import torch" + "# opcheck: ignore[" * 50_000, 1),
    "an encoding": scanned("b.py", "# coding: punycode\n" + "a" * 500_000, 1, "b.py"),
    "a notebook that nests": scanned("b.ipynb", '{"cells":' + "[" * 100_000, 1, "b.ipynb"),
    "a notebook of empty cells": scanned(
        "b.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": ""}] * 100_000}), 1
    ),
    "a notebook of magics": scanned(
        "b.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": "a," * 20_000 + " = "}]}), 1
    ),
    "a notebook of one long number": scanned("b.ipynb", "9" * 1_000_000, 1, "b.ipynb"),
    # Arguments
    **{
        f"{verb} {pattern[:4]}": Case("b.py", holding(""), (verb, pattern), 2)
        for verb in ("op", "history", "matrix", "explain")
        for pattern in ("[" * 5000, "*" * 200 + "b", "aten::" + "a*" * 200, "a" * 100_000, "(" * 5000)
    },
    **{
        f"--exclude {pattern[:4]}": Case("b.py", holding(""), ("scan", ".", "--exclude", pattern), 1)
        for pattern in ("*a" * 200 + "b", "[" * 5000, "*" * 5000 + "b", "[!a]*" * 500)
    },
    "a path of 4,096 characters": Case("b.py", holding(""), ("scan", "a/" * 2048), 2, "no such file"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_hostile_file_takes_bounded_time(case: Case, opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / ("a" * 30 + "b.py")).write_text(CUDA, encoding="utf-8")
    path = tmp_path / case.name
    path.parent.mkdir(exist_ok=True)
    case.make(path)
    result = opcheck(*case.arguments)
    assert result.code == case.code, result.err + result.out
    assert case.said in result.err + result.out
    assert "Traceback" not in result.err
    if case.code == 2:
        assert result.out == ""
        assert len(result.err.splitlines()) <= 3
