"""Lines of sources are quoted from regular files alone."""

from __future__ import annotations

import json
import linecache
import os
import sys
from pathlib import Path

import pytest

from opcheck.common.python_source import source_line, source_lines


def test_lines_are_those_of_linecache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert source_lines(json.__file__) == linecache.getlines(json.__file__)
    (tmp_path / "quoted_here.py").write_text("a\n  b\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert [source_line("quoted_here.py", line) for line in range(4)] == ["", "a", "b", ""]
    assert source_lines("<string>") == source_lines("no_such_file.py") == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
def test_a_source_that_became_a_pipe_or_a_device_has_no_lines(tmp_path: Path) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    os.mkfifo(tmp_path / "a.py")
    (tmp_path / "b.py").symlink_to("/dev/zero")
    assert source_lines(str(tmp_path / "a.py")) == source_lines(str(tmp_path / "b.py")) == []
