"""The README's example of the Python API runs, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[3] / "README.md"


def test_the_example_of_the_python_api(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(import opcheck\n.*?)```", README.read_text(), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})  # noqa: S102 - our own README
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["runs natively", "aten::gelu 1 native", "aten::linear 1 native"]
