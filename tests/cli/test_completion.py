"""Completion for shells: it starts in a blink, and knows verbs, flags, values, models and files."""

from __future__ import annotations

import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from opcheck.cli import invoke
from opcheck.common.names import DTYPES
from opcheck.features import features

ROOT = Path(__file__).parents[2]


def asked(**variables: str) -> str:
    """What a shell is answered."""
    done = subprocess.run(
        [sys.executable, "-m", "opcheck"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[str]]:
    """The completions of the last word of a line; of what the shell completes itself the kind."""

    def complete(line: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        monkeypatch.setenv("_OPCHECK_COMPLETE", "bash_complete")
        assert invoke([]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        results = [each.partition(",") for each in out.splitlines() if each]
        return [value if kind == "plain" else f"<{kind}>" for kind, _, value in results]

    return complete


Completed = Callable[[str], list[str]]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_function_and_answers(shell: str) -> None:
    assert "_OPCHECK_COMPLETE" in asked(_OPCHECK_COMPLETE=f"{shell}_source")
    # bash and zsh count words, fish gives the last one.
    last = "aten::linalg_svdv" if shell == "fish" else "2"
    answer = asked(COMP_WORDS="opcheck op aten::linalg_svdv", COMP_CWORD=last, _OPCHECK_COMPLETE=f"{shell}_complete")
    assert re.findall(r"aten::\S+", answer) == ["aten::linalg_svdvals", "aten::linalg_svdvals.out"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"COMP_WORDS": "opcheck op"},
        {"COMP_CWORD": "1"},
        {"COMP_WORDS": "opcheck op", "COMP_CWORD": "nan"},
        {"COMP_WORDS": "opcheck op", "COMP_CWORD": ""},
        {"COMP_WORDS": "opcheck op", "COMP_CWORD": "1e9"},
        {"COMP_WORDS": "opcheck op", "COMP_CWORD": "-9"},
        {"COMP_WORDS": "opcheck op", "COMP_CWORD": "9" * 5000},
        {"COMP_WORDS": "opcheck op 'a \\", "COMP_CWORD": "2"},
        {"COMP_WORDS": "", "COMP_CWORD": "0"},
    ],
    ids=str,
)
def test_variables_that_say_nothing_are_completed_to_something_and_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str, variables: dict[str, str]
) -> None:
    monkeypatch.setenv("_OPCHECK_COMPLETE", f"{shell}_complete")
    for name in ("COMP_WORDS", "COMP_CWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert invoke([]) in {0, 1}
    assert capsys.readouterr().err == ""


def test_verbs_flags_and_choices_are_completed(completed: Completed) -> None:
    assert completed("opcheck ") == list(features())
    assert completed("opcheck up") == ["upgrade"]
    assert completed("opcheck upgrade --relea") == ["--releases"]
    assert completed("opcheck scan a.py --fail-on w") == ["warning"]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("audit --torch 2.1", ["2.15", "2.14", "2.13", "2.12", "2.11", "2.10", "2.1"]),
        ("audit --torch=2.15", ["--torch=2.15"]),
        ("gate --torch ne", ["newest"]),
        ("gate --macos 2", ["27", "26"]),
        ("run --macos 1", ["15", "14", "13", "12"]),
        ("op add --dtype complex", [name for name in DTYPES if name.startswith("complex")]),
        ("audit --precision float32,b", ["float32,bfloat16"]),
        ("audit -f js", ["json", "jsonl"]),
        ("history aten::linalg_svd.", ["aten::linalg_svd.U"]),
        ("op grid_sampler_3", ["grid_sampler_3d", "grid_sampler_3d_backward"]),
        ("op torchv", ["torchvision::"]),
        ("op nn.LST", ["nn.LSTM", "nn.LSTMCell"]),
        ("op torch.nn.GRUC", ["torch.nn.GRUCell"]),
        ("op MultiheadA", ["MultiheadAttention"]),
        ("op mm --torch inst", ["installed"]),
        ("explain OC10", [f"OC10{number}" for number in range(1, 9)]),
        ("explain oc101", ["oc101"]),
        ("explain complex_m", ["complex_mul", "complex_matmul"]),
        ("scan --select OC201", ["OC201"]),
        ("audit tor", ["torchvision:"]),
        ("audit --optimizer adam", ["adam", "adamax", "adamw"]),
        ("gate --max fallback_e", ["fallback_env="]),
        ("compile --backend ind", ["inductor"]),
        ("diff --from torch=2.15,m", ["torch=2.15,macos="]),
        ("diff --to torch=2.15,macos=2", ["torch=2.15,macos=27", "torch=2.15,macos=26"]),
        ("diff 2.15", ["2.15"]),
        ("sweep rep", ["report", "reports/"]),
        ("compare m.py:net --device m", ["mps"]),
        ("observe ", ["<file>"]),
        ("lists merge ", ["<file>"]),
        ("doctor --script x", ["<file>"]),
        ("audit m.py:net -o out", ["<file>"]),
        ("lists lint --directory ", ["<dir>"]),
    ],
)
def test_values_are_completed(completed: Completed, line: str, some: list[str]) -> None:
    assert completed(f"opcheck {line}") == some


@pytest.mark.parametrize(
    ("library", "start", "name"),
    [
        ("transformers", "BertM", "BertModel"),
        ("timm", "resnet5", "resnet50"),
        ("torchvision", "resnet5", "resnet50"),
        ("diffusers", "UNet2DC", "UNet2DConditionModel"),
    ],
)
def test_the_models_of_a_library_are_completed_without_importing_it(
    completed: Completed, library: str, start: str, name: str
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"there is no {library}")
    assert f"{library}:{name}" in completed(f"opcheck audit {library}:{start}")


def test_no_completion_imports_torch_or_a_library(tmp_path: Path) -> None:
    """Each takes as long as Python, click and one file take."""
    lines = [f"opcheck audit {name}:x" for name in ("transformers", "timm", "torchvision", "diffusers")]
    lines += ["opcheck op x", "opcheck explain x", "opcheck audit --dtype x", "opcheck gate x"]
    code = f"""
import os, sys
from opcheck.cli import invoke
for line in {lines}:
    words = line.split()
    os.environ.update(COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), _OPCHECK_COMPLETE="bash_complete")
    invoke([])
    slow = {{"torch", "numpy", "transformers", "timm", "torchvision", "diffusers", "rich"}}
    assert not slow & set(sys.modules), (line, slow & set(sys.modules))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


MODEL = """
raise SystemExit("a file is read, never run")
SIZE = small = 3
class Net:
    def __init__(self, layers, *, width=2): pass
def build(depth): pass
def _own(): pass
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODEL)
    for name in ("model.pt2", "report.json", "notes.txt", ".hidden.py"):
        (tmp_path / name).touch()
    (tmp_path / "my models").mkdir()
    (tmp_path / "my models" / "net.py").write_text(MODEL)
    (tmp_path / "opcheck.toml").write_text(
        '[[models]]\nname = "encoder"\nmodel = "models.py:Net"\n[[targets]]\nenvironments = ["ci", "nightly"]\n'
    )
    return tmp_path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("audit m", ["model.pt2", "models.py:", "my models/"]),
        ("audit .h", [".hidden.py:"]),
        ("audit models.py:", ["models.py:SIZE", "models.py:small", "models.py:Net", "models.py:build"]),
        ("audit missing.py:", []),
        ("audit missing/", []),
        ("audit models.py:Net --config ", ["layers=", "width="]),
        ("audit models.py:build --config d", ["depth="]),
        ("repro rep", ["report.json"]),
        ("verify rep", ["report.json"]),
        ("gate enc", ["encoder"]),
        ("gate --environment ", ["ci", "nightly"]),
        ("sweep no", ["notes.txt"]),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_a_project_has_is_completed(completed: Completed, line: str, found: list[str]) -> None:
    assert completed(f"opcheck {line}") == found


def test_a_broken_project_completes_nothing_and_says_nothing(
    completed: Completed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text("def (")
    (tmp_path / "opcheck.toml").write_text("= [")
    assert completed("opcheck audit models.py:") == []
    assert completed("opcheck gate --environment ") == []


class Shell:
    """An interactive shell on a terminal of its own, which a person would type into."""

    process: int
    _terminal: int

    def __init__(self, command: list[str], at: Path, binaries: Path) -> None:
        if sys.platform == "win32":
            pytest.skip("Windows has no pseudo-terminals")
        import pty

        environment = {
            "PATH": f"{binaries}:{os.environ['PATH']}",
            "HOME": str(at),
            "TERM": "dumb",
            "PYTHONPATH": str(ROOT),
            "INPUTRC": "/dev/null",
            "LANG": "C.UTF-8",
            "PS1": "",
        }
        self.process, self._terminal = pty.fork()
        if not self.process:  # the child is replaced at once
            os.chdir(at)
            os.execvpe(command[0], command, environment)  # noqa: S606 - no shell but the one named

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, pattern: str, patience: float = 120) -> str:
        """What is shown up to the pattern."""
        shown, end = "", time.monotonic() + patience
        while not re.search(pattern, shown):
            assert time.monotonic() < end, f"{pattern!r} did not come: {shown!r}"
            if select.select([self._terminal], [], [], 0.1)[0]:
                shown += os.read(self._terminal, 4096).decode(errors="replace")
        return shown

    def close(self) -> None:
        os.close(self._terminal)
        os.waitpid(self.process, 0)


SETUP = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(_OPCHECK_COMPLETE=bash_source opcheck)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -Uz compinit && compinit -D -u; eval "$(_OPCHECK_COMPLETE=zsh_source opcheck)"',
    ),
    "fish": (["fish", "--no-config", "-i"], "_OPCHECK_COMPLETE=fish_source opcheck | source"),
}


@contextmanager
def shell(name: str, at: Path) -> Iterator[Shell]:
    """A shell with our completion; ``opcheck`` is this one, and ``show`` prints its arguments in brackets."""
    command, setup = SETUP[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {name}")
    binaries = at / "bin"
    binaries.mkdir()
    program = binaries / "opcheck"
    # Asked for completions it is the real one; else it prints its arguments.
    program.write_text(
        "#!/bin/sh\n"
        f'[ -n "$_OPCHECK_COMPLETE" ] && exec {shlex.quote(sys.executable)} -m opcheck "$@"\n'
        'printf "<"; for word in "$@"; do printf "[%s]" "$word"; done; printf ">\\n"\n'
    )
    program.chmod(0o755)
    started = Shell(command, at, binaries)
    try:
        started.type(f"{setup}; echo rea''dy\n")
        started.until(r"ready\s")
        yield started
    finally:
        started.close()


#: What a person types before and after the key Tab, and the arguments that the program then gets.
TYPED = [
    ("opcheck upgr\t\n", "[upgrade]"),
    ("opcheck op aten::linalg_svdv\t.o\t\n", "[op][aten::linalg_svdvals.out]"),
    ("opcheck audit --torch 2.1\t5\n", "[audit][--torch][2.15]"),
    ("opcheck audit --torch=2.15\t--maco\t26\t\n", "[audit][--torch=2.15][--macos][26]"),
    ("opcheck audit torchvision:wide_resnet1\t--gr\t\n", "[audit][torchvision:wide_resnet101_2][--grad]"),
    ("opcheck audit torchv\twide_resnet5\t\n", "[audit][torchvision:wide_resnet50_2]"),
    ("opcheck audit models.p\tNe\t\n", "[audit][models.py:Net]"),
    ("opcheck audit model.p\t\n", "[audit][model.pt2]"),
    ("opcheck audit my\tne\tbui\t\n", "[audit][my models/net.py:build]"),
    ("opcheck observe not\t\n", "[observe][notes.txt]"),
    ("opcheck audit x -o repo\t\n", "[audit][x][-o][report.json]"),
    ("opcheck audit x --output=repo\t\n", "[audit][x][--output=report.json]"),
    ("opcheck diff --from torch=2.15,m\t26\t\n", "[diff][--from][torch=2.15,macos=26]"),
]


@pytest.mark.parametrize("name", list(SETUP))
def test_a_person_at_a_terminal_gets_whole_words(project: Path, name: str) -> None:
    with shell(name, project) as started:
        for keys, arguments in TYPED:
            started.type(keys)
            shown = started.until(r"<\[.*\]>|<>")
            assert arguments in shown, (keys, shown)
