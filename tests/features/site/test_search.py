"""The other names under which the search finds an operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from opcheck.features.site.render import usual_words


@pytest.mark.parametrize(
    ("name", "python", "words"),
    [
        ("aten::cat", ("torch.cat",), ["concat", "concatenate"]),
        ("torchvision::nms", (), ["non maximum suppression"]),
        ("aten::linalg_inv", ("torch.linalg.inv",), ["inv"]),
        ("aten::sin", ("torch.sin",), []),
    ],
)
def test_the_usual_words_of_the_command_line_find_it(
    name: str, python: tuple[str, ...], words: list[str]
) -> None:
    page: Any = SimpleNamespace(name=name, python=python)
    assert usual_words(page) == words
