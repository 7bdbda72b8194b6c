"""What is known of the memory of Macs, and that the file cannot say nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.errors import OpListError, UsageError
from opcheck.common.versions import MACOS_MAJORS, Version
from opcheck.data.macs import MACS, MacOptions, NamedMac, chips_by_memory, find_macs
from opcheck.data.registrations import data_directory

GIB = 1 << 30


def test_every_size_has_figures_for_every_macos() -> None:
    macs = MACS.load().sized
    assert [mac.memory for mac in macs] == [8, 16, 18, 24, 32, 36, 48, 64, 96, 128, 192, 256, 512]
    for mac in macs:
        for major in MACOS_MAJORS:
            figures = mac.on(Version(major))
            assert mac.memory * GIB / 2 < figures.nbytes < mac.memory * GIB * 0.9
            assert figures.buffer < figures.nbytes


@pytest.mark.parametrize(
    ("memory", "allowed"),
    [
        *[(8, 9.07), (16, 18.13), (32, 36.27), (64, 81.60), (128, 163.20)],
        # Seen in other threads; the shares of two thirds and three quarters give the same.
        *[(18, 20.40), (24, 27.20), (36, 45.90)],
    ],
)
def test_the_limit_is_what_torch_printed_on_such_macs(memory: int, allowed: float) -> None:
    # "max allowed" of the out-of-memory errors that the file names, with the default ratio of 1.7.
    (mac,) = [mac for mac in MACS.load().sized if mac.memory == memory]
    assert mac.on(Version(14)).nbytes * 1.7 / GIB == pytest.approx(allowed, abs=0.01)


def _damaged(directory: Path, old: str, new: str) -> str:
    text = (data_directory() / MACS.name).read_text(encoding="utf-8")
    assert old in text
    (directory / MACS.name).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(OpListError) as raised:
        MACS.load(directory)
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
        ("M3 Pro: [18, 36]", "M3 Pro: [20]", "chips.memory.M3 Pro: sizes of macs"),
        ("memory: 8", "memory: eight", "Expected `int`, got `str`"),
        ("memory: 8", "memory: 8\n    memory: 8", "memory"),
    ],
)
def test_damage_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in _damaged(tmp_path, old, new)


@pytest.mark.parametrize(
    ("text", "macs"),
    [
        ("M4 Pro 24 GB", ["M4 Pro 24 GB"]),
        ("m4pro/48gb", ["M4 Pro 48 GB"]),
        ("MacBook Pro (Apple M1, 16 GB)", ["M1 16 GB"]),
        ("M2 Ultra", ["M2 Ultra 64 GB", "M2 Ultra 128 GB", "M2 Ultra 192 GB"]),
        ("36 GB", ["36 GB"]),
        ("20", ["20 GB"]),
    ],
)
def test_a_mac_has_a_name(text: str, macs: list[str]) -> None:
    assert [str(mac) for mac in find_macs(text)] == macs


def test_all_names_every_mac_that_is_sold() -> None:
    macs = find_macs("All")
    assert len(macs) == sum(map(len, chips_by_memory().values())) == len(set(macs))
    assert macs[0] == NamedMac("M1", 8)
    assert macs[-1] == NamedMac("M3 Ultra", 512)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("M4 Pro 20 GB", "the M4 Pro is sold with 24, 48, 64 GB"),
        ("M9", "the chips are M1, M1 Pro"),
        ("toaster", "write a chip, a memory or both, or all: M1"),
        ("", "write a chip, a memory or both, or all: M1"),
        ("0 GB", "the memory of a Mac is at least 1 GB"),
    ],
)
def test_a_name_without_a_mac_lists_those_that_exist(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        find_macs(text)
    assert hint in raised.value.hint


def test_the_mac_that_decides_has_the_least_memory_of_its_chip() -> None:
    assert MacOptions(mac="M4 Pro").decisive_memory() == 24
    assert MacOptions(mac="M4 Pro", memory=48).macs() == (NamedMac("M4 Pro", 48),)
    assert MacOptions(memory=20).decisive_memory() == 20
    assert MacOptions(mac="all").decisive_memory() == 0
    assert MacOptions().macs() == ()
    with pytest.raises(UsageError) as raised:
        MacOptions(mac="M4 Pro", memory=16).macs()
    assert raised.value.hint == "leave out --memory or --mac"
