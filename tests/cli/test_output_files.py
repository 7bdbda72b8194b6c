"""A report that is written to a file is there whole or not at all, whichever verb writes it."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from opcheck import cli
from opcheck.render import render
from tests.command_line import CommandLine
from tests.made import call, make_report

FILES = sorted(Path(cli.__file__).parent.glob("*.py"))
FULL = Path("/dev/full")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.name))
def test_no_verb_writes_a_file_by_itself(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        # opcheck.common.files.write_text is a function: a method of that name is a path's.
        assert not (isinstance(node, ast.Attribute) and node.attr in {"write_text", "write_bytes"})


@pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
@pytest.mark.parametrize(
    "args",
    [
        ("diff", "old.json", "old.json"),
        ("diff", "2.14", "2.15"),
        ("scan", "a.py"),
        ("scan", "a.py", "-f", "sarif"),
        ("audit", "m.py:Net", "-f", "json"),
        ("op", "aten::relu", "--torch", "2.15"),
    ],
    ids=" ".join,
)
def test_a_full_disk_is_three_lines(opcheck: CommandLine, args: tuple[str, ...]) -> None:
    Path("old.json").write_text(render(make_report(call("aten::mm")), "json"), encoding="utf-8")
    Path("a.py").write_text("x.cuda()\n", encoding="utf-8")
    result = opcheck(*args, "-o", str(FULL))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("cannot write the file: No space left on device\n")
    assert len(result.err.splitlines()) == 3


def fill_the_disk(monkeypatch: pytest.MonkeyPatch, below: Path) -> None:
    """Let each file that is opened below a folder refuse what is written to it, as on a full disk."""
    real = os.fdopen

    def open_full(descriptor: int, *args: Any, **others: Any) -> Any:
        if Path(f"/proc/self/fd/{descriptor}").resolve().is_relative_to(below):
            os.close(descriptor)
            return FULL.open("wb")
        return real(descriptor, *args, **others)

    monkeypatch.setattr(os, "fdopen", open_full)


@pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("args", [("audit", "m.py:Net"), ("matrix",), ("scan", "a.py")], ids=" ".join)
def test_a_full_disk_is_found_before_the_work(
    opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, args: tuple[str, ...]
) -> None:
    (tmp_path / "full").mkdir()
    fill_the_disk(monkeypatch, tmp_path / "full")
    result = opcheck(*args, "-o", str(tmp_path / "full" / "report.html"))
    assert (result.code, result.out, opcheck.requests) == (2, "", [])
    assert "No space left on device\n" in result.err
    assert "report.html" in result.err
    assert len(result.err.splitlines()) == 3
    assert not list((tmp_path / "full").iterdir())
