"""A report that is written to a file is there whole or not at all, whichever verb writes it."""

from __future__ import annotations

import ast
from pathlib import Path

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
