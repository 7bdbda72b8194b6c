from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from opcheck.common.errors import OpListError
from opcheck.data.lint import find_lost, lint
from opcheck.data.registrations import data_directory, load
from opcheck.data.statement_files import read_statements
from opcheck.data.statement_model import Argument
from opcheck.data.statements import INDEX, INDEX_SCHEMA, Index, dump_index, fingerprint

ARGUMENTS = {"aten::mm": {"self": Argument(), "mat2": Argument()}}


def statement(name: str, **others: object) -> dict[str, object]:
    return {
        "id": name,
        "ops": ["aten::mm"],
        "effect": "raises",
        "torch": {"since": "2.5"},
        "error": {"type": "RuntimeError", "text": "no"},
        "summary": "No.",
        "evidence": [{"kind": "source", "torch": "2.13", "where": "Made.mm"}],
        **others,
    }


@pytest.fixture(scope="module")
def registrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the real registrations, read once for all tests."""
    directory = tmp_path_factory.mktemp("op_lists")
    shutil.copytree(data_directory() / "registrations", directory / "registrations")
    shutil.copy(data_directory() / "releases.yaml", directory)
    shutil.copy(data_directory() / "macs.yaml", directory)
    shutil.copy(data_directory() / "compile.yaml", directory)
    shutil.copy(data_directory() / "python_calls.json", directory)
    return directory


@pytest.fixture
def made(registrations: Path) -> Path:
    """The real registrations without a curated statement."""
    shutil.rmtree(registrations / "limitations", ignore_errors=True)
    (registrations / "exceptions.yaml").unlink(missing_ok=True)
    shutil.copy(data_directory() / "regressions.yaml", registrations)
    return registrations


def problems(directory: Path, *statements: dict[str, object]) -> list[str]:
    """The problems of the statements, the index being up to date."""
    path = directory / "limitations" / "made.yaml"
    path.parent.mkdir(exist_ok=True)
    content = {"schema": 1, "limitations": list(statements)}
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    index = Index(
        schema=INDEX_SCHEMA,
        fingerprint=fingerprint(directory),
        statements=read_statements(directory),
        arguments=ARGUMENTS,
    )
    (directory / INDEX).write_text(dump_index(index), encoding="utf-8")
    try:
        count = lint(directory)
    except OpListError as error:
        return [line.strip() for line in error.message.splitlines()[1:]]
    assert count == len(statements)
    return []


def test_the_real_data_has_no_problem() -> None:
    assert lint() == len(load().statements.all)


def test_silent_on_what_is_right(made: Path) -> None:
    assert not problems(
        made,
        statement("a", dtypes=["float16"]),
        statement("b", dtypes=["int8"]),
        statement("c", condition="self.dim == 3 and mat2.dim == 2", effect="falls_back"),
        statement("d", torch={"since": "2.3", "until": "2.5"}, ops=["aten::mm", "aten::add.*"]),
        statement("e", ops=["*"], condition="result.dim > 16"),
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"torch": {"since": "2.99"}}, "torch.since: a: releases.yaml has no release 2.99"),
        ({"torch": {"since": "1.0", "until": "1.13"}}, "torch: a: no release of releases.yaml"),
        ({"macos": {"since": "17.0"}}, "macos.since: a: there is no macOS 17.0"),
        (
            {"evidence": [{"kind": "issue", "torch": "2.99", "where": "x"}]},
            "evidence.0.torch: a: releases.yaml has no release 2.99",
        ),
        ({"condition": "input.dim == 3"}, "condition: a: aten::mm has no argument input"),
        ({"dtypes_of": ["weight"]}, "dtypes_of: a: aten::mm has no argument weight"),
        ({"ops": ["*"], "condition": "self.dim > 16"}, "condition: a: operators have no argument self in common"),
        (
            {"ops": ["aten::gcd.out"], "torch": {"since": "2.8"}},
            "ops: a: aten::gcd.out has no kernel in torch 2.8, 2.9",
        ),
        ({"ops": ["aten::nope.*"]}, "ops: a: aten::nope.* has no kernel in torch 2.5, 2.6"),
        ({"ops": ["mylib::op"]}, "ops: a: mylib::op has no kernel in torch 2.5, 2.6"),
    ],
)
def test_one_statement(made: Path, fields: dict[str, object], problem: str) -> None:
    found_now = problems(made, statement("a", **fields))
    expected = f"limitations/made.yaml:3 limitations.0.{problem}"
    assert [line for line in found_now if line.startswith(expected)], found_now


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "duplicates a (limitations/made.yaml:3) on aten::mm, torch 2.8 to the newest"),
        ({"effect": "falls_back"}, "contradicts a (limitations/made.yaml:3) on aten::mm"),
        ({"effect": "aborts"}, "contradicts a"),
        ({"effect": "narrows"}, "contradicts a"),
        ({"ops": ["aten::mm*"]}, "duplicates a"),
        ({"effect": "warns"}, ""),
        ({"dtypes": ["int8"]}, ""),
        ({"dtypes": ["float16", "int8"]}, "duplicates a"),
        ({"condition": "self.dim == 3"}, ""),
        ({"when": "it depends"}, ""),
        ({"macos": {"since": "15.0"}}, ""),
        ({"ops": ["aten::bmm"]}, ""),
        ({"torch": {"since": "2.5", "until": "2.8"}}, ""),
    ],
)
def test_two_statements(made: Path, fields: dict[str, object], problem: str) -> None:
    first = statement("a", dtypes=["float16"], macos={"until": "15.0"}, torch={"since": "2.8"})
    other = statement("b", **fields)
    lines = problems(made, first, other)
    assert len(lines) == bool(problem), lines
    assert problem in "".join(lines)
    # Which of the two comes first changes the place only.
    assert len(problems(made, other, first)) == len(lines)


def except_(directory: Path, **fields: object) -> None:
    content = {"schema": 1, "exceptions": [{"reason": "it is so", **fields}]}
    (directory / "exceptions.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def test_an_exception_excuses_one_problem(made: Path) -> None:
    lost_kernel = statement("a", ops=["mylib::op"])
    except_(made, check="no_kernel", statements=["a"], op="mylib::op")
    assert not problems(made, lost_kernel)
    except_(made, check="overlap", statements=["b", "a"])
    assert not problems(made, statement("a"), statement("b"))


def test_an_exception_that_excuses_nothing_fails(made: Path) -> None:
    except_(made, check="no_kernel", statements=["a"])
    (line,) = problems(made, statement("a"))
    assert line == "exceptions.yaml:2 exceptions.0: excuses nothing: no_kernel of a"


def test_an_exception_has_a_reason(made: Path) -> None:
    except_(made, check="no_kernel", statements=["a"], excuse="none")
    (line,) = problems(made, statement("a"))
    assert line.startswith("exceptions.yaml:2 exceptions.0: Object contains unknown field")


def test_an_index_that_is_old_is_a_problem(made: Path) -> None:
    assert not problems(made, statement("a"))
    (made / INDEX).unlink()
    with pytest.raises(OpListError, match="compile_statements"):
        lint(made)


def test_what_a_release_took_away_is_listed_and_nothing_else(made: Path) -> None:
    path = made / "regressions.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    first, *rest = content["regressions"]
    path.write_text(yaml.safe_dump({**content, "regressions": rest}), encoding="utf-8")
    (line,) = problems(made)
    assert f"{first['op']} went from {first['before']} to {first['after']}" in line
    wrong = {**first, "torch": "2.9"}
    path.write_text(yaml.safe_dump({**content, "regressions": [*rest, first, first, wrong]}), encoding="utf-8")
    twice, nothing = problems(made)
    assert twice.endswith("is listed twice")
    assert nothing.endswith("lost nothing such in torch 2.9")


def test_the_memory_of_macs_is_read_too(made: Path, tmp_path: Path) -> None:
    assert not problems(made)
    damaged = tmp_path / "op_lists"
    shutil.copytree(made, damaged)
    (damaged / "macs.yaml").write_text("schema: 1\n", encoding="utf-8")
    with pytest.raises(OpListError, match="missing required field"):
        lint(damaged)


def test_what_is_known_to_be_lost() -> None:
    losses = set(find_lost(load()))
    assert ("aten::_fft_c2c", "2.0", "cpu_fallback", "cpu_only") in losses
    assert ("aten::cholesky", "2.14", "kernel", "absent") in losses
    assert not [loss for loss in losses if loss[0] == "aten::mm"]


def test_a_release_of_the_evidence_that_is_unknown_or_outside_of_the_span_is_named(made: Path) -> None:
    evidence = {"kind": "issue", "where": "https://x.org/1", "reported": ["2.4"], "mended": "2.99"}
    texts = problems(made, statement("mm-fails", evidence=[evidence]))
    assert [text for text in texts if "releases.yaml has no release 2.99" in text]
    assert [text for text in texts if "reported on 2.4, outside of the span" in text]
