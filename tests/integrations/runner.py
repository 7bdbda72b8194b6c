"""As much of GitHub's runner as the run steps of a composite action need: expressions, variables, outputs."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
RUN_STEPS: list[dict[str, Any]] = [step for step in ACTION["runs"]["steps"] if "run" in step]

_EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")


@dataclass
class Runner:
    """One job: the folder it works in, the action's inputs, and what comes of its steps."""

    folder: Path
    inputs: dict[str, str]
    #: folders that commands are looked for in, before the others
    path: list[Path] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    log: str = ""

    @property
    def summary(self) -> str:
        file = self.folder / "summary.md"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def step(self, name: str) -> int:
        """Run one step as the runner does; its exit code."""
        (step,) = (step for step in RUN_STEPS if step["name"] == name)
        output = self.folder / "output.txt"
        output.write_text("", encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],  # noqa: S607
            cwd=self.folder / self.value(step.get("working-directory", ".")),
            env={
                **os.environ,
                "PATH": os.pathsep.join([*map(str, self.path), os.environ["PATH"]]),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
                "GITHUB_ACTIONS": "true",
                **{key: self.value(text) for key, text in step.get("env", {}).items()},
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.log = done.stdout + done.stderr
        lines = output.read_text(encoding="utf-8").splitlines()
        self.outputs |= dict(line.split("=", 1) for line in lines)
        return done.returncode

    def value(self, text: str) -> str:
        """A text with its expressions replaced."""
        return _EXPRESSION.sub(lambda match: self._find(match[1]), text)

    def _find(self, name: str) -> str:
        kind, _, rest = name.partition(".")
        if kind == "inputs":
            return str(self.inputs.get(rest, ACTION["inputs"][rest]["default"]))
        if name == "github.action_path":
            return str(ROOT)
        assert name.startswith("steps.gate.outputs."), name
        return self.outputs.get(name.removeprefix("steps.gate.outputs."), "")
