"""What is learned of a machine, and what a file of another machine may hold."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from opcheck.common.errors import UsageError
from opcheck.features.doctor import machine_environment
from opcheck.worker.process import Finished
from tests.features.doctor.macs import CLEAN

SYSCTL = {
    "kern.osproductversion": "15.5",
    "kern.osversion": "24F74",
    "hw.model": "Mac14,9",
    "machdep.cpu.brand_string": "Apple M2 Pro",
    "hw.memsize": "17179869184",
    "sysctl.proc_translated": "0",
    "kern.hv_vmm_present": "0",
}


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a Mac's kernel answers; torch is not asked."""
    answers = dict(SYSCTL)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr(machine_environment, "_sysctl", lambda name: answers.get(name, ""))
    monkeypatch.setattr(machine_environment, "_torch", lambda: None)
    return answers


def test_a_mac_is_read_by_sysctl(mac: dict[str, str]) -> None:
    assert machine_environment.gather({}).machine == CLEAN.machine


def test_what_an_intel_mac_does_not_know_is_no_answer(mac: dict[str, str]) -> None:
    for name in ("sysctl.proc_translated", "kern.hv_vmm_present", "hw.memsize"):
        del mac[name]
    machine = machine_environment.gather({}).machine
    assert (machine.translated, machine.virtual, machine.memory) == (False, None, None)


def test_only_variables_that_are_about_mps_travel(mac: dict[str, str]) -> None:
    given = {
        "PYTORCH_ENABLE_MPS_FALLBACK": "1",
        "ENABLE_MPS_FALLBACK": "1",
        "PYTORCH_KERNEL_CACHE_PATH": "/home/somebody",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/x",  # noqa: S108  (NVIDIA's MPS)
        "SECRET": "s",
        "RUNNER_ENVIRONMENT": "github-hosted",
    }
    result = machine_environment.gather(given)
    assert list(result.variables) == ["ENABLE_MPS_FALLBACK", "PYTORCH_ENABLE_MPS_FALLBACK"]
    assert result.machine.hosted == "GitHub-hosted"


def test_the_facts_of_this_machine_read_back(tmp_path: Path) -> None:
    result = machine_environment.gather()
    path = tmp_path / "environment.json"
    path.write_text(machine_environment.dump(result), encoding="utf-8")
    assert machine_environment.read(path) == result
    assert result.torch is not None
    assert (result.torch.built, result.torch.problem) == (False, "")


@pytest.mark.parametrize(
    ("code", "out", "error", "problem"),
    [
        (1, "", "Traceback\nImportError: dlopen: wrong architecture\n", "ImportError: dlopen: wrong"),
        (-6, "", "", "import torch ended the process with code -6"),
        (0, "nothing", "", "import torch ended the process with code 0"),
    ],
)
def test_a_torch_that_does_not_import(code: int, out: str, error: str, problem: str) -> None:
    result = machine_environment.from_answer("2.13.0", "pip", code, out, error)
    assert result.problem.startswith(problem)
    assert result.built is None


def test_an_import_that_hangs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> Finished:
        return Finished(-9, "", "", late=True)

    monkeypatch.setattr(machine_environment, "run", hang)
    result = machine_environment._torch()
    assert result is not None
    assert "took more than" in result.problem


def change(name: str, value: object) -> bytes:
    content = json.loads(machine_environment.dump(CLEAN))
    content[name] = value
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"machine": 3}',
        change("schema", "opcheck-report/1"),
        change("torch", {"version": "new"}),
        change("machine", {"system": "Darwin", "macos": "Sonoma"}),
        change("python", {"version": "three"}),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "environment.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        machine_environment.read(path)
    assert raised.value.context.startswith("--from ")
    assert "--gather" in raised.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        machine_environment.read(tmp_path / "nothing.json")


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        CLEAN.machine.macos = "14"  # type: ignore[misc]
    assert msgspec.json.decode(machine_environment.dump(CLEAN), type=machine_environment.Environment) == CLEAN
