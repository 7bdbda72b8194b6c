from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from opcheck.model.fingerprint import add_fingerprints
from opcheck.model.ignores import NO_REASON, IgnoreEntry, Ignores, of_lines, of_python
from opcheck.model.records import Finding, GroupLocation, SourceLocation

TODAY = date(2026, 11, 21)
PROGRAM = """\
import torch

def forward(x):
    x = torch.svd(  # opcheck: ignore[OC103, oc102] once, before training
        x,
        some=True,
    )
    if x.any():  # opcheck: ignore[OC104]: the guard
        x = x + 1
    text = "# opcheck: ignore[OC101] this is a text"
    return x  # opcheck: ignore[OC112]
"""


def place(line: int, file: str = "model.py", text: str = "") -> GroupLocation:
    where = SourceLocation(file=file, line=line, text=text)
    return GroupLocation.at(where, module="net", count=2)


def finding(*places: GroupLocation, rule: str = "OC103", op: str = "aten::svd") -> Finding:
    return Finding(rule=rule, severity="warning", message="m", op=op, locations=places, count=9, remedy="r")


@pytest.fixture
def ignores(tmp_path: Path) -> Ignores:
    (tmp_path / "model.py").write_text(PROGRAM)
    return Ignores(today=TODAY, root=tmp_path)


def test_a_comment_speaks_for_the_lines_of_its_statement() -> None:
    result = of_python(PROGRAM, "model.py")
    assert [(item.line, item.codes, item.reason, item.first, item.last) for item in result] == [
        (4, ("OC103", "OC102"), "once, before training", 4, 7),
        (8, ("OC104",), "the guard", 8, 8),
        (11, ("OC112",), "", 11, 11),
    ]


def test_in_a_file_of_lines_every_hash_begins_one() -> None:
    (result,) = of_lines(["torch", "flash-attn  # opcheck: ignore[OC214] on Linux only"], "r.txt")
    assert (result.line, result.codes, result.reason) == (2, ("OC214",), "on Linux only")


def test_source_that_is_no_python_still_has_its_comments() -> None:
    (result,) = of_python("x = (  # opcheck: ignore[OC101] why\n")
    assert (result.first, result.last) == (1, 1)


@pytest.mark.parametrize(
    ("rule", "line", "reason"),
    [
        ("OC103", 4, "once, before training"),
        ("OC103", 6, "once, before training"),
        ("OC102", 5, "once, before training"),
        ("OC101", 5, None),
        ("OC103", 8, None),
        ("OC104", 9, None),
        ("OC101", 10, None),
        ("OC112", 11, NO_REASON),
    ],
)
def test_a_finding_on_such_a_line_is_ignored(ignores: Ignores, rule: str, line: int, reason: str | None) -> None:
    assert ignores.reason(rule, file="model.py", line=line) == reason


def test_where_the_file_cannot_be_read_the_line_itself_is() -> None:
    text = "y = torch.svd(x)  # opcheck: ignore[OC103] known"
    for ignores in (Ignores(today=TODAY), Ignores(today=TODAY, root=Path("/nowhere"))):
        (marked,) = ignores.mark_ignored([finding(place(7, text=text))])
        assert marked.ignored == "known"


def test_a_finding_ignored_at_some_of_its_places_becomes_two(ignores: Ignores) -> None:
    left, ignored = ignores.mark_ignored([finding(place(9), place(4))])
    assert (left.ignored, left.locations, left.count, left.remedy) == ("", (place(9),), 2, "r")
    assert ignored.ignored == "once, before training"
    assert (ignored.locations, ignored.count, ignored.remedy) == ((place(4),), 2, "")


def test_what_is_not_ignored_stays_the_same_object(ignores: Ignores) -> None:
    (whole,) = add_fingerprints([finding(place(9), place(10))])
    assert ignores.mark_ignored([whole, whole])[0] is whole


@pytest.mark.parametrize(
    ("entry", "fits"),
    [
        (IgnoreEntry(rule="OC103", reason="r"), True),
        (IgnoreEntry(rule="OC102", reason="r"), False),
        (IgnoreEntry(rule="OC103", reason="r", op="aten::s*", path="src/*", model="net"), True),
        (IgnoreEntry(rule="OC103", reason="r", op="aten::t*"), False),
        (IgnoreEntry(rule="OC103", reason="r", path="lib/*"), False),
        (IgnoreEntry(rule="OC103", reason="r", model="other"), False),
        (IgnoreEntry(rule="OC103", reason="r", expires=date(2026, 11, 22)), True),
        (IgnoreEntry(rule="OC103", reason="r", expires=TODAY), False),
    ],
)
def test_an_entry_ignores_what_all_of_it_fits(entry: IgnoreEntry, *, fits: bool) -> None:
    ignores = Ignores([entry], today=TODAY)
    (marked,) = ignores.mark_ignored([finding(place(1, "src/a.py"))], model="net")
    assert marked.ignored == ("r" if fits else "")
    over = entry.expires == TODAY
    assert bool(ignores.list_unused()) == (not fits and not over)
    assert bool(ignores.list_expired()) == over


def test_what_silences_nothing_is_said(ignores: Ignores) -> None:
    ignores.reason("OC103", file="model.py", line=4)
    ignores.read(["model.py", "gone.py"])
    assert ignores.list_unused() == (
        "model.py:4 ignores OC102, which is not found there",
        "model.py:8 ignores OC104, which is not found there",
        "model.py:11 ignores OC112, which is not found there",
    )
    assert ignores.list_unused("OC2") == ()


def test_an_entry_that_is_over_says_since_when() -> None:
    entry = IgnoreEntry(rule="OC103", op="aten::svd", reason="r", expires=date(2026, 1, 31))
    ignores = Ignores([entry], today=TODAY)
    assert ignores.list_expired() == (
        "the configuration ignored OC103 op=aten::svd until 2026-01-31: it no longer does",
    )
