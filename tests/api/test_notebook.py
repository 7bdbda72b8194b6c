"""A report in a notebook that a real kernel runs."""

from __future__ import annotations

import json
from typing import Any

import nbformat
from nbclient import NotebookClient

_CELL = """
import torch
import opcheck
report = opcheck.audit(torch.nn.Linear(2, 2), torch.ones(1, 2), torch="2.13", macos="15")
report
"""


def test_a_cell_shows_the_report_and_prints_the_answer_of_the_terminal() -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
        for source in (_CELL, "print(report)")
    ]
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    notebook = nbformat.reads(json.dumps(content), as_version=4)  # type: ignore[no-untyped-call]  # it has no types
    NotebookClient(notebook, timeout=300).execute()
    shown, printed = notebook.cells
    (result,) = [each for each in shown.outputs if each.output_type == "execute_result"]
    html = result.data["text/html"]
    assert "runs natively: torch.nn.modules.linear.Linear on torch 2.13" in html
    assert "<script" not in html
    (stream,) = printed.outputs
    assert stream.text.startswith("runs natively: torch.nn.modules.linear.Linear on torch 2.13")
    assert max(map(len, stream.text.splitlines())) <= 100
