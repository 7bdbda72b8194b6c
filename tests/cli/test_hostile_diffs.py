"""``scan --diff`` commands no terminal and no CI service, and what it shows applies as a patch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.common.sanitize import is_risky, toml_text
from tests.command_line import CommandLine
from tests.test_hostile_text import HOSTILE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CHOICE = "d = 'cuda' if torch.cuda.is_available() else 'cpu'"

#: Lines above the one that is fixed, in a text of the program.
SHOWN = (
    "plain",
    "tab\there",
    "form\x0cfeed",
    "\u2764\ufe0f \U0001f468\u200d\U0001f469",
    "caf\u00e9 \u4e2d\u6587",
    "error::not at the start",
    "# [section]",
    "%0A::error::x",
)
HIDDEN = (
    "::error file=a.py::x",
    "::stop-commands::token",
    "  ::add-mask::x",
    "\x0c::error::x",
    "##[error]x",
    "a ##vso[task.setvariable variable=a]b",
    "##teamcity[message text='a']",
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31m",
    "back\x08space",
    "\x7f",
    "a\rb",
    "\u202eright to left",
    "\u2066isolate",
    "\u200bzero",
    "\u2028",
    "\U000e0041",
)
NAMES = (
    "a b.py",
    "caf\u00e9.py",
    "\x1b[31m.py",
    "a\nb.py",
    "\n::error::x.py",
    "::error::x.py",
    "##[error].py",
    "\u202eyp.py",
    '"q".py',
    "b\\s.py",
    "$(touch x).py",
    "`touch x`.py",
    "tab\t.py",
    "-rf.py",
)


def program(line: str, ending: str = "\n") -> bytes:
    lines = ["import torch", "s = '''", line, "'''", CHOICE, ""]
    return ending.join(lines).encode("utf-8", "surrogateescape")


def applied(patch: str, path: Path, before: bytes, tool: list[str]) -> bytes:
    path.write_bytes(before)
    subprocess.run(tool, input=patch.encode(), check=True, capture_output=True)
    return path.read_bytes()


TOOLS = [
    tool for tool in (["git", "apply", "-p0", "-"], ["patch", "-p0", "--binary", "--quiet"]) if shutil.which(tool[0])
]


def check_applies(opcheck: CommandLine, path: Path, before: bytes) -> None:
    path.write_bytes(before)
    result = opcheck("scan", ".", "--diff")
    assert (result.code, path.read_bytes()) == (1, before)
    plain = result.out.replace("\x0c", "").replace("\r\n", "\n").replace("\u200d", "")
    assert not is_risky(plain.replace("\ufe0f", "").replace("\ufeff", ""))
    patches = [applied(result.out, path, before, tool) for tool in TOOLS]
    path.write_bytes(before)
    opcheck("scan", ".", "--fix")
    after = path.read_bytes()
    assert b"mps" in after
    assert patches == [after] * len(TOOLS)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("line", SHOWN, ids=ascii)
def test_the_diff_of_a_usual_file_applies(opcheck: CommandLine, line: str, ending: str) -> None:
    check_applies(opcheck, Path("a.py"), program(line, ending))


def test_the_diff_of_a_file_with_a_byte_order_mark_applies(opcheck: CommandLine) -> None:
    check_applies(opcheck, Path("a.py"), b"\xef\xbb\xbf" + program("x"))


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_diff_quotes_the_name_of_a_file(opcheck: CommandLine, name: str) -> None:
    check_applies(opcheck, Path(name), program("x"))


@pytest.mark.parametrize("line", HIDDEN, ids=ascii)
def test_a_change_beside_a_command_is_named_and_not_shown(opcheck: CommandLine, line: str) -> None:
    Path("a.py").write_bytes(program(line))
    Path("b.py").write_bytes(program("plain"))
    result = opcheck("scan", ".", "--diff")
    assert result.code == 1
    assert "a.py: the change is not shown" in result.err
    assert "a.py" not in result.out
    assert result.out.startswith("--- b.py\n")
    assert not is_risky(result.out + result.err)
    assert "2 findings would be fixed in 2 files" in result.err


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_text_in_toml_is_read_back_and_commands_nothing(text: str) -> None:
    written = f"a = {toml_text(text)}\n"
    assert not is_risky(written)
    assert tomllib.loads(written)["a"].encode() == text.encode("utf-8", "backslashreplace")
