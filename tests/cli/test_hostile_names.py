"""Names of models and sources that strangers write: each ends in three lines, writes nothing and starts nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from opcheck.cli import invoke
from opcheck.worker.worker import Worker, WorkerError
from tests.test_hostile_text import check_log

#: What is no name of a model, leads elsewhere, or commands a terminal or a CI service.
NAMES = (
    *("..", ".", "../..", "/", "//", "~", "~root", "~nobody", "", "a/..", "a/../..", "./..", ".../..."),
    *("..%2f..", "a\\..\\..", "C:\\x", "\\\\host\\share", "\uff0e\uff0e/\uff0e\uff0e", "../x.pt2", "a b/c d"),
    *("\0", "a\0b", "a\nb", "\n::error::x", "::error::x", "##[error]x", "\x1b[31mred", "\x9b31m"),
    *("\u202egnp.exe", "\u2028", "\udc80", "\udc80.py:Net", "\u3000", "a" * 300, "a/" * 3000, "a:" * 500),
    *(":", "::", "a:", ":a", "a:b:c", "a.py:", "a.py:..", ".py:x", ".py", "..py:Net", "a@b", "@", "a/b@"),
    *("a.py:__import__('os').system('x')", "$(touch x)", "`touch x`", "%s%n", "{0.__class__}", "--", "-rf", "*"),
    *("hf:", "hf:..", "hf:../..", "hf:a/..", "hf:a/b@..", "hf:a/b@../../../x", "hf:a/b@/etc/passwd", "hf:a/b@\0"),
    *("hf:a/b@..\\..\\x", f"hf:a/b@{'x' * 5000}", f"hf:{'a' * 5000}", "recipe:..", "recipe:../../x"),
    *("diffusers:..Pipeline", "diffusers:../xPipeline", "transformers:pipeline/..", "transformers:pipeline/../../x"),
    *("http://localhost:9/x", "file:///etc/passwd", "https://x/y.pt2", "/dev/zero", "/dev/stdin", "/dev/fd/0"),
    *("/proc/self/mem", "/proc/self/environ", "con", "a.safetensors", "a.gguf", "[", f"torchvision:{'[' * 99}"),
)  # fmt: skip
VERBS = {
    "audit": ("audit", "--"),
    "upgrade": ("upgrade", "--"),
    "gate": ("gate", "--"),
    "diff": ("diff", "--from", "torch=2.9", "--to", "torch=2.13", "--"),
    "sweep": ("sweep", "--folder", "../sweep", "--"),
}
#: Programs that the parser, or a function that follows its tree, cannot take.
SOURCES: dict[str, str | bytes] = {
    "open brackets": "(" * 100_000,
    "signs": f"x = {'-' * 100_000}1",
    "negations": f"x = {'not ' * 50_000}1",
    "lambdas": f"x = {'lambda: ' * 5000}1",
    "attributes": f"x{'.a' * 200_000}",
    "sums": f"x = {'1+' * 100_000}1",
    "calls": f"x = f{'()' * 100_000}",
    "methods of a model": f"import torch.nn as nn\nx = nn.Linear(1, 1){'.eval()' * 900}",
    "branches": "if a: pass\n" + "elif b: pass\n" * 20_000,
    "blocks": "".join(f"{' ' * n}if a:\n" for n in range(120)),
    "a chain of classes": "import torch.nn as nn\nclass A0(nn.Module): pass\n"
    + "".join(f"class A{n + 1}(A{n}): pass\n" for n in range(1000)),
    "a long number": f"x = {'9' * 10_000}",
    "a null character": "a = 1\0",
    "an unknown encoding": "# coding: nope\nx = 1",
    "no UTF-8": b"x = '\xff'",
    "an escape that the parser warns of": "x = '\\d' is 'a'",
}


def refuse(_worker: Any, _request: Any, *_: Any, **_options: Any) -> NoReturn:
    raise WorkerError("died", "was not started", stage="starting")


def read_tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in a folder of its own, with temporary files, caches and a home there, and no network."""
    for name in ("project", "temporary", "home", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(Worker, "ask", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


@pytest.mark.parametrize("verb", VERBS)
def test_a_name_that_is_no_model_ends_in_three_lines_and_writes_nothing(
    folder: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_tree(folder)
    for name in NAMES:
        code = invoke((*VERBS[verb], name))
        out, err = capsys.readouterr()
        assert code in {2, 3}, name
        assert "Traceback" not in err, name
        # The gate's table has the reason for each model; the upgrade notes where it starts from.
        lines = err.splitlines() + ([] if verb == "gate" else out.splitlines())
        assert len(lines) <= 3 + (verb == "upgrade"), (name, lines)
        assert max(map(len, lines), default=0) < 2000, name
        check_log(f"{out}{err}")
        left = {path for path in read_tree(folder) - before if not path.startswith(("cache", "sweep"))}
        assert left == set(), name


@pytest.mark.parametrize("verb", [("audit", "m.py"), ("init", "--print"), ("sweep", "m.py")])
@pytest.mark.parametrize("source", SOURCES)
def test_a_program_that_does_not_parse_ends_in_three_lines(
    folder: Path, verb: tuple[str, ...], source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = SOURCES[source]
    path = folder / "project/m.py"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code = invoke(verb)
    err = capsys.readouterr().err
    assert code in ({0, 2} if verb[0] == "init" else {2, 3})
    assert len(err.splitlines()) <= 3, err
    assert "Traceback" not in err
    assert "Warning" not in err
