"""How opcheck audit judges: limits, advisories, and what is ignored."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.made import call, make_report


@pytest.fixture
def falling(opcheck: CommandLine) -> CommandLine:
    """A model with two calls that always fall back, and the file that they are in."""
    opcheck.report = make_report(
        call("aten::embedding_renorm_", 3), call("aten::embedding_renorm_", 4), call("aten::mm")
    )
    Path("model.py").write_text("x = 1\n" * 9)
    return opcheck


def audit(line: CommandLine, *args: str) -> int:
    return line("audit", "model.py:Net", "--fail-on", "fallback", *args).code


def test_limits_allow_so_many(falling: CommandLine) -> None:
    assert audit(falling) == 1
    assert audit(falling, "--max", "fallback=1") == 1
    assert audit(falling, "--max", "fallback=2") == 0
    result = falling("audit", "model.py:Net", "--max", "fallback-always=1")
    assert "fails: fallback_always: 2 calls, 1 allowed" in result.err


def test_a_limit_that_is_none_is_refused(falling: CommandLine) -> None:
    result = falling("audit", "model.py:Net", "--max", "fallbacks=1")
    assert result.code == 2
    assert result.err.splitlines()[0] == "nothing to limit: 'fallbacks'"


def test_limits_are_a_key_too(falling: CommandLine) -> None:
    Path("pyproject.toml").write_text('[tool.opcheck]\nmax = {fallback = 2, bytes = "1KB"}\n')
    assert audit(falling) == 0


def test_a_comment_ignores_the_call_of_its_line_alone(falling: CommandLine) -> None:
    lines = ["x = 1"] * 9
    lines[2] += "  # opcheck: ignore[OC103] once an epoch"
    Path("model.py").write_text("\n".join(lines))
    assert audit(falling) == 1
    assert audit(falling, "--max", "fallback=1") == 0
    assert "ignored: once an epoch" in falling("audit", "model.py:Net").out
    lines[3] += "  # opcheck: ignore[OC103]"
    Path("model.py").write_text("\n".join(lines))
    assert audit(falling) == 0


def test_an_entry_ignores_until_it_expires(falling: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("opcheck.toml").write_text('[[ignore]]\nrule = "OC103"\nreason = "once an epoch"\nexpires = 2026-12-01\n')
    for today, code in ((date(2026, 11, 30), 0), (date(2026, 12, 1), 1)):
        monkeypatch.setattr("opcheck.cli.config.today", lambda today=today: today)
        assert audit(falling) == code
    assert "it no longer does" in falling("audit", "model.py:Net").err
