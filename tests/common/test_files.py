"""A file is written whole or not at all; what is no file stays what it is."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from io import FileIO
from pathlib import Path

import pytest

from opcheck.common import files
from opcheck.common.errors import UsageError
from opcheck.common.files import check_writable, describe_missing, inside, is_file, rewrite, write_text


def test_a_file_is_written_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "report.yaml"
    write_text(file, "one\n")
    write_text(file, "two\n")
    assert file.read_text() == "two\n"
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_there_and_no_file_is_not_said_to_be_missing(tmp_path: Path) -> None:
    folder, nothing = tmp_path / "folder.py", tmp_path / "none.py"
    folder.mkdir()
    assert describe_missing(folder) == f"{folder} is not a regular file"
    assert describe_missing(nothing) == f"there is no file {nothing}"


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    file, link, dangling = tmp_path / "file", tmp_path / "link", tmp_path / "dangling"
    file.write_text("old")
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "nothing")
    for path in (link, dangling):
        write_text(path, "new")
        assert not path.is_symlink()
        assert path.read_text() == "new"
    assert file.read_text() == "old"
    assert not (tmp_path / "nothing").exists()


def test_a_link_to_itself_and_a_pipe_without_a_reader_are_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    monkeypatch.setattr(files, "_PATIENCE", 0.1)
    circle, pipe = tmp_path / "circle", tmp_path / "pipe"
    circle.symlink_to(circle)
    os.mkfifo(pipe)
    for path in (circle, pipe, tmp_path):
        with pytest.raises(UsageError, match="cannot write the file") as raised:
            write_text(path, "new")
        assert len(str(raised.value).splitlines()) == 3
    assert circle.is_symlink()
    assert sorted(tmp_path.iterdir()) == [circle, pipe]


@pytest.mark.parametrize("name", ["a", "a/b", "./a", "a/../b", "", ".", "link/c", "..a"])
def test_a_name_below_a_folder_is_a_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to("below")
    assert inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize("name", ["..", "a/../../b", "/etc/passwd", "~", "~root/a", "link/a", "circle/a", "a\0b"])
def test_a_name_that_leads_out_of_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    (root / "circle").symlink_to(tmp_path / "root-two")
    with pytest.raises(UsageError, match="leads out of its folder"):
        inside(root, name)


def test_a_link_to_a_pipe_is_written_to(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    link = tmp_path / "stdout"
    link.symlink_to(f"/dev/fd/{writing}")
    write_text(link, "text")
    os.close(writing)
    assert os.read(reading, 10) == b"text"
    os.close(reading)


def test_half_a_character_is_written_as_its_number(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "\udcff")
    assert (tmp_path / "file").read_text() == "\\udcff"


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000, "\ud800"])
def test_a_name_that_the_system_refuses_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        write_text(tmp_path / name, "text")
    assert not is_file(tmp_path / name)


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("Windows has no named pipes in folders")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "text")
    reader.join(timeout=600)
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


def test_a_file_is_rewritten_only_as_it_was_read(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"one\r\n")
    file.chmod(0o751)
    rewrite(file, b"one\r\n", b"two\r\n")
    assert file.read_bytes() == b"two\r\n"
    assert file.stat().st_mode & 0o777 == 0o751
    with pytest.raises(UsageError, match="changed while it was read"):
        rewrite(file, b"one\r\n", b"three")
    with pytest.raises(UsageError, match="changed while it was read"):
        rewrite(file, b"", b"three")
    rewrite(file, b"one\r\n", b"two\r\n")  # it is so already
    assert file.read_bytes() == b"two\r\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_with_two_names_keeps_both(tmp_path: Path) -> None:
    file, other = tmp_path / "a.py", tmp_path / "b.py"
    file.write_bytes(b"three")
    other.hardlink_to(file)
    rewrite(file, b"three", b"two")
    assert other.read_bytes() == b"two"
    assert other.samefile(file)
    assert sorted(tmp_path.iterdir()) == [file, other]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives a file away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"one")
    shutil.chown(file, 12345, 12345)
    rewrite(file, b"one", b"two")
    assert (file.read_bytes(), file.stat().st_uid, file.stat().st_gid) == (b"two", 12345, 12345)


def test_a_failed_write_in_place_brings_the_old_content_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = tmp_path / "a.py", tmp_path / "b.py"
    file.write_bytes(b"one")
    other.hardlink_to(file)
    overwrite = files._overwrite

    def no_space(opened: FileIO, content: bytes) -> None:
        overwrite(opened, content[:1])
        if content == b"two":
            raise OSError(28, "No space left on device")
        overwrite(opened, content)

    monkeypatch.setattr(files, "_overwrite", no_space)
    with pytest.raises(UsageError, match="No space left"):
        rewrite(file, b"one", b"two")
    assert other.read_bytes() == b"one"
    assert sorted(tmp_path.iterdir()) == [file, other]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "a.py"
    file.write_bytes(b"one")
    monkeypatch.setattr(Path, "replace", no_space)
    with pytest.raises(UsageError, match="No space left"):
        rewrite(file, b"one", b"two")
    assert file.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [file]
    file.chmod(0o444)
    with pytest.raises(UsageError, match="it is read-only"):
        rewrite(file, b"one", b"two")


def test_a_check_finds_a_full_device_and_a_pipe_without_a_reader_and_ends_no_pipe_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    monkeypatch.setattr(files, "_PATIENCE", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/full")):
        if path.exists():
            with pytest.raises(UsageError, match="cannot write the file"):
                check_writable(path)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    with pytest.raises(BlockingIOError):  # nothing yet, and not the end
        os.read(reading, 1)
    write_text(pipe, "new")
    assert (os.read(reading, 9), os.read(reading, 9)) == (b"new", b"")
    os.close(reading)
