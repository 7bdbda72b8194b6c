"""What the environment of --exact holds for a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from opcheck.capture import exact
from opcheck.common.errors import UsageError
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists


def test_a_library_is_of_the_time_of_the_torch(lists: OpLists, tmp_path: Path) -> None:
    wanted = exact.describe_environment("timm:resnet18", lists.release("2.9"), lists, tmp_path)
    assert (wanted.torch, wanted.before) == ("2.9.1", "2025-12-11")
    assert "timm" in wanted.libraries
    assert "torchvision==0.24.1" in wanted.libraries


def test_a_pin_of_the_project_wins(lists: OpLists, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.50.0  # ours\n-r other.txt\n")
    wanted = exact.describe_environment("transformers:BertModel", lists.release("2.9"), lists, tmp_path)
    assert wanted.libraries == ("transformers==4.50.0",)


def test_a_file_needs_what_it_and_its_neighbours_import(lists: OpLists, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import json\nimport torch\nimport blocks\n")
    (tmp_path / "blocks.py").write_text("import model\nfrom networkx import Graph\n")
    wanted = exact.describe_environment("model.py:Net", lists.release("2.9"), lists, tmp_path)
    assert wanted.libraries == ("networkx",)


def test_a_release_that_cannot_be_run_is_refused() -> None:
    with pytest.raises(UsageError, match="too old to be run"):
        exact.interpreter("m.py:M", Target(torch=Version(2, 7), macos=Version(15)))


def test_files_that_import_the_next_two_are_each_read_once(lists: OpLists, tmp_path: Path) -> None:
    for number in range(40):
        text = f"import m{number + 1}, m{number + 2}\nimport networkx\n"
        (tmp_path / f"m{number}.py").write_text(text)
    (tmp_path / "m40.py").write_text("")
    (tmp_path / "m41.py").write_text("")
    wanted = exact.describe_environment("m0.py:Net", lists.release("2.9"), lists, tmp_path)
    assert wanted.libraries == ("networkx",)


@pytest.mark.parametrize(
    ("name", "text", "left_out"),
    [
        ("requirements.txt", "-" * 300_000, ""),
        ("requirements.txt", "-\n" * 300_000, "behind its first 10,000"),
        ("requirements.txt", f"timm; {'(' * 400}", ""),
        ("uv.lock", "package = 1", ""),
        ("uv.lock", "package = [1, {name = 1}, {version = 2}]", ""),
        ("uv.lock", "[[package]]\nname = [1]\nversion = {}", ""),
        ("pyproject.toml", "project = [1]", ""),
        ("pyproject.toml", "[project]\ndependencies = {a = 1}", ""),
        ("pyproject.toml", "[project]\ndependencies = [1, [2], {}]", ""),
        ("pyproject.toml", f"a = {'[' * 50_000}", "nested more than"),
        ("pyproject.toml", f"{'a.' * 200_000}b = 1", "nested more than"),
    ],
)
def test_what_is_no_requirement_pins_nothing(
    lists: OpLists, tmp_path: Path, name: str, text: str, left_out: str
) -> None:
    (tmp_path / name).write_text(text)
    said: list[str] = []
    wanted = exact.describe_environment("timm:resnet18", lists.release("2.9"), lists, tmp_path, said.append)
    assert "timm" in wanted.libraries
    assert bool(said) == bool(left_out)
    assert left_out in "".join(said)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "uv.lock"])
def test_a_pipe_or_a_device_is_left_out_of_the_pins(lists: OpLists, tmp_path: Path, name: str) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        make(tmp_path / name)
        said: list[str] = []
        exact.describe_environment("timm:resnet18", lists.release("2.9"), lists, tmp_path, said.append)
        assert said == [f"left out {name}: not a regular file"]
        (tmp_path / name).unlink()
