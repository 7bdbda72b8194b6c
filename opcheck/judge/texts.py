"""What verdicts and findings say, in a user's words (texts.yaml)."""

from typing import Any

from opcheck.common.yaml_text import load_shipped

_TABLE: dict[str, Any] = load_shipped(__file__, "texts.yaml")

MEANINGS: dict[str, str] = _TABLE["meanings"]
#: Reasons of verdicts that no registration gives.
REASONS: dict[str, str] = _TABLE["reasons"]
EXTENSIONS: dict[str, str] = _TABLE["extensions"]
REFUSALS: dict[str, str] = _TABLE["refusals"]
#: What a report has not checked.
NOT_CHECKED: dict[str, str] = _TABLE["not_checked"]
AFTER_REFUSAL: dict[str, str] = _TABLE["after_refusal"]
AFTER_PROBLEM: dict[str, str] = _TABLE["after_problem"]
ORIGINS: dict[str, dict[str, str]] = _TABLE["origins"]
INSTEAD: dict[str, str] = _TABLE["instead"]
QUANTIZED: dict[str, str] = _TABLE["quantized"]
#: What the estimate of the memory counts, and what would lower it.
MEMORY: dict[str, str] = _TABLE["memory"]
#: How calls begin a dtype: the prefixes of their names; and the operators that make another view of memory.
BEGINS: dict[str, list[str]] = _TABLE["begins"]
VIEWS: list[str] = _TABLE["views"]
#: What computes a call beyond a limit, by its route.
COMPUTED: dict[str, str] = _TABLE["computed"]
