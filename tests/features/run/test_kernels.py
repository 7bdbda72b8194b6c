"""``opcheck run --kernels``: the numbers of a program by the release's own kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llvmlite")

PROGRAM = """import sys, torch
x = torch.linspace(0.0, 6.0, 25, device='mps')
tail = torch.erfc(x)
product = x.view(5, 5) @ x.view(5, 5)
print(sys.argv[1:], float(tail[-1]))
"""


def run(folder: Path, *flags: str, **variables: str) -> tuple[int, dict[str, Any], str]:
    (folder / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "-m", "opcheck", "run", *flags, "-o", "r.json", "program.py", "--kernels"],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **variables},
    )  # fmt: skip
    return ended.returncode, json.loads((folder / "r.json").read_text()), ended.stdout


@pytest.mark.wheel
def test_a_line_with_wrong_numbers_fails_and_the_program_goes_on_with_the_cpus(tmp_path: Path) -> None:
    code, report, printed = run(tmp_path, "--kernels", "--torch", "2.13")
    assert code == 1
    assert printed.startswith("['--kernels'] 2.15197")
    (numbers,) = report["numbers"]
    assert (numbers["torch"], numbers["mode"]) == ("2.13.0", "shadow")
    (line,) = numbers["wrong"]
    assert line["op"] == "aten::erfc"
    assert line["kernel"] == "erfc_dense_scalar_float_float"
    assert line["location"]["line"] == "program.py:3"
    assert line["smallest"]["result"] == "0"
    assert line["statements"] == ["erfc-tail"]
    assert line["mended"] == "2.14"
    assert numbers["calls"]["checked"] == 1
    assert any(each["op"] == "aten::mm" for each in numbers["unchecked"])
    assert any(finding["rule"] == "OC151" for finding in report["findings"])
    assert any(each["op"] == "aten::erfc" for each in report["wrong"])


@pytest.mark.wheel
def test_with_replace_the_program_gets_the_kernels_results(tmp_path: Path) -> None:
    _, report, printed = run(tmp_path, "--kernels=replace", "--torch", "2.13")
    assert report["numbers"][0]["mode"] == "replace"
    assert printed.endswith(" 0.0\n")


@pytest.mark.wheel
def test_the_next_release_is_silent_and_never_ignores_the_findings(tmp_path: Path) -> None:
    code, report, _ = run(tmp_path, "--kernels", "--torch", "2.14")
    assert code == 0
    assert not report["numbers"][0]["wrong"]
    code, report, _ = run(tmp_path, "--kernels", "--torch", "2.13", "--fail-on", "never")
    assert code == 0
    assert report["numbers"][0]["wrong"]


def test_without_llvmlite_the_calls_are_counted_and_the_reason_named(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    (blocked / "llvmlite").mkdir(parents=True)
    (blocked / "llvmlite" / "__init__.py").write_text("raise ModuleNotFoundError('llvmlite')\n")
    path = f"{blocked}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    code, report, _ = run(tmp_path, "--kernels", "--torch", "2.13", PYTHONPATH=path)
    assert code == 0
    (numbers,) = report["numbers"]
    assert numbers["calls"]["checked"] == 0
    (unchecked,) = (each for each in numbers["unchecked"] if each["op"] == "aten::erfc")
    assert "llvmlite, which is not installed" in unchecked["reason"]


@pytest.mark.wheel
def test_without_a_compiler_kernels_whose_threads_wait_are_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "rows.py").write_text(
        "import torch\nx = torch.randn(4, 9, device='mps')\ny = torch.softmax(x.exp(), -1)\n"
    )
    program = """
import opcheck.kernels.fibers as fibers
from opcheck.common.errors import UsageError
def missing(folder):
    raise UsageError("the kernels cannot be run: no C++ compiler is found", context="")
fibers.library = missing
import opcheck, torch
with opcheck.emulate(torch="2.15", kernels="shadow") as run:
    exec(open("rows.py").read())
numbers = run.numbers
print(sorted((each.op, each.reason) for each in numbers.unchecked))
print(numbers.calls.checked)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "('aten::_softmax', 'the kernels cannot be run: no C++ compiler is found')" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "1"


def test_no_run_without_the_flag_has_numbers(tmp_path: Path) -> None:
    _, report, _ = run(tmp_path, "--torch", "2.13")
    assert report["numbers"] == []


def test_another_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "-m", "opcheck", "run", "--kernels=fast", "program.py"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "'fast' is not one of 'shadow', 'replace'" in ended.stderr
