"""The composite action: its shape, and its steps run as GitHub runs them, beside an opcheck that only writes down its arguments."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integrations.runner import ACTION, ROOT, RUN_STEPS, Runner

#: What the runner reads (docs.github.com, "Metadata syntax for GitHub Actions"), and of these what must be there.
TOP = {"name", "author", "description", "inputs", "outputs", "runs", "branding"}
INPUT = {"description", "required", "default", "deprecationMessage"}
OUTPUT = {"description", "value"}
RUN = {"name", "id", "if", "run", "shell", "env", "working-directory", "continue-on-error"}
USES = {"name", "id", "if", "uses", "with", "env", "continue-on-error"}

_EXPRESSIONS = re.compile(r"\$\{\{(.*?)\}\}")

#: Writes its arguments down, and exits as CODE says; SARIF goes into its file.
_RECORDER = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(arguments) + "\\n")
if "sarif" in arguments:
    with open(arguments[arguments.index("--output") + 1], "w") as file:
        file.write("{{}}")
print("said", *arguments)
sys.exit(int(os.environ.get("CODE", "0")) if arguments[0] == "gate" else 0)
"""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A job in which the opcheck on the PATH is the one above."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    program = binaries / "opcheck"
    program.write_text(_RECORDER.format(python=sys.executable, log=str(tmp_path / "calls.jsonl")), encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Runner(folder=tmp_path, inputs={}, path=[binaries])


def calls(runner: Runner) -> list[list[str]]:
    lines = (runner.folder / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_metadata_has_what_the_runner_reads_and_nothing_else() -> None:
    assert set(ACTION) <= TOP
    assert {"name", "description", "runs"} <= set(ACTION)
    for name, given in ACTION["inputs"].items():
        assert re.fullmatch(r"[a-z][a-z-]*", name)
        assert set(given) <= INPUT
        assert given["description"]
        assert isinstance(given["default"], str), "the runner knows no other kind"
    for given in ACTION["outputs"].values():
        assert set(given) == OUTPUT
    assert set(ACTION["runs"]) == {"using", "steps"}
    assert ACTION["runs"]["using"] == "composite"


@pytest.mark.parametrize("step", ACTION["runs"]["steps"], ids=lambda step: str(step["name"]))
def test_a_step_is_a_command_with_its_shell_or_another_action(step: dict[str, Any]) -> None:
    if "run" in step:
        assert set(step) <= RUN
        assert step["shell"] == "bash"
        # An expression in a script is replaced before bash reads it: whoever writes an input would write the script.
        assert not _EXPRESSIONS.search(step["run"])
        subprocess.run(["bash", "-n", "-c", step["run"]], check=True)  # noqa: S607
        variables = set(re.findall(r"\$\{?([A-Z][A-Z_]+)", step["run"]))
        assert variables - {"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"} == set(step.get("env", {}))
    else:
        assert set(step) <= USES
        assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", step["uses"])


def test_every_expression_names_something() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    names = {word for item in _EXPRESSIONS.findall(text) for word in re.findall(r"[\w.-]+", item)}
    dotted = {name for name in names if "." in name}
    outputs = set(re.findall(r'echo "([\w-]+)=', text))
    known = {f"inputs.{name}" for name in ACTION["inputs"]} | {"github.action_path"}
    known |= {f"steps.gate.outputs.{name}" for name in outputs}
    assert dotted <= known
    assert {f"inputs.{name}" for name in ACTION["inputs"]} <= dotted, "an input that nothing reads"
    assert {step["id"] for step in RUN_STEPS if "id" in step} == {"gate"}


def test_an_opcheck_that_is_there_is_taken(runner: Runner) -> None:
    assert runner.step("Install opcheck") == 0
    assert calls(runner) == [["--version"]]


def test_without_an_opcheck_pip_installs_the_action_itself(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    (binaries,) = runner.path
    (binaries / "opcheck").rename(binaries / "kept")
    python = binaries / "python"
    python.write_text(
        f'#!/bin/bash\necho "$@" > {runner.folder}/pip\nmv {binaries}/kept {binaries}/opcheck\n', encoding="utf-8"
    )
    python.chmod(0o755)
    # No other opcheck, and no other python.
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    runner.inputs = {"pip-arguments": "--no-deps -q"}
    assert runner.step("Install opcheck") == 0, runner.log
    result = (runner.folder / "pip").read_text(encoding="utf-8")
    assert result == f"-m pip install --no-deps -q {ROOT}[torch]\n"
    assert calls(runner) == [["--version"]]


def test_the_inputs_are_the_arguments_whatever_is_in_them(runner: Runner) -> None:
    runner.inputs = {
        "models": "timm:resnet18\n\nmodels.py:Net; touch $(pwd)/injected\n",
        "fail-on": "fallback",
        "baseline": "known findings.json",
        "arguments": "--strict --max fallback=3",
    }
    assert runner.step("Gate") == 0
    asked = ["gate", "--strict", "--max", "fallback=3", "timm:resnet18"]
    asked += ["models.py:Net; touch $(pwd)/injected", "--fail-on", "fallback"]
    asked += ["--baseline", "known findings.json"]
    assert calls(runner) == [
        [*asked, "--format", "github"],
        [*asked, "--quiet", "--format", "sarif", "--output", "opcheck.sarif"],
    ]
    assert runner.outputs == {"exit-code": "0", "sarif-file": "./opcheck.sarif"}
    assert not (runner.folder / "injected").exists()
    assert runner.summary == "", "the format github writes it itself"


def test_nothing_given_is_the_configuration_of_the_folder(runner: Runner) -> None:
    (runner.folder / "sub").mkdir()
    runner.inputs = {"config": "sub", "format": "text"}
    assert runner.step("Gate") == 0
    assert calls(runner)[0] == ["gate", "--format", "text"]
    assert (runner.folder / "sub" / "opcheck.sarif").exists()
    assert runner.outputs["sarif-file"] == "sub/opcheck.sarif"
    assert runner.summary == "said gate --quiet --format markdown\n"


@pytest.mark.parametrize("code", ["0", "1", "2", "3"])
def test_the_job_fails_as_the_gate_does_after_all_was_written(
    runner: Runner, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE", code)
    assert runner.step("Gate") == 0
    assert runner.outputs["exit-code"] == code
    assert ("sarif-file" in runner.outputs) == (code != "2")
    assert ("wrote no report" in runner.summary) == (code == "2")
    monkeypatch.delenv("CODE")
    assert runner.step("Result") == int(code)


def test_the_example_uses_inputs_that_there_are() -> None:
    text = (ROOT / "examples/github/opcheck.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    # YAML 1.1 reads the key on as true.
    assert {"name", True, "permissions", "concurrency", "jobs"} == set(workflow)
    (job,) = workflow["jobs"].values()
    (used,) = (step for step in job["steps"] if step.get("uses", "").startswith("OWNER/opcheck@"))
    assert set(used["with"]) <= set(ACTION["inputs"])
    assert job["permissions"]["security-events"] == "write"
