from __future__ import annotations

import json
from pathlib import Path

import pytest

from opcheck.common import notebooks


@pytest.mark.parametrize(
    "cell",
    [
        "use = True # this, or that?",
        "text = '''\n%d of them\n!ls\nwhat?\n'''",
        "x = (\n    'a%s'\n    % name\n    % (b)\n    != c\n)",
    ],
    ids=["a question in a comment", "a text", "an expression that goes on"],
)
def test_python_stays_as_it_is(cell: str) -> None:
    assert notebooks.without_magics(cell) == cell.split("\n")


@pytest.mark.parametrize(
    ("cell", "plain"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!pip install \\\n  torch\nx = 1", "pass\n\nx = 1"),
        ("if True:\n    !ls", "if True:\n    pass"),
        ("torch.nn.Linear?", "pass"),
        ("?torch", "pass"),
        ("files = !ls", "files = []"),
        ("time = %timeit -o f()", "time = []"),
        ("%load_ext a\nx = 1 # or 2?", "pass\nx = 1 # or 2?"),
        ("!ls\nx = (\n    'a'\n    % (b)\n    != c\n)", "pass\nx = (\n    'a'\n    % (b)\n    != c\n)"),
        ("%%bash\nls", "\n"),
        ("%%time\nx = 1", "pass\nx = 1"),
    ],
)
def test_the_syntax_of_ipython_does_nothing(cell: str, plain: str) -> None:
    assert notebooks.without_magics(cell) == plain.split("\n")


def test_a_cell_may_await_and_display(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = "import asyncio\nx = await asyncio.sleep(0, 7)\ndisplay(x)"
    file = tmp_path / "a.ipynb"
    file.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell}]}))
    names: dict[str, object] = {}
    notebooks.run(file, names)
    assert names["x"] == 7
    assert capsys.readouterr().out == "7\n"
