"""What the formats for people say, in a user's words (report_words.yaml)."""

from typing import Any

from opcheck.common.yaml_text import load_shipped

_TABLE: dict[str, Any] = load_shipped(__file__, "report_words.yaml")

#: What is wrong of calls, by how often.
WRONG: dict[str, str] = _TABLE["wrong"]
#: What a program's run was, by its tracer.
RUNS: dict[str, str] = _TABLE["runs"]
#: Where a call is made that no line of the program makes.
NOWHERE: dict[str, str] = _TABLE["nowhere"]
#: What the time of a model goes to.
FAMILIES: dict[str, str] = _TABLE["families"]
#: What a comparison with float64 found.
EVENTS: dict[str, str] = _TABLE["events"]
#: What mends a group of findings, and the rules that belong to it.
REMEDIES: dict[str, list[str]] = _TABLE["remedies"]
#: The states that a drawing shows together: the fields of ``html.Series``.
SERIES: list[dict[str, Any]] = _TABLE["series"]
