"""The tables of [tool.opcheck]: what they mean, and what is wrong with them in three lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.features.gate.gate_records import settings
from tests.features.gate.conftest import Project
from tests.made import make_lists

LISTS = make_lists()
WHERE = "opcheck.toml"


def test_models_are_written_as_texts_tables_or_names() -> None:
    for models in (
        ["a.py:A", "b.py:B"],
        [{"model": "a.py:A"}, {"model": "b.py:B"}],
        {"a.py:A": "a.py:A", "b.py:B": {"model": "b.py:B"}},
    ):
        result = settings({"models": models}, WHERE, LISTS).models
        assert [(model.name, model.model) for model in result] == [("a.py:A", "a.py:A"), ("b.py:B", "b.py:B")]


def test_without_targets_it_is_the_newest_of_both() -> None:
    (planned,) = settings({}, WHERE, LISTS).targets
    assert str(planned.target) == "torch 2.14, macOS 26.0"


def test_a_target_of_two_tables_is_of_the_first() -> None:
    tables = [{"name": "all", "torch": ">=2.13"}, {"name": "new", "torch": "newest"}]
    result = settings({"targets": tables}, WHERE, LISTS).targets
    assert [(str(item.target.torch), item.table.name) for item in result] == [("2.13", "all"), ("2.14", "all")]


@pytest.mark.parametrize(
    ("text", "message", "where", "hint"),
    [
        ('modles = ["a"]', "unknown key: 'modles'", "opcheck.toml", "did you mean 'models'?"),
        ("[[models]]\nmodell = 'a'", "unknown key: 'modell'", "models, entry 1", "'model'?"),
        ("[[models]]\nname = 'a'", "the key 'model' is missing", "models, a", "model = "),
        ("models = [1]", "not a table: 1", "models", "[[tool.opcheck"),
        ("models = 1", "not a list of tables", "models", "[[tool.opcheck.models]]"),
        ("models = ['a:b', 'a:b']", "two models are called 'a:b'", "models", "name ="),
        (
            "[[models]]\nmodel = 'a'\nexpect = 'run natively'",
            "unknown expect: 'run natively'",
            "models, a: expect",
            "did you mean 'runs natively'?",
        ),
        ("[[models]]\nmodel = 'a'\ndtype = 'flaot16'", "", "models, a: dtype", "float16"),
        (
            "[[models]]\nmodel = 'a'\ninput = '1x3'",
            "wrong value: Expected array, got str",
            "models, entry 1: input",
            "",
        ),
        ("[[models]]\nmodel = 'a'\nmax = {falback = 1}", "nothing to limit: 'falback'", "a: max", ""),
        ("[[models]]\nmodel = 'a'\ntargets = ['x']", "unknown target: 'x'", "models: targets", ""),
        ("[targets]\ntorch = 2.13", "wrong value: Expected str | array, got float", "torch", '"2.10"'),
        ("[targets]\ntorch = '>=9'", "no known version of torch lies in", "targets", "known are"),
        ("[targets]\nfail-on = 'all'", "unknown level: 'all'", "fail-on", "unsupported"),
        ("[[ignore]]\nrule = 'OC103'", "the key 'reason' is missing", "ignore, entry 1", ""),
        ("[[ignore]]\nrule = 'OC103'\nreason = ' '", "OC103 is ignored without a reason", "", ""),
        ("[[ignore]]\nrule = 'OC1O3'\nreason = 'r'", "unknown rule: 'OC1O3'", "entry 1", "did you mean 'OC"),
        (
            "[[ignore]]\nrule = 'OC103'\nreason = 'r'\nexpires = 'soon'",
            "wrong value: ",
            "ignore, entry 1: expires",
            "2027-01-31",
        ),
    ],
)
def test_a_mistake_is_said_in_three_lines(project: Project, text: str, message: str, where: str, hint: str) -> None:
    Path("opcheck.toml").write_text(text)
    result = project("some.py:Net")
    assert result.code == 2
    first, second, third = result.err.splitlines()
    assert first.startswith(message)
    assert where in second
    assert hint in third
    assert third.startswith("  help: ")


def test_two_files_with_a_configuration_are_one_too_many(project: Project) -> None:
    project.configure("native")
    Path("opcheck.toml").write_text("")
    result = project()
    assert (result.code, result.err.splitlines()[0]) == (2, "opcheck is configured twice")


def test_the_audit_knows_the_keys_of_the_gate(project: Project) -> None:
    project.configure("native")
    from opcheck.cli import config
    from opcheck.features.audit.verb import command

    assert config.defaults("", command.params, Path.cwd()) == {"fail_on": "fallback"}
