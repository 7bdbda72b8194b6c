"""Proposed statements: reviewed over the whole lists, applied on request, refused where they are wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from opcheck import cli
from opcheck.common.errors import OpListError, UsageError
from opcheck.data import merging
from opcheck.data.registrations import data_directory
from opcheck.data.statement_files import read_written

PROPOSAL = """# judged by nobody yet
schema: 1
limitations:
# what was seen
- id: seen-{id}-raises
  ops: ["aten::{name}"]
  effect: {effect}
  torch: {{since: "2.13", until: "2.14"}}
  when: "observed with some inputs"
  error: {{type: RuntimeError, text: "broken on MPS"}}
  summary: It raised.
  evidence:
  - {{kind: measured, torch: "2.13", where: "Apple M2, macOS 15.3 (24D81), torch 2.13"}}
"""


def proposal(tmp_path: Path, name: str = "sin", effect: str = "raises") -> Path:
    path = tmp_path / f"{name}.yaml"
    path.write_text(PROPOSAL.format(name=name, id=name.replace("_", "-"), effect=effect), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("lists") / "op_lists"
    shutil.copytree(data_directory(), copy)
    return copy


def test_a_proposal_is_shown_and_then_applied(
    tmp_path: Path, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [str(proposal(tmp_path)), "--directory", str(directory)]
    with monkeypatch.context() as patch:
        # Seconds; the second time it is the real one.
        patch.setattr(merging, "lint", lambda _: 0)
        assert cli.invoke(["lists", "merge", *flags]) == 0
    printed = capsys.readouterr()
    assert "+  - id: seen-sin-raises" in printed.out
    assert "+  # what was seen" in printed.out
    assert not (directory / "limitations" / merging.FILE).exists()
    assert cli.invoke(["lists", "merge", "--apply", *flags]) == 0
    written, problems = read_written(directory)
    assert problems == []
    assert "seen-sin-raises" in {item.statement.id for item in written}
    # The same again: its id is taken.
    with pytest.raises(OpListError, match="seen-sin-raises is taken"):
        merging.review(Path(flags[0]), directory)


def test_a_wrong_proposal_is_refused_whole(tmp_path: Path, directory: Path) -> None:
    before = (directory / "statements.json").read_bytes()
    with pytest.raises(OpListError, match="Invalid enum value 'raise'"):
        merging.review(proposal(tmp_path, "cos", "raise"), directory)
    assert (directory / "statements.json").read_bytes() == before


@pytest.mark.parametrize("text", ["a: [", "schema: 1\nlimitations: []\n", "[]", ""])
def test_what_proposes_nothing_is_an_error(tmp_path: Path, directory: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError):
        merging.review(path, directory)
