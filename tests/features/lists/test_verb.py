from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opcheck.data.registrations import OpLists
from tests.command_line import CommandLine


@pytest.mark.parametrize("verb", [("lists",), ("lists", "info")])
def test_the_table_has_a_row_for_each_release(opcheck: CommandLine, lists: OpLists, verb: tuple[str, ...]) -> None:
    result = opcheck(*verb)
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()]
    assert [row[0] for row in rows[1 : 1 + len(lists.releases)]] == [release.torch for release in lists.releases]
    assert ["2.13.0", "2026-07-03", "14.0+", "3110", "894", "173", "95", "3"] in rows
    assert f"digest {lists.digest}" in result.out


def test_building_without_the_extra_says_how_to_get_it(opcheck: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opcheck.data.wheels")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("opcheck.data.wheels", None, raising=False)
    monkeypatch.delattr("opcheck.data.wheels", raising=False)
    monkeypatch.setitem(sys.modules, "lief", None)
    monkeypatch.setitem(sys.modules, "capstone", None)
    result = opcheck("lists", "build", "2.13.0")
    assert result.code == 2
    assert result.err.splitlines()[-1] == "  help: pip install 'opcheck[wheels]'"
    assert len(result.err.splitlines()) == 3


def test_building_from_nothing_is_refused(opcheck: CommandLine) -> None:
    result = opcheck("lists", "build", "no.whl")
    assert result.code == 2
    assert result.err.startswith("neither a torch release nor a wheel file: 'no.whl'\n")


def test_linting_the_own_lists_says_how_many_statements_they_hold(opcheck: CommandLine, lists: OpLists) -> None:
    result = opcheck("lists", "lint")
    assert (result.code, result.out) == (0, f"{len(lists.statements.all):,} statements: no problem\n")


def test_linting_names_every_problem_and_could_not_tell(opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "limitations").mkdir()
    bad = "schema: 1\nlimitations:\n  - {id: a, effect: b}\n  - {id: C}\n"
    (tmp_path / "limitations" / "made.yaml").write_text(bad, encoding="utf-8")
    result = opcheck("lists", "lint", "--directory", str(tmp_path))
    assert result.code == 3
    assert "limitations/made.yaml:3 limitations.0.effect: Invalid enum value 'b'" in result.err
    assert "limitations/made.yaml:4 limitations.1.id: Expected `str` matching regex" in result.err
    assert result.err.splitlines()[-1].startswith("  help: ")
