"""``opcheck doctor``: formats, files and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from opcheck.features.doctor.machine_environment import Environment, dump
from tests.cli.test_command_line import modules_after
from tests.command_line import CommandLine
from tests.features.doctor.macs import CLEAN, mac

WRONG = mac(variables={"PYTORCH_MPS_LOG_LEVEL": "1"}, machine_virtual=True)


def written(environment: Environment) -> str:
    Path("environment.json").write_text(dump(environment), encoding="utf-8")
    return "environment.json"


def test_a_clean_mac_says_so(opcheck: CommandLine) -> None:
    result = opcheck("doctor", "--from", written(CLEAN), "--strict")
    assert result.code == 0
    assert result.out.startswith("torch 2.15.0, Python 3.12.4 (arm64), macOS 15.5\n")
    assert "Nothing found, by " in result.out
    assert "Unknown" not in result.out
    assert "nothing was observed on a Mac" in result.out


def test_a_finding_has_its_code_and_its_mend(opcheck: CommandLine) -> None:
    result = opcheck("doctor", "--from", written(WRONG))
    assert result.code == 1
    assert "1 error, 1 warning" in result.out
    assert "error OC320 no release of PyTorch reads PYTORCH_MPS_LOG_LEVEL" in result.out
    assert "    help: unset PYTORCH_MPS_LOG_LEVEL. PYTORCH_MPS_LOG_PROFILE_INFO=4" in result.out
    assert max(map(len, result.out.splitlines())) <= 100


def test_all_formats_carry_the_same_findings(opcheck: CommandLine) -> None:
    path = written(WRONG)
    content = json.loads(opcheck("doctor", "--from", path, "-f", "json").out)
    assert content["schema"] == "opcheck-doctor/2"
    assert [item["rule"] for item in content["findings"]] == ["OC320", "OC305"]
    assert yaml.safe_load(opcheck("doctor", "--from", path, "-f", "yaml").out) == content
    assert "**error OC320** " in opcheck("doctor", "--from", path, "-f", "markdown").out


@pytest.mark.parametrize(
    ("environment", "codes"),
    [
        (WRONG, (1, 1, 1, 0)),
        (mac(machine_virtual=True), (0, 1, 1, 0)),
        (mac(machine_memory=8 << 30), (0, 0, 1, 0)),
        (CLEAN, (0, 0, 0, 0)),
    ],
)
def test_exit_codes(opcheck: CommandLine, environment: Environment, codes: tuple[int, ...]) -> None:
    path = written(environment)
    levels = ("error", "warning", "note", "never")
    result = tuple(opcheck("doctor", "--from", path, "--fail-on", level).code for level in levels)
    assert result == codes


def test_strict_does_not_pass_what_could_not_be_told(opcheck: CommandLine) -> None:
    path = written(mac(machine_macos="", packages={}))
    assert opcheck("doctor", "--from", path).code == 0
    assert opcheck("doctor", "--from", path, "--strict").code == 3


def test_no_mac_is_told_plainly_and_its_facts_travel(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("opcheck.features.doctor.machine_environment._torch", lambda: CLEAN.torch)
    facts = opcheck("doctor", "--gather")
    assert (facts.code, json.loads(facts.out)["machine"]["system"]) == (0, "Linux")
    assert opcheck("doctor", "--gather", "-o", "there.json").out == ""
    result = opcheck("doctor", "--from", "there.json")
    assert "This is Linux, not a Mac" in result.out
    assert "without a Mac: OC301" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "nothing.json"), "No such file"),
        (("--script", "nothing.py"), "nothing.py"),
        (("--requirements", "nothing.txt"), "cannot read the requirements"),
        (("--gather", "-f", "json"), "--gather takes no other flag: it only writes the facts"),
        (("--fail-on", "much"), "much"),
    ],
)
def test_bad_input_is_three_lines(
    opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr("opcheck.features.doctor.machine_environment._torch", lambda: CLEAN.torch)
    result = opcheck("doctor", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert len(result.err.splitlines()) == 3


def test_a_script_that_is_no_python(opcheck: CommandLine) -> None:
    Path("bad.py").write_text("def f(:", encoding="utf-8")
    result = opcheck("doctor", "--from", written(CLEAN), "--script", "bad.py")
    assert result.code == 2
    assert "cannot read the script" in result.err


def test_each_check_has_its_page(opcheck: CommandLine) -> None:
    assert opcheck("explain", "oc301").out.startswith("# OC301 macos_too_old: ")
    assert "OC332  error    A required package" in opcheck("explain", "-v").out


def test_it_needs_no_torch_in_this_process(opcheck: CommandLine) -> None:
    assert "torch" not in modules_after("doctor", "--from", written(CLEAN))


def test_an_environment_of_somebody_elses_commands_no_terminal(opcheck: CommandLine) -> None:
    hostile = mac(variables={"PYTORCH_MPS_X": "a\x1b[31m\nb"}, machine_chip="Apple \x1b[2J")
    result = opcheck("doctor", "--from", written(hostile))
    assert "\x1b" not in result.out
    assert "a\\x1b[31m b" in result.out
