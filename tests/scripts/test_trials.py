"""The pages of the trials: each program and project has a row, and a device its results."""

from __future__ import annotations

import yaml

from opcheck.render.markdown import as_markdown
from scripts import device_figures, prove_fixes, trial_ports
from scripts.pages import ROOT


def test_each_program_of_the_trial_has_a_row() -> None:
    written = yaml.safe_load(trial_ports.PROGRAMS.read_text(encoding="utf-8"))["programs"]
    page = trial_ports.PAGE.read_text(encoding="utf-8")
    assert [each for each in written if f"| {trial_ports.Program(**each)} |" not in page] == []


def test_each_project_whose_fixes_are_proved_has_a_row() -> None:
    written = yaml.safe_load(prove_fixes.PROJECTS.read_text(encoding="utf-8"))["projects"]
    page = prove_fixes.PAGE.read_text(encoding="utf-8")
    assert [name for each in written if f"| {(name := each['repository'])} |" not in page] == []


def test_the_page_of_a_device_is_made_of_what_the_verbs_found_there() -> None:
    blocks = device_figures._blocks("cuda", ROOT / "reports" / "compare_cuda")
    page = as_markdown(tuple(blocks))
    assert "| bert, GELU wrong | 141 | 136 | 1 | 4 |" in page
    assert "#### Wrong, in the order of the run" in page
    assert "### PyTorch's operator database on cuda" in page
