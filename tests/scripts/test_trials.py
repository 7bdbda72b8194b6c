"""Each program and project of the trials has a row in the page that its script writes."""

from __future__ import annotations

import yaml

from scripts import prove_fixes, trial_ports


def test_each_program_of_the_trial_has_a_row() -> None:
    written = yaml.safe_load(trial_ports.PROGRAMS.read_text(encoding="utf-8"))["programs"]
    page = trial_ports.PAGE.read_text(encoding="utf-8")
    assert [each for each in written if f"| {trial_ports.Program(**each)} |" not in page] == []


def test_each_project_whose_fixes_are_proved_has_a_row() -> None:
    written = yaml.safe_load(prove_fixes.PROJECTS.read_text(encoding="utf-8"))["projects"]
    page = prove_fixes.PAGE.read_text(encoding="utf-8")
    assert [name for each in written if f"| {(name := each['repository'])} |" not in page] == []
