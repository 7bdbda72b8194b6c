from __future__ import annotations

from pathlib import Path

import pytest

from opcheck.cli import invoke


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backend", "dask"], "the address of the scheduler is missing"),
        (["--torch", "1.2"], "there is no op list"),
        (["--jobs", "0"], "--jobs"),
        (["--mode", "dream"], "--mode"),
        (["--backend", "ray"], "'ray' is not one of 'local', 'dask'"),
    ],
)
def test_what_cannot_be_swept_is_said_in_three_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code = invoke(["sweep", "timm:x", "--folder", str(tmp_path / "new"), *arguments])
    error = capsys.readouterr().err
    assert code in {2, 3}
    assert said in error
    assert len(error.splitlines()) == 3
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_sweep_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["sweep", "report", str(tmp_path / "none")]) == 2
    assert "there is no sweep in this folder" in capsys.readouterr().err


def test_a_list_without_a_model_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").touch()
    code = invoke(["sweep", str(tmp_path / "empty.txt"), "--folder", str(tmp_path / "new")])
    assert code == 2
    assert capsys.readouterr().err.startswith("there is no model to sweep\n")
    assert not (tmp_path / "new").exists()


def test_a_sweep_without_any_verdict_could_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text("x = 1\n")
    words = ["--torch", "2.13", "--mode", "inference", "--folder", str(tmp_path / "new")]
    assert invoke(["sweep", "models.py:Net", *words]) == 3
