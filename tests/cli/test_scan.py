"""``opcheck scan``: formats and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from opcheck.rules.rule import SEVERITIES
from tests.cli.conftest import CommandLine
from tests.cli.test_command_line import modules_after

PROGRAM = "import torch\nx.cuda()\nx.double()\ntorch.cuda.empty_cache()\n"


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "a.py").write_text(PROGRAM, encoding="utf-8")
    return "a.py"


def test_the_text_has_the_counts_the_lines_and_the_ways_out(
    opcheck: CommandLine, program: str
) -> None:
    result = opcheck("scan", program)
    assert result.code == 1
    assert result.out.startswith(f"{program} read for torch 2.")
    assert "1 error, 1 warning, 1 note." in result.out
    assert "  2     error     OC201  .cuda() moves to CUDA" in result.out
    assert "  OC201: take the device as a value" in result.out
    assert "nothing was observed on a Mac" in result.out


def test_all_formats_carry_the_same_findings(opcheck: CommandLine, program: str) -> None:
    content = json.loads(opcheck("scan", program, "-f", "json").out)
    assert content["schema"] == "opcheck-scan/1"
    assert [one["rule"] for one in content["findings"]] == ["OC201", "OC210", "OC206"]
    assert yaml.safe_load(opcheck("scan", program, "-f", "yaml").out) == content
    markdown = opcheck("scan", program, "-f", "markdown").out
    assert "| 2 | error | `OC201` |" in markdown
    assert opcheck("scan", program, "-f", "markdown").out == markdown


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("x.cuda()", (1, 1, 1, 0)),
        ("import torch\nx.double()", (0, 1, 1, 0)),
        ("import torch\ntorch.cuda.empty_cache()", (0, 0, 1, 0)),
        ("x.cpu()", (0, 0, 0, 0)),
        ("def f(:", (3, 3, 3, 0)),
    ],
)
def test_exit_codes(
    opcheck: CommandLine, tmp_path: Path, text: str, codes: tuple[int, ...]
) -> None:
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    levels = (*SEVERITIES, "never")
    assert tuple(opcheck("scan", "a.py", "--fail-on", level).code for level in levels) == codes


def test_a_path_that_is_not_there_is_three_lines(opcheck: CommandLine) -> None:
    result = opcheck("scan", "nothing")
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 3


def test_the_release_decides_about_variables(opcheck: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'import os\nos.environ["PYTORCH_MPS_FAST_MATH"] = "1"\n', encoding="utf-8"
    )
    assert opcheck("scan", "a.py", "--fail-on", "note").code == 0
    result = opcheck("scan", "a.py", "--fail-on", "note", "--torch", "2.3")
    assert result.code == 1
    assert "it came with 2.5" in result.out
    assert opcheck("scan", "a.py", "--torch", "99.0").code == 3


def test_torch_is_not_loaded(program: str, opcheck: CommandLine) -> None:
    assert not {"torch", "networkx", "rich"} & modules_after("scan", program, "--fail-on", "never")
