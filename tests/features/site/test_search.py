"""The other names under which the search finds an operator."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from opcheck.features.site.page_records import SitePage
from opcheck.features.site.render import search_index, usual_words


@pytest.mark.parametrize(
    ("name", "python", "words"),
    [
        ("aten::cat", ("torch.cat",), ["concat", "concatenate"]),
        ("torchvision::nms", (), ["non maximum suppression"]),
        ("aten::linalg_inv", ("torch.linalg.inv",), ["inv"]),
        ("aten::sin", ("torch.sin",), []),
    ],
)
def test_the_usual_words_of_the_command_line_find_it(name: str, python: tuple[str, ...], words: list[str]) -> None:
    page: Any = SimpleNamespace(name=name, python=python)
    assert usual_words(page) == words


def test_the_index_has_the_spellings_of_dtypes_and_the_states_that_differ(small_pages: tuple[SitePage, ...]) -> None:
    text = search_index(small_pages).removeprefix("opcheckIndex(").removesuffix(");\n")
    _, dtypes, differing, entries = json.loads(text)
    assert dtypes["bf16"] == "bfloat16"
    found = {name: (others, differing[place[0]]) for kind, name, _, _, others, *place in entries if kind == 0}
    others, states = found["aten::bmm" if "aten::bmm" in found else "aten::mm"]
    assert states["float64"] == "unsupported"
    assert any(name.startswith(("nn.", "Tensor.", "torch.")) for name in others)
