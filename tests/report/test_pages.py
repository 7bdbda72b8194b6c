"""Every code has a whole page, here and in docs/rules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import opcheck
from opcheck.report import pages
from opcheck.report.pages import PARTS, Page, by_id, groups, parts
from opcheck.rules.rule import SEVERITIES
from scripts import refresh_rules

ROOT = Path(opcheck.__file__).parent
_CODE = re.compile(r"OC\d{3}")
_FENCED = re.compile(r"```\w*\n(.*?)\n```", re.DOTALL)


@pytest.mark.parametrize("rule", by_id().values(), ids=lambda rule: rule.id)
def test_every_page_is_whole(rule: Page) -> None:
    found = parts(rule.page)
    assert [name for name in found if name in PARTS] == list(PARTS)
    assert all(found.values()), "a part without a text"
    assert rule.severity in SEVERITIES
    before, after = (_FENCED.search(found[name]) for name in ("Before", "After"))
    assert before is not None
    assert after is not None
    assert before[1].strip() != after[1].strip()
    assert re.fullmatch(r"opcheck \d+\.\d+\.", found["Since"])


@pytest.mark.parametrize("rule", by_id().values(), ids=lambda rule: rule.id)
def test_an_example_in_python_is_python(rule: Page) -> None:
    for code in re.findall(r"```python\n(.*?)\n```", rule.page, re.DOTALL):
        ast.parse(code)


def test_a_page_that_lacks_a_part_is_seen() -> None:
    assert parts("**What.** x\n\n**Why.**\n\n**Since.** opcheck 0.1.\n") == {
        "What": "x",
        "Why": "",
        "Since": "opcheck 0.1.",
    }


def test_no_code_is_given_twice_and_each_is_in_order() -> None:
    codes = [rule.id for group in groups() for rule in group.rules]
    assert len(codes) == len(set(codes))
    assert codes == sorted(codes)


def test_every_code_that_the_package_names_has_a_page() -> None:
    known = by_id()
    for path in sorted(ROOT.rglob("*.py")):
        unknown = set(_CODE.findall(path.read_text(encoding="utf-8"))) - set(known)
        # OC1xx, OC2xx: families of codes, and codes of examples, have no three digits.
        assert not unknown, f"{path.relative_to(ROOT)} names {', '.join(sorted(unknown))}"


def test_the_documentation_is_what_the_rules_say() -> None:
    assert refresh_rules.stale() == [], "run python scripts/refresh_rules.py"


def test_a_stale_page_is_named(tmp_path: Path) -> None:
    for name, text in pages.files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert refresh_rules.stale(tmp_path) == []
    (tmp_path / "OC101.md").write_text("old", encoding="utf-8")
    (tmp_path / "OC102.md").unlink()
    (tmp_path / "OC999.md").write_text("gone", encoding="utf-8")
    assert refresh_rules.stale(tmp_path) == ["OC101.md", "OC102.md", "OC999.md"]
