"""Versions of libraries as an axis of the gate: each has an environment of its own, which is kept by its lock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import CaptureError, UsageError
from opcheck.features.gate.assemble import Job, jobs_of, read_cached, work
from opcheck.features.gate.gate_records import settings
from opcheck.model.records import Report
from opcheck.worker import environments
from opcheck.worker.environments import LockedEnvironment, find_lock, locked_interpreter, resolve
from tests.features.gate.conftest import made
from tests.made import call, make_lists, make_target

ROOT = Path(__file__).parents[3]
LISTS = make_lists()


def test_each_version_is_a_job_of_its_own_with_all_targets() -> None:
    result = settings(
        {
            "models": ["a.py:A"],
            "targets": [{"torch": ["2.13", "2.14"], "transformers": ["5.8", "5.9.1"]}, {"torch": "2.14"}],
        },
        "opcheck.toml",
        LISTS,
    )
    jobs = jobs_of(result.models[0], result)
    assert list(jobs) == ["a.py:A, transformers 5.8", "a.py:A, transformers 5.9.1", "a.py:A"]
    assert [each.label for each in jobs["a.py:A, transformers 5.8"]] == [
        "torch 2.13, macOS 26.0, transformers 5.8",
        "torch 2.14, macOS 26.0, transformers 5.8",
    ]
    assert jobs["a.py:A, transformers 5.9.1"][0].libraries == ("transformers==5.9.1",)
    assert jobs["a.py:A"][0].label == "torch 2.14, macOS 26.0"


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("5.8", "transformers==5.8.*"),
        ("5.8.1", "transformers==5.8.1"),
        (">=5.8,<5.9", "transformers<5.9,>=5.8"),
        ("newest", "transformers"),
    ],
)
def test_a_version_is_written_as_that_of_torch(text: str, requirement: str) -> None:
    (planned,) = settings({"targets": [{"transformers": text}]}, "opcheck.toml", LISTS).targets
    assert planned.libraries == (requirement,)


def test_two_libraries_are_combined() -> None:
    table = {"transformers": ["5.8", "5.9"], "peft": ["0.17", "0.18"]}
    result = settings({"targets": [table]}, "opcheck.toml", LISTS)
    assert len(result.targets) == 4


@pytest.mark.parametrize("text", ["--index-url=x", "five", "5.8; rm", "5.8 @ file:x"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a version of transformers"):
        settings({"targets": [{"transformers": text}]}, "opcheck.toml", LISTS)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The commands that an installer would run: 5.8 and 5.8.1 come to the same versions."""
    ran: list[list[str]] = []

    def run(alternatives: Sequence[Sequence[str]], inputs: Sequence[str] = ()) -> str:
        ran.append([*alternatives[0]])
        if inputs:
            assert "torch==" in inputs[0]
            return "# a comment\ntorch==2.13.0\ntransformers==5.8.1\n"
        if "venv" in alternatives[0]:
            folder = Path(alternatives[0][-1])
            (folder / "lib" / "python3" / "site-packages").mkdir(parents=True)
        return ""

    monkeypatch.setenv("OPCHECK_CACHE", str(tmp_path / "wheels"))
    monkeypatch.setattr(environments, "_run", run)
    return ran


def test_a_lock_is_resolved_once_and_environments_are_shared(commands: list[list[str]]) -> None:
    assert find_lock(("transformers==5.8.*",)) is None
    lock = resolve(("transformers==5.8.*",))
    assert lock == LockedEnvironment(packages=("torch==2.13.0", "transformers==5.8.1"))
    assert resolve(("transformers==5.8.*",)) == find_lock(("transformers==5.8.*",)) == lock
    assert len(commands) == 1
    other = resolve(("transformers==5.8.1",))
    python = locked_interpreter(lock.packages)
    count = len(commands)
    assert locked_interpreter(other.packages) == python
    assert len(commands) == count
    assert "--no-deps" in commands[-1]
    assert commands[-1][-2:] == ["torch==2.13.0", "transformers==5.8.1"]


def test_without_versions_that_fit_the_job_fails_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: object) -> LockedEnvironment:
        raise CaptureError("no versions of transformers==0.1.* fit this torch", hint="x")

    monkeypatch.setattr(environments, "resolve", refuse)
    job = Job(
        name="net",
        request=CaptureRequest(model="net.py:Net", target=make_target("2.12")),
        targets=(make_target("2.12"),),
        libraries=("transformers==0.1.*",),
    )
    failed = work(job, print).failed
    assert failed is not None
    assert "no versions" in failed.message


def test_the_lock_is_part_of_what_a_result_is_kept_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    locks = {"5.8": LockedEnvironment(packages=("transformers==5.8.0",))}
    monkeypatch.setattr(environments, "resolve", lambda _: locks["5.8"])
    monkeypatch.setattr(environments, "find_lock", lambda _: locks["5.8"])
    audited: list[tuple[str, ...]] = []

    def audit(request: CaptureRequest, targets: list[object], *_: object, **_more: object) -> tuple[Report, ...]:
        audited.append(request.packages)
        Path(request.notes).write_text('["start"]\n')
        return tuple(made((call("aten::mm"),), target) for target in targets)  # type: ignore[arg-type]

    monkeypatch.setattr("opcheck.orchestrator.audit_targets", audit)
    monkeypatch.chdir(tmp_path)
    job = Job(
        name="net, transformers 5.8",
        request=CaptureRequest(model="net.py:Net", target=make_target("2.12")),
        targets=(make_target("2.12"),),
        libraries=("transformers==5.8.*",),
        cache=str(tmp_path / "cache"),
    )
    assert work(job, print).libraries == ("transformers==5.8.0",)
    kept = read_cached(job)
    assert kept is not None
    assert (kept.kept, kept.libraries) == (1, ("transformers==5.8.0",))
    locks["5.8"] = LockedEnvironment(packages=("transformers==5.8.1",))
    assert read_cached(job) is None
    assert work(job, print).libraries == ("transformers==5.8.1",)
    assert audited == [("transformers==5.8.0",), ("transformers==5.8.1",)]


PROJECT = """
[[tool.opcheck.models]]
name = "mixtral"
model = "transformers:MixtralForCausalLM"
config = { num_hidden_layers = 1, hidden_size = 64, intermediate_size = 64, num_attention_heads = 4, num_key_value_heads = 2, vocab_size = 100 }

[[tool.opcheck.targets]]
torch = "2.11"
macos = "15"
transformers = ["5.7", "5.8"]
"""


@pytest.mark.slow
def test_a_release_that_breaks_a_model_fails_alone(tmp_path: Path) -> None:
    """https://github.com/huggingface/transformers/issues/45685: histc of integers, mended in 5.8."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", "gate", "--json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 3 and "no versions of" in done.stdout:
        pytest.skip("no package index, or no uv")
    assert done.returncode == 1, done.stderr
    old, new = json.loads(done.stdout)["cells"]
    assert (old["target"], old["code"]) == ("torch 2.11, macOS 15.0, transformers 5.7", 1)
    assert [finding["op"] for finding in old["report"]["findings"] if finding["severity"] == "error"] == ["aten::histc"]
    assert (new["target"], new["code"]) == ("torch 2.11, macOS 15.0, transformers 5.8", 0)
    assert msgspec.convert(new["libraries"], list[str])[0].startswith("transformers==5.8.")
