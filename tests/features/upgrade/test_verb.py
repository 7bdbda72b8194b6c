"""``opcheck upgrade``: the page, its formats, and what it asks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import report
from opcheck.model.records import Report
from tests.command_line import CommandLine
from tests.made import call, make_trace

ARGS = ("upgrade", "m.py:Net", "--torch", "2.13", "--macos", "14.4", "--releases", ">=2.13")
#: 2.14 has a kernel for the first, no release for the second.
CALLS = (call("aten::_linalg_svd.U", 1), call("aten::special_airy_ai.out", 2))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CaptureRequest]:
    """What was to be captured; each target is judged, and its calls are made."""
    requests: list[CaptureRequest] = []

    def reports(targets: Sequence[Target], request: CaptureRequest, lists: OpLists, *_: Any) -> tuple[Report, ...]:
        requests.append(request)
        return tuple(report(make_trace(*CALLS), target, lists) for target in targets)

    monkeypatch.setattr("opcheck.features.upgrade.verb.audit_on_targets", reports)
    return requests


def test_the_page_has_the_upgrade_the_changes_and_the_grid(opcheck: CommandLine, asked: list[CaptureRequest]) -> None:
    result = opcheck(*ARGS, "--input", "1x3", "-v")
    assert (result.code, result.err) == (0, "")
    assert asked[0].inputs == ("1x3",)
    lines = result.out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    assert lines[0] == "model.py:Net: upgrades from torch 2.13, macOS 14.4"
    assert any(line.startswith("upgrade to torch 2.14: removes 1 of 2 findings") for line in lines)
    (svd,) = (line.split() for line in lines if "error OC102 aten::_linalg_svd.U" in line)
    assert svd[-3:] == ["2.14", "-", "-"]
    (airy,) = (line.split() for line in lines if "error OC102 aten::special_airy" in line)
    assert airy[-3:] == ["-", "-", "none"]
    assert "  2.13   -           -           [variable]  variable    variable" in lines
    assert "-: not judged, there is no such pair: torch 2.13 to 2.14 needs macOS 14.0" in result.out
    assert lines[-1] == "  next  opcheck audit model.py:Net --torch 2.14 --macos 14.4"


def test_without_v_the_grid_is_left_out_and_the_page_ends_with_the_command(
    opcheck: CommandLine, asked: list[CaptureRequest]
) -> None:
    lines = opcheck(*ARGS).out.splitlines()
    assert len(lines) <= 17
    assert not [line for line in lines if "[variable]" in line]
    assert "-v shows the grid" in " ".join(" ".join(lines).split())
    assert lines[-1] == "  next         opcheck audit model.py:Net --torch 2.14 --macos 14.4"


def test_the_formats_say_the_same(opcheck: CommandLine, asked: list[CaptureRequest]) -> None:
    content = json.loads(opcheck(*ARGS, "-f", "json").out)
    assert content["schema"] == "opcheck-upgrade/1"
    assert yaml.safe_load(opcheck(*ARGS, "-f", "yaml").out) == content
    assert content["upgrade"]["change"] == {"torch": "2.14", "macos": ""}
    markdown = opcheck(*ARGS, "-f", "markdown").out
    assert r"| 2.13 | - | - | \[variable\] | variable | variable |" in markdown
    assert opcheck(*ARGS, "-f", "markdown").out == markdown


def test_the_grid_is_coloured_and_the_answer_is_not(opcheck: CommandLine, asked: list[CaptureRequest]) -> None:
    plain = opcheck(*ARGS, "-v").out
    painted = opcheck(*ARGS, "-v", "--color", "always").out
    assert "\x1b[33mvariable\x1b[0m" in painted
    assert "\x1b" not in painted.partition("Releases and macOS versions")[0]
    assert "\x1b" not in opcheck(*ARGS, "--color", "always", "-f", "json").out
    for code in (2, 31, 32, 33, 35, 0):
        painted = painted.replace(f"\x1b[{code}m", "")
    assert painted == plain


def test_where_one_is_is_said_where_it_was_not_given(
    opcheck: CommandLine, asked: list[CaptureRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "2.12.1")
    result = opcheck("upgrade", "m.py:Net", "--macos", "15", "--releases", "2.12")
    assert result.err.startswith("from torch 2.12 on macOS 15.0;")


def test_the_configuration_of_an_audit_says_where_one_is(opcheck: CommandLine, asked: list[CaptureRequest]) -> None:
    Path("pyproject.toml").write_text(
        '[tool.opcheck]\ntorch = "2.12"\nmacos = "15"\ninput = ["1x3"]\nformat = "sarif"\n', encoding="utf-8"
    )
    result = opcheck("upgrade", "m.py:Net", "--releases", "2.12")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("model.py:Net: upgrades from torch 2.12, macOS 15.0")
    assert asked[0].inputs == ("1x3",)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--releases", "everything"), 2),
        (("--releases", ">=9"), 2),
        (("--torch", "1.2"), 2),
        (("--torch", "2.15", "--macos", "14"), 2),
        (("--dtype", "float3"), 2),
    ],
)
def test_bad_input_is_three_lines(
    opcheck: CommandLine, asked: list[CaptureRequest], args: tuple[str, ...], code: int
) -> None:
    result = opcheck("upgrade", "m.py:Net", "--torch", "2.13", "--macos", "15", *args)
    assert (result.code, result.out, asked) == (code, "", [])
    assert len(result.err.splitlines()) == 3
