"""A finding keeps its name while the statement that it points at is moved, reformatted, its variables renamed."""

from __future__ import annotations

import linecache
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opcheck.common import python_source
from opcheck.model.fingerprint import fingerprint
from opcheck.model.records import Finding, GroupLocation, SourceLocation
from opcheck.tracing import source_locations
from opcheck.tracing.source_locations import statement

#: One statement as people format it; the call that a finding is about is on the line with ``svd``.
FORMATTED = (
    "{x} = torch.svd({x}, some=True, name='a')",
    '{x} = torch.svd({x}, some = True, name="a")  # why',
    '{x} = torch.svd(\n    {x},\n    some=True,\n    name="a",\n)',
    '{x} = (\n    torch.svd({x}, some=True, name="a")\n)',
    "{x} = \\\n    torch.svd({x},\n        some=True, name='a')",
)
BODY = ("y = 1", "", "# a comment", "if y:\n    y = 2", '"""text\nof two lines"""')


def named(source: str, function: str = "forward", op: str = "aten::svd") -> str:
    """The fingerprint of a finding at the call of svd in this source."""
    linecache.cache["<made>"] = (len(source), None, source.splitlines(keepends=True), "<made>")
    python_source.parse_source.cache_clear()
    source_locations._statements.cache_clear()
    statement.cache_clear()
    lines = source.splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "torch." in text)
    where = SourceLocation(
        file="model.py", line=line, function=function, text=lines[line - 1].strip(), statement=statement("<made>", line)
    )
    place = GroupLocation.at(where, module="net", count=1)
    return fingerprint(Finding(rule="OC103", severity="warning", message="m", op=op), place)


def program(before: Iterable[str], formatted: str, name: str = "x") -> str:
    lines = [*before, *formatted.format(x=name).splitlines()]
    body = "\n".join(line for part in lines for line in part.splitlines())
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return f"def forward({name}, y):\n{indented}\n    return {name}\n"


BEFORE = named(program((), FORMATTED[0]))


@given(
    before=st.lists(st.sampled_from(BODY)),
    formatted=st.sampled_from(FORMATTED),
    name=st.sampled_from(("x", "hidden", "matrix_1")),
)
def test_it_survives_lines_names_and_formatting(before: list[str], formatted: str, name: str) -> None:
    assert named(program(before, formatted, name)) == BEFORE


@pytest.mark.parametrize(
    "changed",
    [
        "{x} = torch.svd({x}, some=False, name='a')",
        "{x} = torch.svd({x}, full=True, name='a')",
        "{x} = torch.svd({x}, some=True, name='b')",
        "{x} = torch.eig({x}, some=True, name='a')",
        "return torch.svd({x}, some=True, name='a')",
        "if torch.svd({x}, some=True, name='a'):\n    pass",
    ],
)
def test_another_call_is_another(changed: str) -> None:
    assert named(program((), changed)) != BEFORE


def test_another_function_or_operator_is_another() -> None:
    source = program((), FORMATTED[0])
    assert named(source, function="Net.forward") == BEFORE
    assert named(source, function="Net.encode") != BEFORE
    assert named(source, op="aten::svd.U") != BEFORE


def test_of_a_block_only_the_head_counts() -> None:
    heads = {named(f"def f(x):\n    while torch.any(\n        x\n    ):\n        x = {body}\n") for body in ("1", "2")}
    assert len(heads) == 1


@pytest.mark.parametrize("source", ["x = (torch.", "\0torch.", "# torch."])
def test_what_cannot_be_parsed_has_none(source: str) -> None:
    named(source)
    assert statement("<made>", 1) == ""
