from __future__ import annotations

import json

from tests.cli.conftest import CommandLine


def test_what_is_better_stands_below_what_is_gone(opcheck: CommandLine) -> None:
    result = opcheck("diff", "2.12", "2.13")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "torch 2.12 to 2.13 on macOS 26.0"
    assert lines.index("Removed") < lines.index("Better")
    assert any(line.strip().startswith("aten::grid_sampler_2d_backward") for line in lines)


def test_formats(opcheck: CommandLine) -> None:
    content = json.loads(opcheck("diff", "2.12", "2.13", "-f", "json").out)
    assert content["schema"] == "opcheck-diff/1"
    assert len(content["changes"]) == sum(content["counts"].values()) > 0
    assert opcheck("diff", "2.12", "2.13", "-f", "markdown").out.startswith("# torch 2.12 to 2.13")
    assert opcheck("diff", "2.12", "2.13", "-f", "yaml").out.startswith("schema: opcheck-diff/1\n")


def test_a_gate_on_regressions(opcheck: CommandLine) -> None:
    assert opcheck("diff", "2.12", "2.13", "--fail-on", "regressions").code == 1
    assert opcheck("diff", "2.13", "2.13.0", "--fail-on", "regressions").code == 0


def test_errors(opcheck: CommandLine) -> None:
    assert opcheck("diff", "2.9", "9.9").code == 3
    assert opcheck("diff", "x", "2.9").code == 2
    assert opcheck("diff", "2.9").code == 2
    below = opcheck("diff", "2.9", "2.15", "--macos", "14")
    assert below.code == 2
    assert "does not start its MPS backend" in below.err
