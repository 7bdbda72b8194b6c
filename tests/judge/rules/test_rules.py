"""What holds for all rules."""

from __future__ import annotations

from pathlib import Path

import pytest

import opcheck.judge.rules
from opcheck.common.catalogue import Rule
from opcheck.common.vocabulary import SEVERITIES
from opcheck.judge.rules import BY_ID, RULES
from tests.made import make_report


def test_the_registry_holds_every_file_in_order() -> None:
    files = sorted(Path(opcheck.judge.rules.__file__).parent.glob("oc*.py"))
    assert [f"{rule.id.lower()}_{rule.slug}" for rule in RULES] == [file.stem for file in files]
    assert len(BY_ID) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_page_with_its_four_parts(rule: Rule) -> None:
    parts = [rule.page.index(f"**{part}.**") for part in ("What", "Why", "Way out", "Evidence")]
    assert parts == sorted(parts)
    assert rule.severity in SEVERITIES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_test(rule: Rule) -> None:
    assert (Path(__file__).parent / f"test_{rule.id.lower()}_{rule.slug}.py").is_file()


def test_an_empty_trace_has_no_findings() -> None:
    assert make_report().findings == ()
