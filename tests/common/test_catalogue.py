"""Every rule has one whole page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import opcheck
from opcheck.common import catalogue
from opcheck.common.catalogue import PARTS, CatalogueRule, by_id, discover, groups, pages_folder, parts
from opcheck.common.vocabulary import SEVERITIES
from scripts import refresh_rules

ROOT = Path(opcheck.__file__).parent
_CODE = re.compile(r"OC\d{3}")
_FENCED = re.compile(r"```\w*\n(.*?)\n```", re.DOTALL)


@pytest.mark.parametrize("rule", by_id().values(), ids=lambda rule: rule.id)
def test_every_page_is_whole(rule: CatalogueRule) -> None:
    texts = parts(rule.page)
    assert [name for name in texts if name in PARTS] == list(PARTS)
    assert all(texts.values()), "a part without a text"
    assert rule.severity in SEVERITIES
    before, after = (_FENCED.search(texts[name]) for name in ("Before", "After"))
    assert before is not None
    assert after is not None
    assert before[1].strip() != after[1].strip()
    assert re.fullmatch(r"opcheck \d+\.\d+\.", texts["Since"])


@pytest.mark.parametrize("rule", by_id().values(), ids=lambda rule: rule.id)
def test_an_example_in_python_is_python(rule: CatalogueRule) -> None:
    for code in re.findall(r"```python\n(.*?)\n```", rule.page, re.DOTALL):
        ast.parse(code)


def test_a_page_that_lacks_a_part_is_seen() -> None:
    assert parts("**What.** x\n\n**Why.**\n\n**Since.** opcheck 0.1.\n") == {
        "What": "x",
        "Why": "",
        "Since": "opcheck 0.1.",
    }


def test_no_code_is_given_twice_and_each_is_in_order() -> None:
    codes = [rule.id for rules in groups().values() for rule in rules]
    assert len(codes) == len(set(codes))
    assert codes == sorted(codes)


def test_every_code_that_the_package_names_has_a_page() -> None:
    known = by_id()
    for path in sorted(ROOT.rglob("*.py")):
        unknown = set(_CODE.findall(path.read_text(encoding="utf-8"))) - set(known)
        # OC1xx, OC2xx: families of codes, and codes of examples, have no three digits.
        assert not unknown, f"{path.relative_to(ROOT)} names {', '.join(sorted(unknown))}"


def test_each_rule_has_one_page_and_each_page_one_rule() -> None:
    pages = {path.stem for path in pages_folder().glob("OC*.md")}
    assert pages == set(by_id())


def test_the_index_lists_each_rule() -> None:
    written = (pages_folder() / "README.md").read_text(encoding="utf-8")
    assert written == refresh_rules.index(), "run python scripts/refresh_rules.py"


def test_each_rule_of_a_folder_is_discovered() -> None:
    files = Path(ROOT, "judge", "rules").glob("*.py")
    declared = [code for file in files for code in re.findall(r'audit_rule\("(OC\d+)"', file.read_text("utf-8"))]
    assert sorted(declared) == [rule.id for rule in discover("opcheck.judge.rules", CatalogueRule)]


def test_a_page_without_its_heading_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "pages_folder", lambda: tmp_path)
    (tmp_path / "OC998.md").write_text("# OC999 other: of another rule\n\ntext\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"OC998\.md does not begin"):
        catalogue.read_page("OC998")
