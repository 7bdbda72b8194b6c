from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcheck.common.errors import UnknownTargetError, UsageError
from opcheck.common.versions import Span, Target, Version, parse_macos, parse_torch

_SMALL = [Version(major, minor) for major, minor in product(range(4), range(3))]
_VERSIONS = st.builds(Version, st.integers(0, 99), st.integers(0, 99))
_ENDS = st.one_of(st.none(), st.sampled_from(_SMALL[1:-1]))
_SPANS = st.builds(Span, since=_ENDS, until=_ENDS)
_KNOWN = (Version(2, 9), Version(2, 10), Version(2, 13))


@given(_VERSIONS)
def test_parse_reads_back_what_str_writes(version: Version) -> None:
    assert Version.parse(str(version)) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.13", Version(2, 13)),
        ("2.10", Version(2, 10)),
        ("2.13.1", Version(2, 13)),
        ("2.6.0.dev20241101", Version(2, 6)),
        ("2.13.0+cpu", Version(2, 13)),
        ("15", Version(15, 0)),
        ("14.2.1", Version(14, 2)),
    ],
)
def test_spellings_of_versions(text: str, version: Version) -> None:
    assert Version.parse(text) == version


@pytest.mark.parametrize("text", ["", "x", "v2.13", "2.", "2.13 ", "-1.0"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(UsageError):
        Version.parse(text)


def test_ten_is_more_than_nine() -> None:
    assert Version(2, 10) > Version(2, 9)


@given(_SPANS, _SPANS)
def test_overlaps_is_what_trying_every_version_says(item: Span, other: Span) -> None:
    # The ends lie strictly inside the small world, so a version on each side of them is in it.
    assert item.overlaps(other) == any(v in item and v in other for v in _SMALL)


@given(_SPANS, _SPANS)
def test_overlaps_is_symmetric(item: Span, other: Span) -> None:
    assert item.overlaps(other) == other.overlaps(item)


@given(_SPANS)
def test_an_empty_span_holds_no_version(span: Span) -> None:
    assert span.empty == (not any(version in span for version in _SMALL))


def test_spans_are_half_open() -> None:
    span = Span(since=Version(2, 6), until=Version(2, 9))
    assert Version(2, 6) in span
    assert Version(2, 9) not in span


@pytest.mark.parametrize("text", ["2.10", "2.10.1", "2.10.0.dev20260101"])
def test_a_patch_or_nightly_maps_to_its_line(text: str) -> None:
    assert parse_torch(text, _KNOWN) == Version(2, 10)


def test_a_release_newer_than_the_lists_is_judged_as_the_newest() -> None:
    assert parse_torch("2.99", _KNOWN) == max(_KNOWN)


def test_a_target_newer_than_the_lists_says_what_it_is_judged_as() -> None:
    assert Target(torch=Version(2, 13), macos=Version(26, 1)).beyond == ""
    newer = Target(torch=Version(2, 13), macos=Version(27), newer_torch="2.99")
    assert "torch 2.99 is newer than the op lists: judged as 2.13" in str(newer)
    assert "macOS 27 is newer than the op lists: judged as 26" in str(newer)


def test_an_unknown_release_names_the_nearest() -> None:
    with pytest.raises(UnknownTargetError) as caught:
        parse_torch("2.11", _KNOWN)
    assert caught.value.exit_code == 2
    assert caught.value.hint == "the nearest are 2.9, 2.10, 2.13"


def test_macos_versions() -> None:
    assert parse_macos("26.1", Version(14), Version(2, 13)) == Version(26, 1)
    assert parse_macos("27.1", Version(14), Version(2, 13)) == Version(27, 1)
    with pytest.raises(UnknownTargetError, match="no macOS 16"):
        parse_macos("16", Version(14), Version(2, 13))
    with pytest.raises(UnknownTargetError, match="does not start"):
        parse_macos("13.6", Version(14), Version(2, 13))


def test_a_target_says_whether_the_variable_is_set() -> None:
    target = Target(torch=Version(2, 13), macos=Version(15), cpu_fallback=True)
    assert str(target) == "torch 2.13, macOS 15.0, PYTORCH_ENABLE_MPS_FALLBACK=1"
