"""What .gitignore names is not scanned, unless it is named on the command line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opcheck.model.records import Problem
from opcheck.source import source
from opcheck.source.source import GitIgnores


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "made").mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("made/\n*.tmp.py\n/top.py\n!\n", encoding="utf-8")
    (tmp_path / "src" / ".gitignore").write_text("!keep.tmp.py\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("a.py", False),
        ("a.tmp.py", True),
        ("top.py", True),
        ("src/top.py", False),
        ("src/a.tmp.py", True),
        ("src/keep.tmp.py", False),
    ],
)
def test_the_deepest_file_that_speaks_of_a_path_decides(name: str, left_out: bool, project: Path) -> None:
    assert GitIgnores(project).leaves_out(project / name, is_directory=False) is left_out


def test_files_above_the_folder_count_up_to_the_repository(project: Path) -> None:
    ignores = GitIgnores(project / "src")
    assert ignores.leaves_out(project / "src" / "a.tmp.py", is_directory=False)
    assert ignores.leaves_out(project / "src" / "made", is_directory=True)
    (project / ".git").rmdir()
    alone = GitIgnores(project / "src")
    assert not alone.leaves_out(project / "src" / "a.tmp.py", is_directory=False)


def test_a_folder_that_was_named_is_read(project: Path) -> None:
    ignores = GitIgnores(project / "src" / "made")
    assert not ignores.leaves_out(project / "src" / "made" / "a.py", is_directory=False)


def test_no_folder_below_a_hundred_others_is_read(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 101)
    deep.mkdir(parents=True)
    (deep / "a.py").write_text("", encoding="utf-8")
    (deep.parent / "b.py").write_text("", encoding="utf-8")
    problems: list[Problem] = []
    found = [file.path.name for file in source.find([str(tmp_path)], Counter(), problems)]
    assert found == ["b.py"]
    assert [problem.message for problem in problems] == ["more than 100 folders deep"]
