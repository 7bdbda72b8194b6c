"""What the environment of --exact holds for a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.capture import exact
from opcheck.common.errors import UsageError
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists


def test_a_library_is_of_the_time_of_the_torch(lists: OpLists, tmp_path: Path) -> None:
    wanted = exact.wanted("timm:resnet18", lists.release("2.9"), lists, tmp_path)
    assert (wanted.torch, wanted.before) == ("2.9.1", "2025-12-11")
    assert "timm" in wanted.libraries
    assert "torchvision==0.24.1" in wanted.libraries


def test_a_pin_of_the_project_wins(lists: OpLists, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("transformers==4.50.0  # ours\n-r other.txt\n")
    wanted = exact.wanted("transformers:BertModel", lists.release("2.9"), lists, tmp_path)
    assert wanted.libraries == ("transformers==4.50.0",)


def test_a_file_needs_what_it_and_its_neighbours_import(lists: OpLists, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import json\nimport torch\nimport blocks\n")
    (tmp_path / "blocks.py").write_text("import model\nfrom networkx import Graph\n")
    wanted = exact.wanted("model.py:Net", lists.release("2.9"), lists, tmp_path)
    assert wanted.libraries == ("networkx",)


def test_a_release_that_cannot_be_run_is_refused() -> None:
    with pytest.raises(UsageError, match="too old to be run"):
        exact.interpreter("m.py:M", Target(torch=Version(2, 7), macos=Version(15)))
