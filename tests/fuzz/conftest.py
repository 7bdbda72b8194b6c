from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.trial import Trial, no_children


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """The command line in directories of its own, which starts no process."""
    no_children(monkeypatch)
    return Trial(tmp_path)
