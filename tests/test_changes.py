"""The files of changes/ are those that towncrier collects at a release."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
KINDS = {
    kind["directory"]
    for kind in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]["type"]
}


def test_each_change_has_a_kind_and_is_a_whole_sentence() -> None:
    for path in (ROOT / "changes").iterdir():
        if path.name == "README.md":
            continue
        name, kind, suffix = path.name.rsplit(".", 2)
        assert name.startswith("+"), f"{path.name}: a change without an issue begins with +"
        assert suffix == "md"
        assert kind in KINDS, path.name
        text = path.read_text(encoding="utf-8")
        assert text.endswith(".\n"), path.name
        assert not text.startswith("- "), f"{path.name}: towncrier makes the list"


def test_the_changelog_has_the_place_for_the_next_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.count("<!-- changes -->\n") == 1
