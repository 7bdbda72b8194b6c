"""What only a process of its own shows: an end by a signal, memory, and what Python prints as it exits."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.test_reports import WHOLE

#: Levels that overflow the C stack of a parser that calls itself.
DEPTH = 50_000
#: Bytes of memory that a run may take: what it reads is a few kilobytes.
MEMORY = 2 << 30

ALIASES = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12))
BOMB = f"a0: &a0 [x]\n{ALIASES}"
DEEP = {
    "json": "[" * DEPTH,
    "yaml": "- " * DEPTH + "x",
    "flow": "{a: " * DEPTH,
    "toml": "a = " + "[" * DEPTH,
    "python": "x = " + "(" * DEPTH,
    "minus": "x = " + "-" * DEPTH + "1",
    "bomb": f"{BOMB}schema: *a11\n",
}
CASES = [
    *[(["diff", "a.json", "b.json"], "a.json", name) for name in ("json", "yaml", "flow", "bomb")],
    (["repro", "a.json"], "a.json", "bomb"),
    (["scan", "."], "opcheck.toml", "toml"),
    (["scan", "."], "a.py", "python"),
    (["scan", "."], "a.py", "minus"),
    (["scan", "a.ipynb"], "a.ipynb", "json"),
    (["scan", "b.py", "--baseline", "a.json"], "a.json", "json"),
    (["gate", "m.py:net", "--baseline", "a.yaml"], "a.yaml", "yaml"),
    (["doctor", "--from", "a.json"], "a.json", "json"),
    (["sweep", "a.yaml"], "a.yaml", "yaml"),
    (["lists", "merge", "a.yaml"], "a.yaml", "flow"),
]


def _little_memory() -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no limits of resources")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@pytest.mark.parametrize(("arguments", "file", "name"), CASES, ids=[f"{case[0][0]}-{case[2]}" for case in CASES])
def test_a_document_that_is_deep_or_grows_is_refused(
    arguments: list[str], file: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "b.json").write_bytes(WHOLE)
    (tmp_path / "b.py").write_text("x = 1\n")
    (tmp_path / file).write_text(DEEP[name])
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "HOME": str(tmp_path), "PATH": ""},
        preexec_fn=_little_memory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {2, 3}, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert len(done.stdout) + len(done.stderr) < 4000
