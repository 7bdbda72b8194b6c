"""opcheck gate on a project of made models and six targets: what it says, and what it exits with."""

from __future__ import annotations

import json
import signal
from datetime import date
from pathlib import Path

import pytest
import yaml

from tests.features.gate.conftest import BROKEN, Project
from tests.made import call


def test_a_project_whose_models_are_fine_passes(project: Project) -> None:
    project.configure("native")
    result = project()
    assert result.code == 0
    first, _, header, row, *_ = result.out.splitlines()
    assert first == "passed: 1 model on 6 targets: 6 passed"
    assert header.split() == ["model", "target", "what", "it", "does", "gate"]
    assert row.split() == ["native", "torch", "2.12,", "macOS", "15.0", "runs", "natively", "passed"]
    assert max(map(len, result.out.splitlines())) <= 100


def test_each_model_is_audited_once_for_all_its_targets(project: Project) -> None:
    project.configure("native", "fallback")
    project()
    assert [(job.name, job.request.model, len(job.targets)) for job in project.jobs] == [
        ("native", "native.py:Net", 6),
        ("fallback", "fallback.py:Net", 6),
    ]


@pytest.mark.parametrize(
    ("models", "code"),
    [
        (("native",), 0),
        (("native", "fallback"), 1),
        (("native", "unknown"), 1),
        (("native", "broken"), 3),
        (("raises", "broken"), 1),
    ],
)
def test_the_worst_that_is_certain_is_the_exit_code(project: Project, models: tuple[str, ...], code: int) -> None:
    project.broken["broken"] = BROKEN
    project.configure(*models)
    assert project().code == code


def test_unknown_is_never_a_pass_where_it_is_asked_about(project: Project) -> None:
    project.configure("unknown", fail_on="unsupported")
    assert project().code == 0
    assert project("--strict").code == 3
    assert project("--fail-on", "unknown").code == 1


def test_a_broken_model_leaves_the_others_finished(project: Project) -> None:
    project.broken["broken"] = BROKEN
    project.configure("broken", "native")
    result = project()
    assert result.out.startswith("could not tell: 2 models on 6 targets: 6 unknown, 6 passed\n")
    assert "Unknown: broken, 6 targets" in result.out
    outcome = result.out[result.out.index("no such file") :].splitlines()
    assert outcome[:3] == ["no such file", "in: model broken.py:Net", "help: look for it"]


def test_what_was_finished_is_shown_when_somebody_interrupts(project: Project) -> None:
    project.broken["raises"] = KeyboardInterrupt()
    project.configure("native", "raises", "fallback")
    result = project("-f", "json")
    assert result.code == 130
    content = json.loads(result.out)
    assert {cell["model"] for cell in content["cells"]} == {"native"}
    assert content["left"] == ["raises", "fallback"]
    assert content["exit_code"] == 3
    assert "interrupted" in result.err


def test_a_finding_of_many_targets_is_told_once_with_its_line(project: Project) -> None:
    project.configure("fallback")
    out = project().out
    assert out.count("OC103 aten::embedding_renorm_") == 1
    place = "    model.py:7 in forward (net)\n      y = f7(x)\n"
    assert f"{place}    for: fallback; on all 6 targets\n" in out
    assert out.endswith("opcheck explain OC103\n")


@pytest.mark.parametrize(
    ("more", "args", "code"),
    [
        ("max = {fallback = 1}", (), 0),
        ("", ("--max", "fallback=1"), 0),
        ("max = {fallback = 1}", ("--max", "fallback=0"), 1),
        ("", ("--fail-on", "never"), 0),
    ],
)
def test_limits_and_levels_come_from_either(project: Project, more: str, args: tuple[str, ...], code: int) -> None:
    project.configure("fallback")
    text = Path("pyproject.toml").read_text().replace("[tool.opcheck]\n", f"[tool.opcheck]\n{more}\n")
    Path("pyproject.toml").write_text(text)
    assert project(*args).code == code


def test_tables_judge_their_models_and_targets_and_the_command_line_wins(project: Project) -> None:
    Path("opcheck.toml").write_text(
        """
        [models.fallback]
        model = "fallback.py:Net"
        [models.raises]
        model = "raises.py:Net"
        expect = "fails"
        [[targets]]
        torch = "2.14"
        fail-on = "fallback"
        environments = ["release"]
        [[targets]]
        torch = "2.15"
        max = {fallback = 1}
        """
    )
    content = json.loads(project("-f", "json").out)
    codes = {(cell["model"], cell["target"][:10]): cell["code"] for cell in content["cells"]}
    assert codes == {
        ("fallback", "torch 2.14"): 1,
        ("fallback", "torch 2.15"): 0,
        ("raises", "torch 2.14"): 0,
        ("raises", "torch 2.15"): 0,
    }
    assert project("--fail-on", "never").code == 0
    assert "on 1 target:" in project("--environment", "release").out
    assert "torch 2.13, macOS 14.0" in project("--torch", "2.13", "--macos", "14").out


def test_a_name_or_a_model_can_be_asked_for_alone(project: Project) -> None:
    project.configure("native", "fallback")
    assert project("native").code == 0
    project.calls["other.py:Net"] = (call("aten::mm"),)
    assert "other.py:Net" in project("other.py:Net", "--torch", "last 2").out
    result = project("nativ")
    assert (result.code, result.err.splitlines()[2]) == (2, "  help: did you mean 'native'?")


WHY = "renormalised once an epoch"


@pytest.mark.parametrize("place", ["line", "configuration"])
def test_an_ignored_finding_is_marked_and_does_not_fail(project: Project, place: str) -> None:
    entry = f'[[tool.opcheck.ignore]]\nrule = "OC103"\nop = "aten::emb*"\nreason = "{WHY}"\n'
    project.configure("fallback", more=entry if place == "configuration" else "")
    if place == "line":
        source = Path("model.py").read_text().replace("f7(x)", f"f7(x)  # opcheck: ignore[OC103] {WHY}")
        Path("model.py").write_text(source)
    result = project()
    assert result.code == 0
    assert f"fallback: OC103 aten::embedding_renorm_ at model.py:7 ({WHY})" in result.out
    content = json.loads(project("-f", "json").out)
    findings = content["cells"][0]["report"]["findings"]
    assert [finding["ignored"] for finding in findings if finding["rule"] == "OC103"] == [WHY]


def test_an_ignore_that_is_over_or_silences_nothing_is_said(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opcheck.cli.config.today", lambda: date(2026, 6, 1))
    entries = (
        '[[tool.opcheck.ignore]]\nrule = "OC103"\nreason = "r"\nexpires = 2026-06-01\n'
        '[[tool.opcheck.ignore]]\nrule = "OC101"\nreason = "r"\n'
        '[[tool.opcheck.ignore]]\nrule = "OC201"\nreason = "the scan\'s"\n'
    )
    project.configure("fallback", more=entries)
    Path("model.py").write_text("x = 1  # opcheck: ignore[OC104] no more\n" * 8)
    result = project()
    assert result.code == 1
    notes = result.out[result.out.index("Notes") :].replace("\n    ", " ")
    assert "the configuration ignored OC103 until 2026-06-01: it no longer does" in notes
    assert "the configuration ignores OC101, which is not found" in notes
    assert "model.py:1 ignores OC104, which is not found there" in notes
    assert "OC201" not in notes
    # Of a part of the project nobody knows what silences nothing.
    assert "ignores OC101" not in project("fallback").out


def test_only_what_is_not_in_the_baseline_fails(project: Project) -> None:
    project.configure("fallback", "raises")
    assert project("--baseline", "known.yaml").code == 2
    written = project("--baseline", "known.yaml", "--update-baseline")
    assert written.code == 0
    assert "2 findings known now, in known.yaml" in written.err
    passed = project("--baseline", "known.yaml")
    assert passed.code == 0
    assert "raises: OC101 aten::stub at model.py:9" in passed.out
    project.calls["fallback"] = (*project.calls["fallback"], call("aten::embedding_renorm_", 12))
    failed = project("--baseline", "known.yaml")
    assert failed.code == 1
    assert failed.out.count("    model.py:12 in forward") == 1
    assert "model.py:7 in forward" not in failed.out


def test_a_finding_is_known_on_a_target_new_to_the_baseline_unless_it_is_worse(project: Project) -> None:
    project.configure("fallback")
    project("--torch", "2.14", "--baseline", "known.yaml", "--update-baseline")
    assert project("--torch", "2.14", "--baseline", "known.yaml").code == 0
    assert project("--torch", "2.15", "--baseline", "known.yaml").code == 0
    path = Path("known.yaml")
    text = path.read_text()
    assert "severity: warning" in text
    path.write_text(text.replace("severity: warning", "severity: note"))
    assert project("--torch", "2.15", "--baseline", "known.yaml").code == 1


def test_a_finding_that_spreads_to_another_target_of_the_baseline_is_new(project: Project) -> None:
    project.configure("fallback")
    project("--baseline", "known.yaml", "--update-baseline")
    path = Path("known.yaml")
    content = yaml.safe_load(path.read_text())
    (entry,) = content["models"]["fallback"]
    entry["targets"] = [each for each in entry["targets"] if "2.15" not in each]
    path.write_text(yaml.safe_dump(content))
    assert project("--baseline", "known.yaml").code == 1
    del content["targets"]  # as an earlier opcheck wrote it
    path.write_text(yaml.safe_dump(content))
    assert project("--baseline", "known.yaml").code == 0


def test_what_is_fixed_is_listed_and_leaves_at_the_next_update(project: Project) -> None:
    project.configure("fallback", "raises")
    project("--baseline", "known.yaml", "--update-baseline")
    project.calls["fallback"] = project.calls["native"]
    result = project("--baseline", "known.yaml")
    assert "fallback: OC103 aten::embedding_renorm_ at model.py in forward (net)" in result.out
    project("fallback", "--baseline", "known.yaml", "--update-baseline")
    content = yaml.safe_load(Path("known.yaml").read_text())
    assert list(content["models"]) == ["raises"], "what was not in the run stays known"


def test_a_baseline_is_the_same_bytes_and_reviewed_like_code(project: Project) -> None:
    project.configure("raises", "fallback")
    for file in ("one.yaml", "two.yaml", "three.json"):
        project("--baseline", file, "--update-baseline")
    first = Path("one.yaml").read_text()
    assert first == Path("two.yaml").read_text()
    content = yaml.safe_load(first)
    assert content == json.loads(Path("three.json").read_text())
    (entry,) = content["models"]["fallback"]
    assert {name: entry[name] for name in ("rule", "op", "where", "line")} == {
        "rule": "OC103",
        "op": "aten::embedding_renorm_",
        "where": "model.py in forward (net)",
        "line": "y = f7(x)",
    }
    assert len(entry["targets"]) == 6


def test_a_broken_model_keeps_its_place_in_the_baseline(project: Project) -> None:
    project.configure("fallback")
    project("--baseline", "known.yaml", "--update-baseline")
    before = Path("known.yaml").read_text()
    project.broken["fallback"] = BROKEN
    assert project("--baseline", "known.yaml", "--update-baseline").code == 3
    assert Path("known.yaml").read_text() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: [", "cannot read the baseline: "),
        ("- 1", "this is no baseline: its schema is None"),
        ("schema: opcheck-report/1", "this is no baseline: its schema is 'opcheck-report/1'"),
        ("schema: opcheck-baseline/2", "the baseline is of the newer schema opcheck-baseline/2"),
        ("schema: opcheck-baseline/0", "the baseline is of the older schema opcheck-baseline/0"),
        ("schema: opcheck-baseline/1\nfingerprints: opcheck/1", "the baseline has other fingerprints: 'opcheck/1'"),
        (
            "schema: opcheck-baseline/1\nfingerprints: opcheck/2\nmodels: [1]",
            "the baseline is damaged: Expected `object`, got `array`",
        ),
    ],
)
def test_another_baseline_is_refused_in_three_lines(project: Project, text: str, message: str) -> None:
    project.configure("native")
    Path("known.yaml").write_text(text)
    result = project("--baseline", "known.yaml")
    what, where, hint = result.err.splitlines()
    assert result.code == 2
    assert what.startswith(message)
    assert "known.yaml" in where
    assert hint.startswith("  help: ")


def test_there_must_be_a_model(project: Project) -> None:
    result = project()
    assert result.code == 2
    assert result.err.splitlines()[0] == "no model is configured"


def test_update_baseline_needs_its_file(project: Project) -> None:
    project.configure("native")
    assert project("--update-baseline").err.startswith("there is no baseline to update\n")


def test_signals_are_as_they_were(project: Project) -> None:
    project.configure("native")
    before = signal.getsignal(signal.SIGINT)
    project()
    assert signal.getsignal(signal.SIGINT) is before
