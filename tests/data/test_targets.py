from __future__ import annotations

import pytest

from opcheck.common.errors import OpcheckError
from opcheck.data.targets import Texts, pairs, releases, systems
from tests.made import make_lists

LISTS = make_lists(lines=("2.9", "2.10", "2.11", "2.12"))


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        ("2.10", ["2.10"]),
        ("2.10.1", ["2.10"]),
        ("2.11.0+cpu", ["2.11"]),
        (">=2.11", ["2.11", "2.12"]),
        ("torch >= 2.11", ["2.11", "2.12"]),
        (">2.11", ["2.12"]),
        ("<=2.10.1", ["2.9", "2.10"]),
        (">=2.10, !=2.11", ["2.10", "2.12"]),
        ("==2.10", ["2.10"]),
        ("last 2", ["2.11", "2.12"]),
        ("newest", ["2.12"]),
        ("all", ["2.9", "2.10", "2.11", "2.12"]),
        (["2.12", "2.9", "<2.10"], ["2.9", "2.12"]),
    ],
)
def test_a_range_of_releases(texts: Texts, lines: list[str]) -> None:
    assert list(map(str, releases(texts, LISTS))) == lines


@pytest.mark.parametrize(
    ("texts", "versions"),
    [
        ("14.4", ["14.4"]),
        ("macOS 15", ["15.0"]),
        (">=15", ["15.0", "26.0"]),
        (["15", "14"], ["14.0", "15.0"]),
        ("last 1", ["26.0"]),
    ],
)
def test_a_range_of_macos(texts: Texts, versions: list[str]) -> None:
    assert list(map(str, systems(texts))) == versions


def test_every_release_goes_with_every_macos_once() -> None:
    ranges = [">=2.11", "2.12"], ["15", "14", "15.0"]
    result = pairs(*ranges, lists=LISTS, cpu_fallback=True).targets
    assert [f"{item.torch} {item.macos}" for item in result] == ["2.11 14.0", "2.11 15.0", "2.12 14.0", "2.12 15.0"]
    assert all(item.cpu_fallback for item in result)


def test_a_release_is_left_out_on_a_macos_on_which_it_does_not_start() -> None:
    result = pairs("2.12", ["13", "15"], lists=LISTS)
    assert [str(target) for target in result.targets] == ["torch 2.12, macOS 15.0"]
    assert result.left_out == ("torch 2.12 does not start its MPS backend on macOS 13.0: it needs 14.0",)


@pytest.mark.parametrize(
    ("torch", "macos", "what", "where", "code"),
    [
        (">=3", "15", "no known version of torch lies in the range", "torch '>=3'", 2),
        (">=2.12,<2.12", "15", "no known version of torch lies", "torch '>=2.12,<2.12'", 2),
        ("~=2.9", "15", "not a range of versions: '~=2.9'", "torch '~=2.9'", 2),
        (">=", "15", "not a range of versions", "torch '>='", 2),
        ("last 0", "15", "there are no 0 newest versions of torch", "torch 'last 0'", 2),
        ("last 9", "15", "there are no 9 newest versions of torch: 4 are known", "last 9", 2),
        ([], "15", "no torch version is named", "torch []", 2),
        ("1.4", "15", "there is no op list for torch 1.4", "torch '1.4'", 2),
        ("2.12", "16", "there is no macOS 16", "macOS '16'", 2),
        ("2.12", "13", "none of these targets exists: torch 2.12", "torch 2.12 with macOS 13", 2),
    ],
)
def test_an_impossible_range_is_said_in_three_lines(
    torch: Texts, macos: Texts, what: str, where: str, code: int
) -> None:
    with pytest.raises(OpcheckError) as caught:
        pairs(torch, macos, lists=LISTS)
    first, second, third = str(caught.value).splitlines()
    assert first.startswith(what)
    assert where in second
    assert third.startswith("  help: ")
    assert caught.value.exit_code == code
