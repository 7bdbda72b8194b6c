"""A statement's span, dtypes and condition against its own evidence: each disagreement is said, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from opcheck.common.versions import Span, Version
from opcheck.data.lint import disagreements
from opcheck.data.statement_model import Argument, Statement, StatementEvidence

LINES = [Version.parse(line) for line in ("2.0", "2.1", "2.2", "2.3")]
ARGUMENTS = {"aten::mm": {"self": Argument(), "mat2": Argument(), "k": Argument(optional=True)}}


def told(evidence: dict[str, Any], until: str | None = "2.2", **fields: Any) -> list[str]:
    span = Span(since=Version.parse("2.1"), until=Version.parse(until) if until else None)
    entry = StatementEvidence(**{"kind": "issue", "where": "https://x.org/1", **evidence})
    statement = Statement(
        id="made",
        sort="advisory",
        ops=("aten::mm",),
        effect="aborts",
        torch=span,
        summary="No.",
        evidence=(entry,),
        **fields,
    )
    return [f"{key}: {message}" for key, message in disagreements(statement, LINES, ARGUMENTS)]


@pytest.mark.parametrize(("release", "inside"), [("2.1", True), ("2.0", False), ("2.2", False)])
def test_a_report_lies_in_the_span(release: str, *, inside: bool) -> None:
    problems = told({"reported": (release,)})
    outside = f"evidence.0.reported: reported on {release}, outside of the span"
    assert problems == ([] if inside else [outside])


@pytest.mark.parametrize(
    ("mended", "until", "agrees"),
    [
        ("2.2", "2.2", True),
        ("2.2.0", "2.2", True),
        ("2.1.1", "2.2", True),
        ("2.3", "2.2", False),
        ("2.1", "2.2", False),
        ("2.3", None, False),
    ],
)
def test_the_span_ends_with_the_change_that_mended_it(mended: str, until: str | None, *, agrees: bool) -> None:
    problems = told({"mended": mended}, until)
    message = f"evidence.0.mended: mended in {mended}, but the span ends at {until}"
    assert problems == ([] if agrees else [message])


@pytest.mark.parametrize(("fixed", "agrees"), [("2.2", True), ("2.1.1", True), ("2.3", False)])
def test_the_span_ends_where_the_fault_is_fixed(fixed: str, *, agrees: bool) -> None:
    assert told({}, fixed=fixed) == ([] if agrees else [f"fixed: fixed in {fixed}, but the span ends at 2.2"])


@pytest.mark.parametrize(
    ("detail", "until", "agrees"),
    [
        ("check string present 2.1.2 to 2.1.2", "2.2", True),
        ("check string present 2.0.1 to 2.3.0", "2.2", True),
        ("check string present 2.0.1 to 2.3.0", None, True),
        ("check string present 2.0.1 to 2.2.2", None, False),
        ("check string present 2.2.0 to 2.3.0", "2.2", False),
        ("getMPSDataType throws for ComplexFloat in 2.0.1 and 2.0.1", "2.2", False),
        ("a kernel of its own from 2.1.0 on", None, True),
    ],
)
def test_the_library_shows_the_whole_span(detail: str, until: str | None, *, agrees: bool) -> None:
    assert (told({"kind": "binary", "detail": detail}, until) == []) == agrees


@pytest.mark.parametrize(
    ("call", "fields", "agrees"),
    [
        ({"self": "float16[2, 3]"}, {"condition": "self.dtype == 'float16'"}, True),
        ({"self": "float32[2, 3]"}, {"condition": "self.dtype == 'float16'"}, False),
        ({"self": "float16[2, 3]"}, {"dtypes": ("float16",)}, True),
        ({"self": "float16[2, 3]@cpu"}, {"dtypes": ("float16",)}, False),
        ({"self": "float32[2] offset 1"}, {"condition": "self.offset > 0"}, True),
        ({"self": "float32[]"}, {"condition": "self.dim == 0"}, True),
        ({"self": "float32[2]", "k": 3}, {"condition": "k > 2"}, True),
        ({"self": "float32[2]", "k": 1}, {"condition": "k > 2"}, False),
        ({"self": "float32[2]"}, {"condition": "mat2.dim == 2"}, True),
        ({"result": "float32[0]"}, {"condition": "result.numel > 0"}, False),
    ],
)
def test_the_reported_call_meets_the_condition_and_the_dtypes(
    call: dict[str, Any], fields: dict[str, Any], *, agrees: bool
) -> None:
    problem = "evidence.0.call: the statement does not apply to the reported call"
    assert told({"call": call}, **fields) == ([] if agrees else [problem])


def test_a_tensor_that_cannot_be_read_is_named() -> None:
    message = "evidence.0.call: self is no tensor such as float16[2, 3]: half[2]"
    assert told({"call": {"self": "half[2]"}}, condition="k is None") == [message]
