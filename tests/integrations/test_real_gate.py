"""The action's steps and the hook of the gate, on a small project, with the real opcheck."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.integrations.runner import Runner
from tests.integrations.test_hooks import run
from tests.render.sarif_schema import LOG

_MODEL = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.special.airy_ai(x)


def net():
    return Net(), (torch.ones(2, 4),)
"""
_CONFIGURATION = """
[[tool.opcheck.models]]
model = "model.py:net"

[[tool.opcheck.targets]]
torch = "2.13"
macos = "15"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(_MODEL, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(_CONFIGURATION, encoding="utf-8")
    monkeypatch.setenv("OPCHECK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def test_the_job_fails_with_annotations_sarif_and_a_summary(project: Path) -> None:
    runner = Runner(project, {}, [Path(sys.executable).parent])
    assert runner.step("Install opcheck") == 0, runner.log
    assert runner.step("Gate") == 0, runner.log
    assert runner.log.startswith("::error file=model.py,line=7,title=OC102")
    assert runner.outputs == {"exit-code": "1", "sarif-file": "./opcheck.sarif"}
    assert runner.step("Result") == 1
    log = json.loads((project / "opcheck.sarif").read_text(encoding="utf-8"))
    assert list(Draft202012Validator(LOG).iter_errors(log)) == []
    assert "OC102" in runner.summary

    # The same once more, as pre-commit would before a push.
    failed = run("opcheck-gate", project)
    assert (failed.returncode, "OC102" in failed.stdout) == (1, True)


@pytest.mark.parametrize(
    ("inputs", "code", "said"),
    [
        (
            {"baseline": "opcheck-baseline.yaml"},
            2,
            [
                "    cannot read the baseline: No such file or directory",
                "      in: opcheck-baseline.yaml",
                "      help: write a first baseline, and commit it: opcheck gate --baseline FILE --update-baseline",
            ],
        ),
        ({"arguments": "--torch 1.2"}, 2, ["    there is no op list for torch 1.2"]),
    ],
)
def test_a_job_without_a_report_says_why_in_its_summary(
    project: Path, inputs: dict[str, str], code: int, said: list[str]
) -> None:
    # What an earlier run left is not this one's.
    (project / "opcheck.sarif").write_text("{}", encoding="utf-8")
    runner = Runner(project, inputs, [Path(sys.executable).parent])
    assert runner.step("Gate") == 0, runner.log
    assert runner.outputs == {"exit-code": str(code)}
    assert runner.step("Result") == code
    lines = runner.summary.splitlines()
    assert lines[:2] == ["### opcheck gate wrote no report", ""]
    assert lines[2 : 2 + len(said)] == said
    assert len(lines) == 5
