"""The hooks for pre-commit: their shape, and their entries run as it runs them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integrations.runner import ROOT

HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
BY_ID = {hook["id"]: hook for hook in HOOKS}
#: What pre-commit reads (pre-commit.com, "Creating new hooks"), with the kinds of the values.
KEYS = {
    "id": str,
    "name": str,
    "description": str,
    "entry": str,
    "language": str,
    "types": list,
    "types_or": list,
    "require_serial": bool,
    "pass_filenames": bool,
    "stages": list,
}
STAGES = {"pre-commit", "pre-push", "manual"}


def run(hook: str, folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """The entry as pre-commit calls it: split like a shell, the files behind it; this interpreter's opcheck."""
    command, *arguments = shlex.split(BY_ID[hook]["entry"])
    assert command == "opcheck"
    return subprocess.run(
        [sys.executable, "-m", "opcheck", *arguments, *files], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: str(hook["id"]))
def test_a_hook_has_what_pre_commit_reads(hook: dict[str, Any]) -> None:
    assert {"id", "name", "entry", "language"} <= set(hook) <= set(KEYS)
    assert all(isinstance(value, KEYS[key]) for key, value in hook.items())
    assert hook["language"] in {"python", "system"}
    assert set(hook.get("stages", ())) <= STAGES


def test_both_hooks_are_there() -> None:
    assert list(BY_ID) == ["opcheck-scan", "opcheck-gate"]


def test_the_scan_reads_the_files_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x.cuda()\n", encoding="utf-8")
    (tmp_path / "b.py").write_text("x.cpu()\n", encoding="utf-8")
    failed = run("opcheck-scan", tmp_path, "a.py", "b.py")
    assert (failed.returncode, "OC201" in failed.stdout) == (1, True)
    assert run("opcheck-scan", tmp_path, "b.py").returncode == 0


def test_files_that_the_configuration_leaves_out_are_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x.cuda()\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.opcheck.scan]\nexclude = ["a.py"]\n', encoding="utf-8")
    done = run("opcheck-scan", tmp_path, "a.py")
    assert (done.returncode, done.stderr) == (0, "")
