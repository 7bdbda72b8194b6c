"""What torch's modules and Python functions call, by release; read without torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.data.composites import PYTHON_CALLS, python_body, python_callers
from opcheck.data.lint import lint
from opcheck.data.registrations import data_directory


def test_a_module_calls_what_its_release_dispatches_to() -> None:
    before, now = python_body("nn.GroupNorm", "2.12"), python_body("nn.GroupNorm", "2.13")
    assert before is not None
    assert now is not None
    assert "aten::var_mean.correction" in before.always
    assert now.always == ("aten::native_group_norm",)


def test_a_release_that_lacks_a_name_has_no_calls_of_it() -> None:
    assert python_body("nn.RMSNorm", "2.3") is None
    assert python_body("nn.RMSNorm", "2.4") is not None
    assert python_body("nn.Nonsense", "2.13") is None


def test_what_only_training_calls_is_called_sometimes() -> None:
    dropout = python_body("nn.Dropout", "2.15")
    assert dropout is not None
    assert (dropout.always, dropout.sometimes) == ((), ("aten::native_dropout",))


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    (tmp_path / PYTHON_CALLS.name).write_text("{}", encoding="utf-8")
    with pytest.raises(OpListError, match="python_calls"):
        python_callers(tmp_path)


def test_a_call_of_an_operator_that_a_release_lacks_is_a_problem(tmp_path: Path) -> None:
    directory = tmp_path / "op_lists"
    shutil.copytree(data_directory(), directory)
    path = directory / PYTHON_CALLS.name
    text = path.read_text(encoding="utf-8")
    assert '"nn.GLU":[["1.13",["aten::glu"' in text
    path.write_text(text.replace('"aten::glu"', '"aten::glue"'), encoding="utf-8")
    with pytest.raises(OpListError, match=r"calls.nn.GLU: torch 1.13 has no aten::glue"):
        lint(directory)
