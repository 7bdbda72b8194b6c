"""The sample reports are what this version writes; scripts/refresh_reports.py writes them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import opcheck
from tests.render.test_schema import problems

REPORTS = Path(opcheck.__file__).parents[1] / "reports"
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SAMPLES = [
    path
    for path in sorted(REPORTS.glob("*.yaml"))
    if path.read_text(encoding="utf-8").startswith("schema: opcheck-report/")
]


def test_there_are_samples() -> None:
    assert len(SAMPLES) > 10


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.stem))
def test_a_sample_report_is_valid(path: Path) -> None:
    assert problems(yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)) == []  # noqa: S506  (a safe one)
