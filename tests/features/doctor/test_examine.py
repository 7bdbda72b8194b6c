"""A clean Mac has no finding; each smallest change has the one that it should, and no other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from opcheck.common.versions import Version
from opcheck.data.registrations import OpLists
from opcheck.features.doctor.checks import RULES
from opcheck.features.doctor.examine import examine
from opcheck.features.doctor.machine_environment import Computer, Environment
from tests.features.doctor.macs import CLEAN, GIB, mac

HIGH = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
LOW = "PYTORCH_MPS_LOW_WATERMARK_RATIO"
FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
PROFILE = "PYTORCH_MPS_LOG_PROFILE_INFO"

LINUX = msgspec.structs.replace(CLEAN, machine=Computer(system="Linux"))


def examined(environment: Environment, lists: OpLists, **others: Path) -> dict[str, str]:
    """The messages by their codes."""
    requirements = (others.pop("requirements"),) if "requirements" in others else ()
    diagnosis = examine(environment, lists, requirements=requirements, **others)
    return {finding.rule: finding.message for finding in diagnosis.findings}


@pytest.mark.parametrize(
    ("environment", "codes"),
    [
        (CLEAN, []),
        # macOS and its pair with torch
        (mac(machine_macos="14.7"), ["OC301"]),
        (mac(machine_macos="15.0"), []),
        (mac(machine_macos="13.6", torch_version="2.9.1", packages={}), ["OC301"]),
        (mac(machine_macos="13.6", torch_version="2.8.0", packages={}), ["OC302"]),
        (mac(machine_macos="26.1", torch_version="2.9.1", packages={}), ["OC302"]),
        (mac(machine_macos="26.1"), []),
        (mac(machine_macos="14.7", torch_version="2.14.1", packages={}), ["OC302"]),
        (mac(torch_version="2.14.1", packages={}), ["OC302"]),
        (mac(torch_version="2.14.1", packages={}, python_version="3.10.4"), []),
        (mac(machine_macos="27.0"), ["OC307"]),
        # chips
        (mac(machine_chip="Intel(R) Core(TM) i9-9880H", python_architecture="x86_64"), ["OC303"]),
        (mac(machine_translated=True, python_architecture="x86_64"), ["OC304"]),
        # virtual machines
        (mac(machine_virtual=True), ["OC305"]),
        (mac(machine_model="VirtualMac2,1", machine_virtual=None), ["OC305"]),
        (mac(machine_hosted="GitHub-hosted"), ["OC305"]),
        # memory
        (mac(machine_memory=8 * GIB), ["OC306"]),
        (mac(machine_memory=9 * GIB), []),
        # the installation
        (mac(torch=None, packages={}), ["OC310"]),
        (mac(torch=None, packages={}, python_version="3.7.17"), ["OC310", "OC311"]),
        (mac(torch_built=False, torch_available=False), ["OC312"]),
        (mac(torch_available=False), ["OC313"]),
        (mac(torch_available=False, machine_virtual=True), ["OC305"]),
        (mac(torch_problem="ImportError: dlopen", torch_built=None, torch_available=None), ["OC314"]),
        (mac(torch_version="2.15.0.dev20261001"), ["OC315"]),
        (mac(torch_version="1.12.1", packages={}), ["OC316"]),
        (mac(torch_version="2.16.0", packages={}), ["OC316"]),
        # variables
        (mac(variables={"PYTORCH_MPS_LOG_LEVEL": "1"}), ["OC320"]),
        (mac(variables={"PYTORCH_ENABLE_MPS_FALBACK": "1"}), ["OC320"]),
        (mac(variables={"PYTORCH_MPS_SOMETHING_ELSE_ENTIRELY": "1"}), ["OC320"]),
        (mac(variables={"PYTORCH_MPS_METAL_VERSION": "4.0"}), []),
        (
            mac(
                variables={"PYTORCH_MPS_METAL_VERSION": "4.0"},
                torch_version="2.14.1",
                packages={},
                python_version="3.10.4",
            ),
            ["OC321"],
        ),
        (mac(variables={FALLBACK: "true"}), ["OC322"]),
        (mac(variables={FALLBACK: ""}), ["OC322"]),
        (mac(variables={FALLBACK: "0"}), []),
        (mac(variables={HIGH: "0.7"}), ["OC323"]),
        (mac(variables={HIGH: "0.7", LOW: "0.7"}), []),
        (mac(variables={HIGH: "1.4"}), []),
        (mac(variables={HIGH: "2.1"}), ["OC323"]),
        (mac(variables={LOW: "1.8"}), ["OC323"]),
        (mac(variables={LOW: "-0.1"}), ["OC323"]),
        (mac(variables={HIGH: "0.0"}), ["OC324"]),
        (mac(variables={PROFILE: "1024"}), ["OC325"]),
        (mac(variables={PROFILE: "0x80"}), ["OC325"]),
        (mac(variables={PROFILE: "0x81"}), []),
        (mac(variables={"PYTORCH_DEBUG_MPS_ALLOCATOR": "32"}), ["OC325"]),
        (mac(variables={PROFILE: "4"}), ["OC326"]),
        (mac(variables={PROFILE: "4", FALLBACK: "1"}), []),
        (mac(variables={PROFILE: "5"}), []),
        # packages
        (mac(packages={"torchvision": "0.28.0"}), ["OC330"]),
        (mac(packages={"torchvision": "0.29.2"}), []),
        (mac(packages={"torchaudio": "2.10.0"}), ["OC330"]),
        (mac(packages={"flash_attn": "2.8.0"}), ["OC331"]),
        (mac(packages={"bitsandbytes": "0.48.2"}), ["OC331"]),
        (mac(packages={"bitsandbytes": "0.49.0"}), []),
        # elsewhere: only what does not depend on the machine
        (LINUX, []),
        (
            msgspec.structs.replace(
                LINUX, variables={"PYTORCH_MPS_LOG_LEVEL": "1"}, packages={"torchvision": "0.28.0", "triton": "3.4.0"}
            ),
            ["OC320", "OC330"],
        ),
    ],
)
def test_each_environment_has_its_codes(environment: Environment, codes: list[str], lists: OpLists) -> None:
    assert sorted(examined(environment, lists)) == codes


def test_the_mend_is_a_command_that_helps(lists: OpLists) -> None:
    old = mac(machine_macos="14.7", packages={})
    (finding,) = examine(old, lists).findings
    assert 'pip install "torch==2.14.*"' in finding.hint
    assert finding.prints == "The MPS backend is supported on macOS 15.0+."
    mended = mac(machine_macos="14.7", torch_version="2.14.1", packages={})
    assert list(examined(mended, lists)) == ["OC302"]


def test_a_conda_for_intel_is_mended_by_conda(lists: OpLists) -> None:
    translated = {"machine_translated": True, "python_architecture": "x86_64"}
    (finding,) = examine(mac(**translated, python_conda=True), lists).findings
    assert "CONDA_SUBDIR=osx-arm64 conda create" in finding.hint
    (finding,) = examine(mac(**translated), lists).findings
    assert "/opt/homebrew/bin/python3 -m venv" in finding.hint


def test_a_python_that_is_not_known_is_told(lists: OpLists) -> None:
    diagnosis = examine(mac(machine_macos="14.7", python_version=""), lists)
    assert [finding.rule for finding in diagnosis.findings] == ["OC301"]
    assert "OC302" in diagnosis.unknown["the version of Python"]


def test_the_nearest_real_name_is_proposed_with_the_value(lists: OpLists) -> None:
    (finding,) = examine(mac(variables={"PYTORCH_MPS_FAST_MATHS": "1"}), lists).findings
    assert finding.hint == "unset PYTORCH_MPS_FAST_MATHS; export PYTORCH_MPS_FAST_MATH=1"


def test_a_newer_torch_is_proposed_only_where_pip_finds_it(lists: OpLists) -> None:
    new = mac(machine_macos="26.1", torch_version="2.9.1", packages={})
    assert "torch 2.15 does not have" in examined(new, lists)["OC302"]
    old_python = mac(machine_macos="26.1", torch_version="2.9.1", packages={}, python_version="3.10.1")
    assert "torch 2.14 does not have" in examined(old_python, lists)["OC302"]


def test_an_advisory_that_programs_hardly_meet_is_no_reason_to_change(lists: OpLists) -> None:
    frequent = mac(machine_macos="26.1", torch_version="2.13.0", packages={})
    message = examined(frequent, lists)["OC302"]
    assert "conv3d-contiguous" in message
    rare = lists.statements.by_id["linear-bias-batch-65536"]
    assert rare.rare
    assert [line for line in (13, 14) if Version(2, line) in rare.torch] == [13]
    assert rare.id not in message


def test_what_torch_measured_is_said_as_such(lists: OpLists) -> None:
    (measured,) = examine(mac(machine_memory=8 * GIB), lists).findings
    assert "torch reports that Metal recommends at most 10.7 GiB" in measured.message
    (expected,) = examine(mac(machine_memory=8 * GIB, torch_recommended=None), lists).findings
    assert "expected to recommend at most 5.3 GiB" in expected.message


def test_a_hosted_runner_runs_mps_with_little_memory(lists: OpLists) -> None:
    hosted, other = (
        examine(item, lists).findings[0] for item in (mac(machine_hosted="GitHub-hosted"), mac(machine_virtual=True))
    )
    assert (hosted.severity, other.severity) == ("warning", "warning")
    assert "MPS runs on its virtual GPU, with about 1 GB of memory" in hosted.message
    assert "1 GB" not in other.message


def test_a_script_that_sets_a_variable_too_late(lists: OpLists, tmp_path: Path) -> None:
    late = tmp_path / "late.py"
    late.write_text(f'import torch\nimport os\nos.environ["{FALLBACK}"] = "1"\n', encoding="utf-8")
    early = tmp_path / "early.py"
    early.write_text(f'import os\nos.environ["{FALLBACK}"] = "1"\nimport torch\n', encoding="utf-8")
    assert list(examined(CLEAN, lists, script=late)) == ["OC327"]
    assert not examined(CLEAN, lists, script=early)


def test_requirements_that_a_mac_cannot_meet(lists: OpLists, tmp_path: Path) -> None:
    text = "torch==2.15.*\nflash-attn>=2\nnumpy\ntriton; sys_platform == 'linux'\n"
    plain = tmp_path / "requirements.txt"
    plain.write_text(text, encoding="utf-8")
    diagnosis = examine(CLEAN, lists, requirements=[plain])
    (finding,) = diagnosis.findings
    assert (finding.rule, finding.severity) == ("OC332", "error")
    assert str(finding.locations[0].location).endswith("requirements.txt:2")
    old_python = mac(python_version="3.10.4")
    assert sorted(examined(old_python, lists, requirements=plain)) == ["OC311", "OC332"]
    assert "3.11, 3.12, 3.13, 3.14, 3.15" in examined(old_python, lists, requirements=plain)["OC311"]
    project = tmp_path / "pyproject.toml"
    project.write_text('[project.optional-dependencies]\ncuda = ["triton"]\n', encoding="utf-8")
    assert [item.severity for item in examine(CLEAN, lists, requirements=[project]).findings] == ["warning"]


def test_what_is_not_known_is_told_and_not_passed(lists: OpLists) -> None:
    diagnosis = examine(LINUX, lists)
    assert set(diagnosis.unknown["a Mac"]) >= {"OC301", "OC303", "OC305", "OC312"}
    assert not set(diagnosis.checked) & {code for ids in diagnosis.unknown.values() for code in ids}
    bare = mac(machine_macos="", machine_chip="", machine_translated=None)
    assert set(examine(bare, lists).unknown) == {"the macOS version", "the chip"}
    assert examine(mac(machine_memory=None), lists).unknown == {"the memory": ("OC306",)}
    assert not examine(CLEAN, lists).unknown


def test_every_check_has_fired_in_this_file() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [check.id for check in RULES if f'"{check.id}"' not in source] == []
