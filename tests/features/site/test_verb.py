"""``opcheck site build``: what it says, and what it refuses before any work is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.cli import invoke
from opcheck.features.site import pages
from tests.features.site.made import lists, write_sweep


def test_a_site_is_built_and_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="no pyarrow here: the extra sweep")
    monkeypatch.setattr(pages, "load", lists)
    sweep = write_sweep(tmp_path / "sweep")
    output = tmp_path / "site"
    assert invoke(["site", "build", "-o", str(output), "--sweep", str(sweep), "-q"]) == 0
    result = capsys.readouterr()
    assert result.out.endswith(f"open {output / 'index.html'}\n")
    assert result.err == ""
    assert (output / "model" / "timm" / "two.html").is_file()
    assert invoke(["site", "build", "-o", str(output), "-q"]) == 0
    assert not (output / "model").exists()
    assert not (output / "models.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing option"),
        (["-o", "mine"], "not empty, and no earlier site"),
        (["-o", "new", "--sweep", "nowhere"], "the sweep has no table outcomes"),
    ],
)
def test_wrong_usage_is_said_in_three_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years", encoding="utf-8")
    assert invoke(["site", "build", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
