"""For which Python there is a wheel, and that the file cannot say nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Version
from opcheck.data.packages import PYTHONS
from opcheck.data.registrations import OpLists, data_directory


def test_the_wheels_that_were_read_are_of_a_python_in_the_file(lists: OpLists) -> None:
    for release in lists.releases:
        tag = release.wheel.split("-")[-3]
        python = Version(3, int(tag.removeprefix("cp3")))
        assert python in PYTHONS.load().pythons(Version.parse(release.line))


def test_every_release_has_a_python(lists: OpLists) -> None:
    assert PYTHONS.load().pythons(Version(2, 15))[0] == Version(3, 11)
    assert all(PYTHONS.load().pythons(Version.parse(release.line)) for release in lists.releases)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema: 1", "schema: 2", "the schema must be 1"),
        ('"3.8": {since: null, until: "2.5"}', '"3.8": {since: "2.5", until: "2.5"}', "no version"),
        ('"3.8":', '"three":', "matching regex"),
        ('until: "2.3"', 'until: "2"', "write a version"),
        ("pythons:", "snakes:", "unknown field `snakes`"),
    ],
)
def test_damage_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (data_directory() / PYTHONS.name).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / PYTHONS.name).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(OpListError) as raised:
        PYTHONS.load(tmp_path)
    assert said in raised.value.message
