"""A finding keeps its name while the program is edited around it."""

from __future__ import annotations

import keyword
import re
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opcheck.common.text import normalised_code
from opcheck.model.fingerprint import fingerprint, fingerprints
from opcheck.model.records import Finding, GroupLocation, SourceLocation

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
LINES = (
    "{a} = torch.bmm({b}, {a}, out={c})",
    "return {a}[{b} + 1] @ {c}.transpose(1, 2)  # {b}",
    "{a}, {b} = {c}.topk(k=2, dim=-1) if {c} else ({a}, {b})",
    "{a} = F.softmax({b}, dim={c}",
)


def finding(op: str = "aten::foo", *lines: str, rule: str = "OC102", **others: object) -> Finding:
    places = tuple(
        GroupLocation.at(SourceLocation(file="model.py", line=number, text=text), module="net", count=1)
        for number, text in enumerate(lines, 1)
    )
    content = {"rule": rule, "severity": "error", "message": f"{op}: why", "locations": places, **others}
    return Finding(op=op, **content)  # type: ignore[arg-type]


def only_fingerprint(result: Finding) -> str:
    ((digest,),) = fingerprints([result])
    return digest


def moved(result: Finding, **others: object) -> Finding:
    """The same with other facts about its first place."""
    (place, *_) = result.locations
    assert place.location is not None
    of_line = {
        name: value for name, value in others.items() if name in {"file", "line", "text", "function", "statement"}
    }
    of_place = {name: value for name, value in others.items() if name not in of_line}
    location = msgspec.structs.replace(place.location, **of_line)
    at = GroupLocation.at(location, module=place.module)
    return msgspec.structs.replace(result, locations=(msgspec.structs.replace(at, **of_place),))


@given(line=st.integers(1, 10**6), file=st.text(min_size=1), outer=st.text())
def test_a_moved_line_keeps_it(line: int, file: str, outer: str) -> None:
    result = moved(finding("aten::foo", "y = f(x)"), function="forward")
    assert only_fingerprint(moved(result, line=line, file=file, function=f"{outer}.forward")) == only_fingerprint(
        result
    )


def test_the_statement_goes_before_the_line() -> None:
    result = moved(finding("aten::foo", "y = f("), statement="y = f(x, dim=1)")
    assert only_fingerprint(moved(result, text="f(x,")) == only_fingerprint(result)
    assert only_fingerprint(moved(result, statement="y = f(x, dim=2)")) != only_fingerprint(result)


@given(
    names=st.lists(NAMES, min_size=3, max_size=3, unique=True),
    others=st.lists(NAMES, min_size=3, max_size=3, unique=True),
    line=st.sampled_from(LINES),
)
def test_renamed_variables_keep_it(names: list[str], others: list[str], line: str) -> None:
    before, after = (line.format(a=a, b=b, c=c) for a, b, c in (names, others))
    assert only_fingerprint(finding("aten::foo", before)) == only_fingerprint(finding("aten::foo", after))


@given(order=st.permutations(("y = f(x)", "y = f(x)", "z = g(x, 1)", "w = h(x, dim=2)")))
def test_reordered_calls_keep_all_of_them(order: list[str]) -> None:
    expected = finding("aten::foo", "y = f(x)", "y = f(x)", "z = g(x, 1)", "w = h(x, dim=2)")
    result = finding("aten::foo", *order)
    assert Counter(fingerprints([result])[0]) == Counter(fingerprints([expected])[0])
    assert len(set(fingerprints([result])[0])) == 4


def test_one_more_of_the_same_is_one_new() -> None:
    before = set(fingerprints([finding("aten::foo", "y = f(x)")])[0])
    after = set(fingerprints([finding("aten::foo", "y = f(x)", "y = f(x)")])[0])
    assert len(before & after) == 1
    assert len(after - before) == 1


@pytest.mark.parametrize(
    "other",
    [
        finding("aten::bar", "y = f(x, dim=1)"),
        finding("aten::foo", "y = f(x, dim=2)"),
        finding("aten::foo", "y = f(x, axis=1)"),
        finding("aten::foo", "y = f(x, x, dim=1)"),
        finding("aten::foo", "y = x.f(dim=1)"),
        finding("aten::foo", "y = f(x, dim=1)", rule="OC103"),
        moved(finding("aten::foo", "y = f(x, dim=1)"), module="other"),
        moved(finding("aten::foo", "y = f(x, dim=1)"), phase="backward"),
        moved(finding("aten::foo", "y = f(x, dim=1)"), function="other"),
    ],
)
def test_another_call_changes_it(other: Finding) -> None:
    assert only_fingerprint(other) != only_fingerprint(finding("aten::foo", "y = f(x, dim=1)"))


def test_the_layer_and_the_wording_are_no_part_of_it() -> None:
    result = moved(finding("aten::foo", "y = f(x)"), module="layers.3.attention")
    same = msgspec.structs.replace(result, message="other words", severity="note", hint="torch 2.99")
    assert only_fingerprint(moved(same, module="layers.*.attention", count=12)) == only_fingerprint(result)


def test_a_finding_of_no_operator_goes_by_its_message_without_the_numbers() -> None:
    def about(message: str) -> str:
        return fingerprint(finding("", message=message), None)

    assert about("the fallbacks make 7 copies (15.6 KiB)") == about("the fallbacks make 12 copies (1.0 GiB)")
    assert about("it has dtype-mm-2") != about("it has dtype-mm-3")
    assert about("one") != about("two")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = self.conv(x)  # twice", "v1 = v2 . conv ( v3 )"),
        ("return x if x is not None else y", "return v1 if v1 is not None else v2"),
        ("f(a=b, c = 'a # b')", "v1 ( a = v2 , c = 'a # b' )"),
        ('s = f"{x} unclosed', 'v1 = f"{x} unclosed'),
        ("a == b", "v1 == v2"),
        ("", ""),
    ],
)
def test_how_a_line_is_read(line: str, expected: str) -> None:
    assert normalised_code(line) == expected


@settings(max_examples=50)
@given(st.text())
def test_every_line_can_be_read(line: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", only_fingerprint(finding("aten::foo", line)))
