"""The workflows, ours and the examples, and the action: two linters find nothing, and each action is pinned by its commit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from opcheck.features.init import verb
from tests.integrations.runner import ACTION, ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
EXAMPLES = sorted((ROOT / "examples/github").glob("*.yml"))
BINARIES = Path(sys.executable).parent

#: A workflow with an expression that names nothing, and an action that is not pinned.
_WRONG = """
on: push
permissions: {}
jobs:
  a:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/cache@v4
      - run: echo "${{ steps.nothing.outputs.value }}"
"""


def lint(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BINARIES / program, *arguments], capture_output=True, text=True, check=False)


def actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    return lint("actionlint", "-no-color", *files)


def using_the_action(folder: Path, inputs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What actionlint says of a repository that holds the action, and a workflow that uses it."""
    outputs = " ".join(f"${{{{ steps.a.outputs.{name} }}}}" for name in ACTION["outputs"])
    steps = [{"id": "a", "uses": "./", "with": inputs}, {"run": f'echo "{outputs}"'}]
    jobs = {"a": {"runs-on": "ubuntu-latest", "steps": steps}}
    (folder / ".git").mkdir(parents=True)
    workflow = folder / ".github/workflows/a.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(yaml.safe_dump({"on": "push", "jobs": jobs}), encoding="utf-8")
    shutil.copy(ROOT / "action.yml", folder)
    return actionlint(workflow)


def zizmor(*files: Path) -> subprocess.CompletedProcess[str]:
    return lint("zizmor", "--offline", "--no-progress", *files)


def test_the_workflows_are_the_ones_that_a_release_needs() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "hosts", "mac", "nightly", "observe", "release", "test"]
    assert len(EXAMPLES) >= 3


@pytest.mark.skipif(sys.platform == "darwin", reason="the package of actionlint has no macOS wheel")
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(_WRONG, encoding="utf-8")
    assert "steps" in actionlint(wrong).stdout
    done = actionlint(*WORKFLOWS, *EXAMPLES)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(sys.platform == "darwin", reason="the package of actionlint has no macOS wheel")
def test_the_workflow_that_init_writes_passes_both_linters(tmp_path: Path) -> None:
    path = tmp_path / "opcheck.yml"
    path.write_text(verb.workflow_text(), encoding="utf-8")
    for done in (actionlint(path), zizmor(path)):
        assert done.returncode == 0, done.stdout


@pytest.mark.skipif(sys.platform == "darwin", reason="the package of actionlint has no macOS wheel")
def test_a_workflow_can_give_each_input_of_the_action_and_read_each_output(tmp_path: Path) -> None:
    inputs = {name: given["default"] for name, given in ACTION["inputs"].items()}
    done = using_the_action(tmp_path / "right", inputs)
    assert (done.returncode, done.stdout) == (0, "")
    wrong = using_the_action(tmp_path / "wrong", {"modles": "encoder"})
    assert 'input "modles" is not defined in action "opcheck"' in wrong.stdout


def test_zizmor_finds_nothing(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(_WRONG, encoding="utf-8")
    assert "unpinned-uses" in zizmor(wrong).stdout
    done = zizmor(*WORKFLOWS, *EXAMPLES, ROOT / "action.yml")
    assert done.returncode == 0, done.stdout


def test_an_action_has_one_commit_everywhere_and_its_version_beside_it() -> None:
    commits: dict[str, set[tuple[str, str]]] = {}
    for path in (*WORKFLOWS, *EXAMPLES, ROOT / "action.yml"):
        text = path.read_text(encoding="utf-8")
        for name, commit, version in re.findall(r"uses: ([\w/-]+)@(\S+) # (\S+)", text):
            if not name.startswith("OWNER/"):
                commits.setdefault(name, set()).add((commit, version))
        assert len(re.findall("uses: ", text)) == len(re.findall(r"uses: \S+@\S+ # ", text)), path
    for name, pins in commits.items():
        ((commit, version),) = pins
        assert re.fullmatch("[0-9a-f]{40}", commit), name
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version), name
