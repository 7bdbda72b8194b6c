"""``opcheck run`` on programs that people have, as they are and with bugs put in."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import opcheck
from opcheck import cli

SCRIPTS = Path(__file__).parent / "scripts"
_NUMBERS = re.compile(r"(?:[Ll]oss|norm|accuracy|Accuracy)\W+[\d./e-]+")


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    report: dict[str, object]


def run(tmp_path: Path, *arguments: str, flags: tuple[str, ...] = (), report: bool = True) -> Ended:
    """``opcheck run`` in a process of its own; the report as JSON."""
    file = tmp_path / "report.json"
    flags = (*flags, "-o", str(file)) if report else flags
    command = [sys.executable, "-m", "opcheck", "run", "--torch=2.13", "--macos=15"]
    ended = subprocess.run(
        [*command, *flags, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    made = json.loads(file.read_text()) if file.exists() else {}
    return Ended(ended.returncode, ended.stdout, ended.stderr, made)


def printed(script: str, *arguments: str) -> str:
    """What a script prints, run in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, arguments_of(script, *arguments):
        runpy.run_path(str(SCRIPTS / script), run_name="__main__")
    return out.getvalue()


@contextlib.contextmanager
def arguments_of(*words: str) -> Iterator[None]:
    before, sys.argv = sys.argv, [*words]
    try:
        yield
    finally:
        sys.argv = before


def edited(tmp_path: Path, script: str, old: str, new: str) -> tuple[Path, int]:
    """A copy of the script with one line replaced, and the number of that line."""
    text = (SCRIPTS / script).read_text(encoding="utf-8")
    assert text.count(old) == 1
    copy = tmp_path / script
    copy.write_text(text.replace(old, new), encoding="utf-8")
    return copy, text[: text.index(old)].count("\n") + 1


@pytest.mark.usefixtures("one_stream")
def test_digits_have_the_cpus_losses() -> None:
    threads = torch.get_num_threads()
    on_cpu = printed("digits.py", "--epochs=1", "--no-mps")
    with opcheck.emulate(torch="2.13", macos="15") as mac:
        on_mps = printed("digits.py", "--epochs=1")
    assert on_mps == on_cpu
    assert "Accuracy: " in on_mps
    assert torch.get_num_threads() == threads
    assert mac.report.headline == "runs natively"
    modules = {place.module for group in mac.report.groups for place in group.locations}
    assert {"conv1", "fc2"} <= modules
    assert {phase for group in mac.report.groups for phase in group.phases} == {"forward", "backward", "optimizer"}


@pytest.mark.usefixtures("one_stream")
@pytest.mark.parametrize("checkpointing", [(), ("--checkpointing",)])
def test_a_gpt_has_the_cpus_losses(checkpointing: tuple[str, ...]) -> None:
    # In training a Mac computes attention by its formula, and the CPU by a kernel of its own unless told otherwise.
    with sdpa_kernel(SDPBackend.MATH):
        on_cpu = printed("gpt.py", "--device=cpu", *checkpointing)
    with opcheck.emulate(torch="2.13", macos="15"):
        on_mps = printed("gpt.py", *checkpointing)
    assert on_mps == on_cpu
    assert on_mps.count("loss") == 4


def test_a_gpt_trains_under_autocast() -> None:
    # The lists of what is cast differ between the CPU and MPS, so the losses are only near.
    with opcheck.emulate(torch="2.13", macos="15"):
        plain = printed("gpt.py", "--steps=2")
        cast = printed("gpt.py", "--steps=2", "--dtype=float16", "--checkpointing")
    losses = [[float(x) for x in re.findall(r"loss (\S+),", text)] for text in (plain, cast)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


@pytest.mark.slow
def test_a_trainer_has_the_cpus_losses(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    ended = run(tmp_path, str(SCRIPTS / "finetune.py"))
    assert ended.code == 0, ended.err
    assert "device mps" in ended.out
    prepare = "from opcheck.capture.child.extensions import prepare_torchvision; prepare_torchvision();"
    reference = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, runpy; {prepare} sys.argv = [sys.argv[1], '--cpu'];"
            "runpy.run_path(sys.argv[0], run_name='__main__')",
            str(SCRIPTS / "finetune.py"),
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    numbers = [
        [line for line in text.splitlines() if line.startswith("{") and "runtime" not in line]
        for text in (ended.out, reference.stdout)
    ]
    assert numbers[0] == numbers[1]
    assert len(numbers[0]) > 8


BUGS = {
    "float64": (
        "        data, target = data.to(device), target.to(device)\n        optimizer",
        "        data, target = data.to(device).double(), target.to(device)\n        optimizer",
        "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support "
        "float64. Please use float32 instead.",
    ),
    "unsupported operator": (
        "        x = F.relu(self.conv1(x))",
        "        x = torch.special.log_ndtr(self.conv1(x))",
        "NotImplementedError: The operator 'aten::special_log_ndtr.out' is not currently implemented "
        "for the MPS device.",
    ),
    "mixed devices": (
        "        data, target = data.to(device), target.to(device)\n        optimizer",
        "        target = target.to(device)\n        optimizer",
        "RuntimeError: Input type (torch.FloatTensor) and weight type (MPSFloatType) should be the same",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_raises_the_macs_error_at_its_line(tmp_path: Path, bug: str) -> None:
    old, new, message = BUGS[bug]
    script, line = edited(tmp_path, "digits.py", old, new)
    kind, _, text = message.partition(": ")
    with pytest.raises(Exception, match=re.escape(text)) as caught, opcheck.emulate(torch="2.13", macos="15") as mac:
        printed(str(script), "--epochs=1")
    assert caught.type.__name__ == kind
    lines = [entry.lineno for entry in traceback.extract_tb(caught.tb) if "digits" in entry.filename]
    # The mixed devices meet in the first convolution of the model.
    assert (lines[-1] == line) is (bug != "mixed devices")
    assert mac.report.headline == "fails"


def test_the_traceback_and_the_exit_code_of_a_bug(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import torch\n"
        "def loss(x):\n"
        "    return torch.nn.functional.mse_loss(x, torch.ones(2))\n"
        "loss(torch.ones(2, device='mps'))\n"
    )
    ended = run(tmp_path, "program.py")
    assert ended.code == 1
    trace = ended.err[ended.err.index("Traceback") : ended.err.index("RuntimeError")]
    files = re.findall(r'File "([^"]+)", line (\d+)', trace)
    assert [(Path(file).name, int(line)) for file, line in files[:2]] == [("program.py", 4), ("program.py", 3)]
    assert {Path(file).name for file, _ in files[2:]} == {"functional.py"}
    assert len(files) == 3
    assert "found at least two devices, mps:0 and cpu!" in ended.err
    assert ended.report["headline"] == "fails"


def test_arguments_streams_and_exit_codes_are_the_programs(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, helper, torch\n"
        "print(sys.argv[1:], __name__, helper.NAME, torch.ones(1, device='mps').item())\n"
        "sys.exit('no')\n"
    )
    (tmp_path / "helper.py").write_text("NAME = 'beside it'\n")
    ended = run(tmp_path, "program.py", "--torch", "x", flags=("--fail-on=never",), report=False)
    assert ended.out == "['--torch', 'x'] __main__ beside it 1.0\n"
    assert ended.err.startswith("--torch behind the program went to the program")
    assert "\nno\n" in ended.err
    assert "the program itself ended with exit code 1" in ended.err
    # The program's stdout is its own.
    assert "not checked  nothing was observed on a Mac" in ended.err
    assert ended.code == 3


@pytest.mark.slow
def test_a_module_is_run_as_python_does(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "program.py").write_text(
        "import sys, torch\nprint(__spec__.name, sys.argv[1:], torch.ones(2).to('mps').sum().item())\n"
    )
    ended = run(tmp_path, "a", "-b", flags=("-m", "package.program"))
    assert ended.out == "package.program ['a', '-b'] 2.0\n"
    assert ended.code == 0
    assert ended.report["headline"] == "runs natively"


@pytest.mark.parametrize(
    ("arguments", "message"), [((), "no program to run"), (("absent.py",), "there is no file absent.py")]
)
def test_a_wrong_use_is_three_lines(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert cli.invoke(["run", *arguments]) == 2
    result = capsys.readouterr().err
    assert result.startswith(message)
    assert len(result.splitlines()) == 3
