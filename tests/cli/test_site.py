"""``opcheck site build``: what it says, and what it refuses before any work is done."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opcheck.cli import invoke
from opcheck.render.site import build, render
from tests.render.site.made import lists, write_sweep


def test_a_site_is_built_and_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow", reason="no pyarrow here: the extra sweep")
    monkeypatch.setattr(build, "load", lists)
    sweep = write_sweep(tmp_path / "sweep")
    output = tmp_path / "site"
    assert invoke(["site", "build", "-o", str(output), "--sweep", str(sweep), "-q"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith(f"open {output / 'index.html'}\n")
    assert said.err == ""
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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years", encoding="utf-8")
    assert invoke(["site", "build", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.fixture
def no_markdown_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    real = builtins.__import__

    def without(name: str, *others: Any, **more: Any) -> Any:
        if name == "markdown_it":
            raise ModuleNotFoundError("No module named 'markdown_it'", name="markdown_it")
        return real(name, *others, **more)

    render.environment.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    yield
    render.environment.cache_clear()


@pytest.mark.usefixtures("no_markdown_it")
def test_a_missing_extra_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["site", "build", "-o", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[0] == "building the site needs markdown_it, which is not installed"
    assert error[2] == "  help: pip install 'opcheck[site]'"
