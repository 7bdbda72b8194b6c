"""The environment variables: what the file says, what the wheels hold, and damaged files."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError, UsageError
from opcheck.common.versions import Version
from opcheck.data.environment import ENVIRONMENT as FILE_OF_VARIABLES
from opcheck.data.environment import FOUND
from opcheck.data.files import read_releases
from opcheck.data.registrations import data_directory
from opcheck.data.strict_yaml import read

ENVIRONMENT = FILE_OF_VARIABLES.load()
RELEASES, _ = read_releases(data_directory() / "releases.yaml")
LINES = [release.line for release in RELEASES]
RECORDED = read(data_directory() / FOUND, FOUND)


def test_every_wheel_was_read() -> None:
    assert not RECORDED.problems
    releases = RECORDED.value["releases"]
    assert list(releases) == LINES
    assert [releases[r.line]["wheel"] for r in RELEASES] == [r.wheel for r in RELEASES]


@pytest.mark.parametrize("line", LINES)
def test_a_release_reads_what_stands_in_its_wheel(line: str) -> None:
    result = RECORDED.value["releases"][line]["names"]
    assert [variable.name for variable in ENVIRONMENT.known(line)] == list(result)
    assert not result.keys() & ENVIRONMENT.invented.keys()


#: Counted by another program.
@pytest.mark.parametrize(
    ("line", "count"), [("1.13", 4), ("2.0", 4), ("2.1", 6), ("2.3", 7), ("2.5", 8), ("2.12", 8), ("2.13", 9)]
)
def test_how_many_there_are(line: str, count: int) -> None:
    assert len(ENVIRONMENT.known(line)) == count


@pytest.mark.parametrize(
    ("name", "line", "status", "says"),
    [
        ("PYTORCH_ENABLE_MPS_FALLBACK", "1.13", "read", "runs on the CPU"),
        ("PYTORCH_MPS_FAST_MATH", "2.4", "later", "it came with 2.5"),
        ("PYTORCH_MPS_FAST_MATH", "2.10", "read", "fast math"),
        ("PYTORCH_MPS_LOG_LEVEL", "2.13", "invented", "PYTORCH_MPS_LOG_PROFILE_INFO=4"),
        ("PYTORCH_DISABLE_MPS", "2.13", "invented", "no release of PyTorch reads"),
        ("PYTORCH_MPS_SOMETHING", "2.13", "unknown", "does not read it"),
        ("OMP_NUM_THREADS", "2.13", "unknown", "does not know OMP_NUM_THREADS"),
    ],
)
def test_a_name_is_explained(name: str, line: str, status: str, says: str) -> None:
    explained = ENVIRONMENT.explain(name, Version.parse(line))
    assert explained.status == status
    assert says in explained.text
    assert (explained.variable is not None) == (name in ENVIRONMENT.variables)


def test_the_bits_are_powers_of_two_in_their_order() -> None:
    with_bits = [variable for variable in ENVIRONMENT.variables.values() if variable.bits]
    assert len(with_bits) == 3
    for variable in with_bits:
        values = [bit.value for bit in variable.bits]
        assert values == sorted(set(values))
        assert all(value.bit_count() == 1 for value in values)
    log = ENVIRONMENT.variables["PYTORCH_MPS_LOG_PROFILE_INFO"]
    assert sum(bit.value for bit in log.bits) == 1023


def test_a_line_that_is_none() -> None:
    with pytest.raises(UsageError, match="not a version"):
        ENVIRONMENT.known("new")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('since: "2.5"', "since: 2.5", "write a version"),
        ('since: "2.5"', 'since: "2.5.1"', "in quotes: 2.5.1"),
        ("  PYTORCH_MPS_LOG_LEVEL:", "  PYTORCH_MPS_FAST_MATH:", "not invented"),
        ("  PYTORCH_MPS_LOG_LEVEL:", "  LOG_LEVEL:", "matching regex"),
        ("schema: 1", "schema: 2", "the schema must be 1"),
        ("invented:", "made_up:", "unknown field `made_up`"),
        ("  PYTORCH_MPS_FALLBACK:", "  PYTORCH_MPS_LOG_LEVEL:", "occurs twice"),
        ("kind: binary", "kind: rumour", "Invalid enum value 'rumour'"),
    ],
)
def test_damage_is_reported_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (data_directory() / FILE_OF_VARIABLES.name).read_text()
    assert old in text
    (tmp_path / FILE_OF_VARIABLES.name).write_text(text.replace(old, new, 1))
    with pytest.raises(OpListError, match="environment") as caught:
        FILE_OF_VARIABLES.load(tmp_path)
    assert message in caught.value.message
    assert f"{FILE_OF_VARIABLES.name}:" in caught.value.message


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OpListError, match="cannot be read"):
        FILE_OF_VARIABLES.load(tmp_path)


def test_the_script_tells_differences(tmp_path: Path) -> None:
    """Wheels that hold one variable too few, an invented one, and one that nobody knows."""
    for release in RELEASES:
        names = [variable.name for variable in ENVIRONMENT.known(release.line)]
        names.append("PYTORCH_MPS_LOG_LEVEL" if release.line == "2.6" else names[0])
        names.append("PYTORCH_MPS_NEW" if release.line == "2.7" else names[0])
        if release.line == "2.8":
            names.remove("PYTORCH_MPS_FAST_MATH")
        text = "\0" + "\0".join(names) + "\0 set PYTORCH_MPS_TOLD=1 in a text\0"
        with zipfile.ZipFile(tmp_path / release.wheel, "w") as wheel:
            wheel.writestr("torch/lib/libtorch_cpu.dylib", text)
    script = Path(__file__).parents[2] / "scripts/check_environment.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "OPCHECK_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    library = "torch/lib/libtorch_cpu.dylib"
    assert done.stdout.splitlines() == [
        f"torch 2.6: PYTORCH_MPS_LOG_LEVEL is called invented, and stands in {library}",
        f"torch 2.7: PYTORCH_MPS_NEW is not expected, and stands in {library}",
        "torch 2.8: PYTORCH_MPS_FAST_MATH is not in the wheel",
        f"{len(RELEASES)} wheels, 3 differences",
    ]
