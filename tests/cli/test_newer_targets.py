"""A target that the op lists do not cover is no green: the nearest one's answer is shown, and the exit code is 3."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import opcheck as package
from opcheck.common.errors import UnknownTargetError
from opcheck.judge.policy import Policy, judge_report
from tests.command_line import CommandLine
from tests.made import call, make_report

BEYOND = ("--torch", "9.9"), ("--macos", "27"), ("--macos", "99.1"), ("--torch", "3.0.0")


@pytest.mark.parametrize("newer", BEYOND, ids=" ".join)
@pytest.mark.parametrize(
    "args", [("op", "aten::relu"), ("op", "aten::_fft_c2c"), ("audit", "m.py:Net"), ("scan", "m.py")], ids=" ".join
)
def test_the_exit_code_is_3_unless_the_newest_known_may_answer(
    opcheck: CommandLine, args: tuple[str, ...], newer: tuple[str, str]
) -> None:
    Path("m.py").write_text("x = 1\n")
    usual = opcheck(*args)
    result = opcheck(*args, *newer)
    assert (usual.code, result.code) == (0, 3)
    assert result.err.splitlines()[-1].startswith("could not tell: ")
    assert "is newer than the op lists: judged as" in result.err
    assert result.out
    allowed = opcheck(*args, *newer, "--newest-known")
    assert allowed.code == 0
    assert "could not tell" not in allowed.err


@pytest.mark.parametrize("verb", ["op", "history"])
def test_a_macos_that_starts_older_releases_alone_is_answered_by_these(opcheck: CommandLine, verb: str) -> None:
    older = opcheck(verb, "aten::mm", "--macos", "14")
    assert (older.code, older.err) == (0, "")
    assert "macOS 14" in older.out


def test_a_macos_that_does_not_start_the_named_release_is_refused(opcheck: CommandLine) -> None:
    refused = opcheck("op", "aten::mm", "--macos", "14", "--torch", "2.15")
    assert (refused.code, refused.out) == (2, "")


def test_the_configuration_may_let_the_newest_known_answer(opcheck: CommandLine) -> None:
    Path("opcheck.toml").write_text("newest-known = true\n[scan]\nnewest-known = true\n")
    Path("m.py").write_text("x = 1\n")
    assert opcheck("audit", "m.py:Net", "--macos", "27").code == 0
    assert opcheck("scan", "m.py", "--macos", "27").code == 0


@pytest.mark.slow
def test_a_pair_of_releases_with_a_newer_one_is_not_compared(opcheck: CommandLine) -> None:
    assert opcheck("diff", "2.9", "9.9").code == 3
    assert opcheck("diff", "2.9", "9.9", "--newest-known").code == 0


def test_a_failure_on_the_nearest_target_is_none_on_this_one() -> None:
    report = make_report(call("aten::stub"))
    target = msgspec.structs.replace(report.target, beyond="macOS 27 is newer than the op lists")
    newer = msgspec.structs.replace(report, target=target)
    told = judge_report(newer, Policy())
    assert (told.code, told.reasons[0]) == (3, target.beyond)
    assert judge_report(newer, Policy(newest_known=True)).code == judge_report(report, Policy()).code == 1


def test_python_raises_unless_the_newest_known_may_answer() -> None:
    with pytest.raises(UnknownTargetError, match=r"judged as 2\.15") as raised:
        package.audit("m.py:Net", torch="9.9")
    assert "newest_known=True" in raised.value.hint
