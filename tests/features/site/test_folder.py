"""A site is there whole or not at all, and takes the place of nothing else."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from opcheck.common.errors import UsageError
from opcheck.features.site import render
from opcheck.features.site.pages import build

FILES = {"index.html": "one", "op/aten/mm.html": "two"}


def content(path: Path) -> dict[str, str]:
    return {
        item.relative_to(path).as_posix(): item.read_text(encoding="utf-8")
        for item in path.rglob("*")
        if item.is_file()
    }


def test_new_empty_and_earlier_folders_are_taken(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("deep/new", "empty"):
        render.write(tmp_path / name, FILES)
        render.write(tmp_path / name, {"index.html": "three"})
        assert content(tmp_path / name).keys() == {"index.html", render.MARKER}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "empty"]


@pytest.mark.parametrize("name", ["file/x", "file/x/y", "file", "circle", "circle/x", "dangling"])
def test_a_folder_below_what_is_no_folder_is_refused_before_the_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(UsageError, match="not a folder") as raised:
        render.check(tmp_path / name)
    assert len(str(raised.value).splitlines()) == 3


@pytest.mark.parametrize("name", ["../mine", "/etc/mine.html", "op/../../../mine", "~/mine"])
def test_a_page_is_written_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="leads out of its folder"):
        render.write(tmp_path / "site", {**FILES, name: "theirs"})
    assert not list(tmp_path.iterdir())


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    render.write(tmp_path / "link", FILES)
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "real")["index.html"] == "one"


@pytest.mark.parametrize("other", ["CNAME", "op/aten/notes.txt", "opcheck-site.json"])
def test_a_folder_with_anything_else_is_refused(tmp_path: Path, other: str) -> None:
    output = tmp_path / "site"
    render.write(output, FILES)
    (output / other).write_text("mine", encoding="utf-8")
    before = content(output)
    with pytest.raises(UsageError) as caught:
        render.write(output, {"index.html": "three"})
    assert len(str(caught.value).splitlines()) == 3
    assert content(output) == before


def test_a_folder_of_somebody_else_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years", encoding="utf-8")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="not empty, and no earlier site"):
        render.check(tmp_path / "mine")
    with pytest.raises(UsageError, match="not a folder"):
        render.check(tmp_path / "file")
    assert (tmp_path / "mine" / "thesis.tex").read_text(encoding="utf-8") == "years"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_leaves_the_earlier_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    output = tmp_path / "site"
    render.write(output, FILES)
    real = Path.write_text

    def full(path: Path, *args: object, **others: object) -> int:
        if path.name == "mm.html":
            raise error
        return real(path, *args, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises((UsageError, KeyboardInterrupt)) as caught:
        render.write(output, {**FILES, "index.html": "three"})
    if isinstance(error, OSError):
        assert "No space left on device" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 3
    monkeypatch.undo()
    assert content(output)["index.html"] == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_where_the_move_fails_the_earlier_site_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "site"
    render.write(output, FILES)
    real = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name.endswith(".new"):
            raise OSError(errno.EBUSY, "Device or resource busy")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(UsageError, match="busy"):
        render.write(output, {"index.html": "three"})
    monkeypatch.undo()
    assert content(output)["index.html"] == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_where_the_earlier_site_cannot_come_back_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "site"
    render.write(place, {"index.html": "before"})
    real = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if target == place:
            raise OSError(errno.EACCES, "Permission denied")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(UsageError, match="cannot write the site"):
        render.write(place, {"index.html": "after"})
    (kept,) = tmp_path.iterdir()
    assert (kept / "index.html").read_text() == "before"


@pytest.mark.parametrize("free", [2, 40])
def test_a_full_disk_is_found_before_the_pages_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    room = shutil.disk_usage(tmp_path)._replace(free=free << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: room)
    with pytest.raises(UsageError, match="No space left on device") as caught:
        build(tmp_path / "deep" / "site", progress=lambda page: pytest.fail(f"made {page}"))
    assert len(str(caught.value).splitlines()) == 3
    assert not list(tmp_path.iterdir())
    render.check_room(tmp_path / "site", 1)
