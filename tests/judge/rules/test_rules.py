"""What holds for all rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opcheck.common.catalogue import CatalogueRule
from opcheck.common.vocabulary import SEVERITIES
from opcheck.judge.rules import BY_ID, RULES
from tests.made import make_report


def test_the_registry_has_the_rules_in_the_order_of_their_codes() -> None:
    assert [*BY_ID] == sorted(rule.id for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_page_with_its_four_parts(rule: CatalogueRule) -> None:
    names = ["What", "Why", "Way out", "Evidence"]
    assert [part for part in re.findall(r"^\*\*(.+?)\.\*\*", rule.page, re.MULTILINE) if part in names] == names
    assert rule.severity in SEVERITIES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_test(rule: CatalogueRule) -> None:
    assert (Path(__file__).parent / f"test_{rule.id.lower()}_{rule.slug}.py").is_file()


def test_an_empty_trace_has_no_findings() -> None:
    assert make_report().findings == ()
