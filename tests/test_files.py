"""A file is written whole or not at all; what is no file stays what it is."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from opcheck.errors import UsageError
from opcheck.files import write_text


def test_a_file_is_written_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "report.yaml"
    write_text(file, "one\n")
    write_text(file, "two\n")
    assert file.read_text() == "two\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_is_followed(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    write_text(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text")
    reader.join(timeout=10)
    assert read == ["text"]
    assert pipe.is_fifo()


def test_a_directory_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        write_text(tmp_path / "no" / "file", "text")
    assert "directory" in caught.value.hint


def test_a_directory_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        write_text(tmp_path, "text")
    assert tmp_path.is_dir()
