"""What is known of the memory of Macs, and that the file cannot say nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import MACOS_MAJORS, Version
from opcheck.data.macs import MACS, load_macs
from opcheck.data.registrations import data_directory

GIB = 1 << 30


def test_every_size_has_figures_for_every_macos() -> None:
    macs = load_macs()
    assert [mac.memory for mac in macs] == [8, 16, 24, 32, 64, 128]
    for mac in macs:
        for major in MACOS_MAJORS:
            known = mac.on(Version(major))
            assert mac.memory * GIB / 2 < known.nbytes < mac.memory * GIB * 0.9
            assert known.buffer < known.nbytes


@pytest.mark.parametrize(
    ("memory", "allowed"), [(8, 9.07), (16, 18.13), (32, 36.27), (64, 81.60), (128, 163.20)]
)
def test_the_limit_is_what_torch_printed_on_such_macs(memory: int, allowed: float) -> None:
    # "max allowed" of the out-of-memory errors that the file names, with the default ratio of 1.7.
    (mac,) = [mac for mac in load_macs() if mac.memory == memory]
    assert mac.on(Version(14)).nbytes * 1.7 / GIB == pytest.approx(allowed, abs=0.01)


def _damaged(directory: Path, old: str, new: str) -> str:
    text = (data_directory() / MACS.name).read_text(encoding="utf-8")
    assert old in text
    (directory / MACS.name).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(OpListError) as raised:
        load_macs(directory)
    return raised.value.message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mib: 5461", "mib: 9000", "macs.0.working_sets.0.mib: a Mac of 8 GB has less"),
        ('until: "26.0"', "until: null", "macOS 26 has 2 figures, not one"),
        ("basis: reported", "basis: heard", "Invalid enum value 'heard'"),
        ("memory: 8", "memory: 20", "the smallest first"),
        ("denominator: 4", "denominator: 2", "a share between 0 and 1"),
        ("kind: inferred", "kind: guessed", "Invalid enum value 'guessed'"),
        ("schema: 1", "schema: 2", "the schema must be 1"),
        ("memory: 8", "memory: eight", "Expected `int`, got `str`"),
        ("memory: 8", "memory: 8\n    memory: 8", "memory"),
    ],
)
def test_damage_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in _damaged(tmp_path, old, new)
