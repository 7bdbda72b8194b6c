"""``opcheck run``: whose arguments are whose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_flags_behind_the_program_are_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys, torch\nprint(sys.argv[1:], torch.ones(1, device='mps'))\n")
    (tmp_path / "its_own.py").write_text("import sys, torch\n'--torch'\nprint(torch.ones(1, device='mps'))\n")
    for script, is_named in (("program.py", True), ("its_own.py", False)):
        ended = subprocess.run(
            [sys.executable, "-m", "opcheck", "run", "-o", "r.json", script, "--torch", "2.13", "--lr=1"],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert ended.returncode == 0
        assert ("--torch behind the program went to the program" in ended.stderr) is is_named
        report = json.loads((tmp_path / "r.json").read_text())
        assert any("--torch behind" in text for text in report["not_checked"]) is is_named
        assert "--lr" not in ended.stderr
