"""Source that was made to slow a scan down, to end it, or to hide a finding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from opcheck.common.errors import UsageError
from opcheck.common.python_source import decode, split_lines
from opcheck.common.versions import Target, Version
from opcheck.model.ignores import Ignores
from opcheck.source import source
from opcheck.source.engine import scan
from opcheck.source.scan_records import ScanReport
from tests.call_count import count_calls
from tests.source.reading import TARGET

#: A target that has no complex numbers, so that all rules look.
OLD = Target(torch=Version(2, 2), macos=Version(13))


def scanned(path: Path, target: Target = TARGET) -> ScanReport:
    return scan([str(path)], target)


# Lines

NO_NEWLINE = ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("character", [*NO_NEWLINE, "\r"])
def test_an_ignore_silences_its_own_line_alone(tmp_path: Path, character: str) -> None:
    text = f"a = '''{character}'''  # {character}\nx.cuda()\ny.cuda()  # opcheck: ignore[OC201] on the cluster alone\n"
    (tmp_path / "a.py").write_bytes(text.replace("# \r", "#").encode())
    report = scanned(tmp_path)
    # A lone \r ends a line for Python, too: one of them stands in the text.
    line = 3 if character == "\r" else 2
    ((rule, place),) = [(f.rule, f.locations[0].location) for f in report.findings]
    assert place is not None
    assert (rule, place.line, place.text) == ("OC201", line, "x.cuda()")
    assert report.ignored == 1


@pytest.mark.parametrize("character", NO_NEWLINE)
def test_an_ignore_of_a_notebook_silences_its_own_line(tmp_path: Path, character: str) -> None:
    source = f"a = '{character}'\nx.cuda()\ny.cuda()  # opcheck: ignore[OC201] here\n"
    content = {"cells": [{"cell_type": "code", "source": source}]}
    (tmp_path / "n.ipynb").write_text(json.dumps(content), encoding="utf-8")
    ((place,),) = [finding.locations for finding in scanned(tmp_path).findings]
    assert place.location is not None
    assert (place.location.line, place.location.text) == (2, "x.cuda()")


def test_an_ignore_of_an_audited_file_is_on_the_line_that_python_counts(tmp_path: Path) -> None:
    text = "a = '\x0c\x1c'\nb\nc  # opcheck: ignore[OC103] known\r\nd\re  # opcheck: ignore[OC103] too\n"
    (tmp_path / "a.py").write_bytes(text.encode())
    ignores = Ignores(today=date(2026, 1, 1), root=tmp_path)
    reasons = [ignores.reason("OC103", file="a.py", line=line) for line in range(1, 6)]
    assert reasons == [None, None, "known", None, "too"]


def test_lines_are_those_of_the_syntax_tree() -> None:
    text = "a = 1\r\nb = '\x0c'\rc = '\u2028'\n\nd = 4"
    assert split_lines(text) == ["a = 1", "b = '\x0c'", "c = '\u2028'", "", "d = 4"]
    assert split_lines("") == []
    assert split_lines("a\n") == ["a"]


@pytest.mark.parametrize("encoding", ["undefined", "punycode", "idna", "hex", "zlib", "rot13"])
def test_an_encoding_that_is_none_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode(f"# coding: {encoding}\nx = 1\n".encode())


# Time

#: A module with a buffer in float64: where modules go is read for it alone.
_BUFFER = """
class M(torch.nn.Module):
    def __init__(self):
        self.register_buffer("b", torch.from_numpy(numpy.zeros(3)))
"""
#: The longest name of each shape says what there is many of.
SHAPES: dict[str, Callable[[int], str]] = {
    "statements": lambda n: "x.cuda()\n" * n,
    "statements in one line": lambda n: "x.cuda();" * n,
    "statements under a guard": lambda n: "if a:\n" + "  x.cuda()\n" * n,
    "guards": lambda n: "def f():\n" + "  if not torch.cuda.is_available(): return\n  x.cuda()\n" * n,
    "guards that hold": lambda n: "def f(a):\n" + "  if a.b: return\n  x.cuda()\n" * n,
    "alternatives": lambda n: f"y = {' or '.join(['x.cuda()'] * n)}\n",
    "branches": lambda n: "if a: pass\n" + "elif a: x.cuda()\n" * min(n, 400),
    "functions": lambda n: "".join(f"def _f{i}(): x.cuda()\n_f{i}()\n" for i in range(n)),
    "functions of one name": lambda n: "def _f():\n  x.cuda()\n  _f()\n" * n,
    "unreached uses": lambda n: "def _f(): x.cuda()\nif torch.cuda.is_available(): _f()\n" * n,
    "methods": lambda n: "class A:\n" + "  def f(self): self.a = self.a.to('cuda')\n" * n,
    "names": lambda n: "x = x.to(x)\n" * n,
    "names that are not reached": lambda n: "if torch.cuda.is_available(): x = 'a'\ny.to(x)\n" * n,
    "names of names": lambda n: "".join(f"x{i + 1} = x{i}\ny.to(x{i})\n" for i in range(n)),
    "self-references": lambda n: "x = x or y\nif x: return_ = x\nz.to(x)\n" * n,
    "imports": lambda n: "import triton\n" * n,
    "late imports": lambda n: "x = 1\n" * n + "import triton\nimport apex\n" * n,
    "imports that are tried": lambda n: "try:\n" + "  import triton\n" * n + "except E: pass\n",
    "variables": lambda n: "os.environ['PYTORCH_MPS_FAST_MATH'] = '1'\n" * n,
    "comments": lambda n: "x.cuda()  # opcheck: ignore[OC201] here\n" * n,
    "comments of one statement": lambda n: "f(\n" + "  x.cuda(),  # opcheck: ignore[OC201] here\n" * n + ")\n",
    "unused comments": lambda n: "a = 1\n" * n + "b = 1  # opcheck: ignore[OC201] here\n" * n,
    "codes of a comment": lambda n: f"a  # opcheck: ignore[{'OC201,' * n}] here\n",
    "complex numbers": lambda n: f"y = torch.f([{'1j, ' * n}])\n",
    "conditions of a comprehension": lambda n: f"y = [x for x in y {'if x.cuda() ' * n}]\n",
    "decorators": lambda n: "@a.b\n" * n + "def f():\n" + "  x.cuda()\n" * n,
    "handlers": lambda n: "try:\n" + "  x.cuda()\n" * n + "except A: pass\n" * n,
    "long chains": lambda n: f"x{'.double()' * 50}\n" * (n // 20) + f"a{'.b' * 50}.c()\n" * n,
    "returns": lambda n: "def f(a):\n" + "  if a: return numpy.zeros(a)\n" * n + "torch.tensor(f(1)).to('mps')\n" * n,
    "functions that call each other": lambda n: (
        _BUFFER
        + "".join(f"def f{i}(a):\n" + f"  if a: return f{i + 1}(a)\n" * 8 for i in range(n // 10))
        + "f0(1).to('mps')\n"
    ),
    "modules in each other": lambda n: (
        _BUFFER + "a = torch.nn.Sequential(b, b)\nb = torch.nn.Sequential(a, a)\n" + "a.to('mps')\n" * n
    ),
    "cases": lambda n: "def f(x):\n match x:\n" + "  case 1:\n   x.cuda()\n" * n,
}


def calls(path: Path) -> int:
    """How many calls a scan makes."""
    return count_calls(lambda: scanned(path, OLD))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_as_the_file_does(tmp_path: Path, shape: str) -> None:
    counts = []
    for n in (100, 200, 400):
        path = tmp_path / f"{n}.py"
        path.write_text(f"import numpy, os, torch\n{SHAPES[shape](n)}", encoding="utf-8")
        calls(path)
        counts.append(calls(path))
    assert counts[2] - counts[1] <= 2.2 * (counts[1] - counts[0]), counts


def test_the_work_grows_as_a_project_has_dependencies(tmp_path: Path) -> None:
    counts = []
    for n in (100, 200, 400):
        path = tmp_path / str(n) / "pyproject.toml"
        path.parent.mkdir()
        listed = "".join(f'  "triton>={i}",\n' for i in range(n))
        path.write_text(f"[project]\ndependencies = [\n{listed}]\n", encoding="utf-8")
        calls(path)
        counts.append(calls(path))
    assert counts[2] - counts[1] <= 2.2 * (counts[1] - counts[0]), counts


# Files

DEEP = {
    "parentheses": "(" * 10_000 + ")" * 10_000,
    "terms": " + ".join(["x"] * 50_000),
    "attributes": "x" + ".y" * 50_000,
    "calls": "x" + "()" * 50_000,
    "negations": "not " * 50_000 + "x",
    "brackets": "[" * 150 + "]" * 150,
    "lambdas": "lambda: " * 5_000 + "x",
    "conditions": "a if b else " * 5_000 + "c",
    "powers": "**".join(["x"] * 20_000),
    "texts": "'" + "a" * 1_500_000 + "'",
    "a long list": "[" + "0," * 100_000 + "]",
    "a large dictionary": "{" + "0:0," * 50_000 + "}",
    "a huge number": "torch.ones(2, device=0x" + "f" * 5_000 + ")",
    "a sum with a huge number": "x.to(0x" + "f" * 5_000 + " + 1)",
    "a variable set to a huge number": "os.environ['PYTORCH_MPS_FAST_MATH'] = 0x" + "f" * 5_000,
    "a variable set to such a text": "os.environ['PYTORCH_MPS_FAST_MATH'] = '0x" + "f" * 5_000 + "'",
    "a long device": "x.to('cuda:" + "1" * 1_000_000 + "')",
}


@pytest.mark.parametrize("name", DEEP)
def test_an_extreme_file_keeps_no_other_from_being_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_text(f"import os, torch\ny = {DEEP[name]}\n".replace(
        "y = os", "os"), encoding="utf-8")  # fmt: skip
    (tmp_path / "b.py").write_text("x.cuda()\n", encoding="utf-8")
    report = scanned(tmp_path)
    assert report.findings[-1].rule == "OC201"
    assert {problem.kind for problem in report.problems} <= {"syntax_error", "too_deep"}
    assert len(report.problems) <= 1
    assert max(len(finding.message) for finding in report.findings) < 400


BAD: dict[str, tuple[str, bytes]] = {
    "undefined": ("a.py", b"# coding: undefined\nx = 1\n"),
    "punycode": ("a.py", b"# coding: punycode\n" + b"a-" * 100_000),
    "not a text encoding": ("a.py", b"# coding: zlib\nx = 1\n"),
    "utf-16": ("a.py", "x = 1\n".encode("utf-16")),
    "bytes": ("a.py", b"x = '\xff'\n"),
    "null": ("a.py", b"x = 1\0\n"),
    "empty notebook": ("a.ipynb", b""),
    "list for a notebook": ("a.ipynb", b"[]"),
    "number for a notebook": ("a.ipynb", b"1"),
    "cells of a notebook": ("a.ipynb", b'{"cells": 1}'),
    "a cell": ("a.ipynb", b'{"cells": [1]}'),
    "source of a cell": ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": [1]}]}'),
    "no source of a cell": ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": null}]}'),
    "half a character": ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": "\\ud800"}]}'),
    "a deep notebook": ("a.ipynb", b"[" * 100_000),
    "a number of a notebook": ("a.ipynb", b'{"cells": ' + b"1" * 5_000 + b"}"),
    "no toml": ("pyproject.toml", b"["),
    "bytes of toml": ("pyproject.toml", b"a = '\xff'"),
    "deep toml": ("pyproject.toml", b"a = " + b"[" * 5_000),
    "project": ("pyproject.toml", b"project = 1"),
    "dependencies": ("pyproject.toml", b"project.dependencies = 'triton'"),
    "a dependency": ("pyproject.toml", b"project.dependencies = [1]"),
    "extras": ("pyproject.toml", b"project.optional-dependencies = ['a']"),
    "an extra": ("pyproject.toml", b"project.optional-dependencies.a = 1"),
    "bytes of requirements": ("requirements.txt", b"\xff\n"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_has_one_line_and_the_others_are_read(tmp_path: Path, name: str) -> None:
    file, content = BAD[name]
    (tmp_path / file).write_bytes(content)
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "b.py").write_text("x.cuda()\n", encoding="utf-8")
    report = scanned(tmp_path)
    assert [finding.rule for finding in report.findings] == ["OC201"]
    (problem,) = report.problems
    assert problem.module.startswith((tmp_path / file).as_posix())
    assert problem.kind != "failed"
    assert "\n" not in problem.message


REQUIREMENTS = (
    f"triton=={'9' * 5_000}",
    f"triton; {'(' * 5_000}os_name == 'a'{')' * 5_000}",
    "triton; python_version ~= 'abc'",
    "triton; no_such == 'a'",
    "triton @ file:///\x00",
    "-e .",
    "=1",
)


def test_an_odd_requirement_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("\n".join((*REQUIREMENTS, "apex")) + "\n", encoding="utf-8")
    report = scanned(path)
    assert not report.problems
    places = [finding.locations[0].location for finding in report.findings]
    assert places[-1] is not None
    assert places[-1].line == 1 + len(REQUIREMENTS)


def test_what_is_no_regular_file_is_named(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no named pipes in folders")
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "device.py").symlink_to("/dev/zero")
    (tmp_path / "gone.py").symlink_to("nothing")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "z.py").write_text("x.cuda()\n", encoding="utf-8")
    report = scanned(tmp_path)
    assert [finding.rule for finding in report.findings] == ["OC201"]
    assert {Path(problem.module).name for problem in report.problems} == {"fifo.py", "loop.py", "device.py", "gone.py"}
    assert report.skipped == {"links to directories": 1}


@pytest.mark.parametrize("name", ["loop", "a\0b", "x" * 5_000])
def test_a_path_that_cannot_be_is_a_wrong_usage(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError):
        scanned(tmp_path / name)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "a.py").write_text("x.cuda()\n", encoding="utf-8")
    listing = os.scandir

    def scandir(path: Path) -> object:
        if path.name == "secret":
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", scandir)
    (problem,) = scanned(tmp_path).problems
    assert (problem.kind, problem.message) == ("unreadable", "Permission denied")
    assert problem.module.endswith("/secret")


@pytest.mark.slow
def test_folders_that_nest_deeper_than_the_stack_of_python_are_named(tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1_100):
            Path("d").mkdir()
            os.chdir("d")
        Path("a.py").write_text("x.cuda()\n", encoding="utf-8")
        os.chdir(tmp_path)
        report = scan(["."], TARGET)
    finally:
        os.chdir(here)
        # shutil.rmtree of Python 3.11 recurses, and with it pytest's removal of old temporary folders.
        subprocess.run(["rm", "-rf", "d"], cwd=tmp_path, check=True)  # noqa: S607
    assert report.findings == ()
    (problem,) = report.problems
    assert problem.message == "more than 100 folders deep"


def test_a_failure_of_a_rule_is_that_file_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str, shown: str) -> object:
        if shown.endswith("a.py"):
            raise KeyError(shown)
        return python(text, shown)

    python = source.python
    monkeypatch.setattr(source, "python", fails)
    (tmp_path / "a.py").write_text("x.cuda()\n", encoding="utf-8")
    (tmp_path / "b.py").write_text("x.cuda()\n", encoding="utf-8")
    report = scanned(tmp_path)
    assert len(report.findings) == 1
    (problem,) = report.problems
    assert problem.kind == "failed"
    assert "KeyError" in problem.message
