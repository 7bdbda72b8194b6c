from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.common.errors import UsageError
from opcheck.features.sweep.models import models


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.yaml", 'models:\n- timm:a  # one\n- {model: "a.py:B", inputs: ["1x2:float32"], config: {n: 2}}\n'),
        ("m.yml", '- timm:a\n- {model: "a.py:B", inputs: ["1x2:float32"], config: {n: 2}}\n'),
        ("m.toml", 'models = ["timm:a", {model = "a.py:B", inputs = ["1x2:float32"], config = {n = 2}}]'),
    ],
)
def test_a_list_says_models_with_what_they_need(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    first, other = models([str(tmp_path / name), "timm:a"])
    assert (first.spec, first.family, first.library) == ("timm:a", "a", "timm")
    assert (other.spec, other.inputs, other.config) == ("a.py:B", ("1x2:float32",), {"n": 2})
    assert other.library == "user"


def test_lines_are_models_too(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_text("# all\ntimm:a\n\ntimm:b # the other\n")
    assert [model.spec for model in models([str(tmp_path / "m.txt")])] == ["timm:a", "timm:b"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.yaml", "models: 3"),
        ("m.yaml", "- {modle: timm:a}"),
        ("m.yaml", "- [timm:a"),
        ("m.toml", "models = 3"),
        ("m.toml", "models = ["),
        ("m.txt", "# nothing\n"),
    ],
)
def test_what_is_no_list_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        models([str(tmp_path / name)])
    assert name in caught.value.context
    assert caught.value.hint


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the list of models"):
        models([str(tmp_path / "m.txt")])
