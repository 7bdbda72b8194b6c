"""What torch's modules and Python functions call, by release; read without torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opcheck.common.errors import OpListError
from opcheck.data.lint import lint
from opcheck.data.python_calls import FILE, calls, names
from opcheck.data.registrations import data_directory


def test_a_module_calls_what_its_release_dispatches_to() -> None:
    before, now = calls("nn.GroupNorm", "2.12"), calls("nn.GroupNorm", "2.13")
    assert before is not None
    assert now is not None
    assert "aten::var_mean.correction" in before.always
    assert now.always == ("aten::native_group_norm",)


def test_a_release_that_lacks_a_name_has_no_calls_of_it() -> None:
    assert calls("nn.RMSNorm", "2.3") is None
    assert calls("nn.RMSNorm", "2.4") is not None
    assert calls("nn.Nonsense", "2.13") is None


def test_what_only_training_calls_is_called_sometimes() -> None:
    dropout = calls("nn.Dropout", "2.15")
    assert dropout is not None
    assert (dropout.always, dropout.sometimes) == ((), ("aten::native_dropout",))


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{}", encoding="utf-8")
    with pytest.raises(OpListError, match="python_calls"):
        names(tmp_path)


def test_a_call_of_an_operator_that_a_release_lacks_is_a_problem(tmp_path: Path) -> None:
    directory = tmp_path / "op_lists"
    shutil.copytree(data_directory(), directory)
    path = directory / FILE
    text = path.read_text(encoding="utf-8")
    assert '"nn.GLU":[["1.13",["aten::glu"' in text
    path.write_text(text.replace('"aten::glu"', '"aten::glue"'), encoding="utf-8")
    with pytest.raises(OpListError, match=r"calls.nn.GLU: torch 1.13 has no aten::glue"):
        lint(directory)
