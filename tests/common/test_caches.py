"""What a cache holds counts only where this user alone wrote it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opcheck.common import caches
from opcheck.common.errors import UsageError

if sys.platform == "win32":
    pytest.skip("the rights of a file are no bits there", allow_module_level=True)

#: No user of this system has that number.
_STRANGER = 54_321


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's cache that holds no key yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", "linux")
    caches._key.cache_clear()
    yield tmp_path / "home" / "opcheck"
    caches._key.cache_clear()


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def replace(path: Path, by: Callable[[Path], object]) -> None:
    path.unlink()
    by(path)


#: What a stranger does to an entry.
_DAMAGE: dict[str, Callable[[Path], object]] = {
    "a changed byte": flip,
    "no seal": lambda path: path.write_bytes(b"report"),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, 20),
    "a file without end": lambda path: os.truncate(path, 1 << 40),
    "a named pipe": lambda path: replace(path, os.mkfifo),
    "a device": lambda path: replace(path, lambda p: p.symlink_to("/dev/zero")),
    "a folder": lambda path: replace(path, Path.mkdir),
    "a link to itself": lambda path: replace(path, lambda p: p.symlink_to(p)),
    "another entry's content": lambda path: path.write_bytes(path.with_name("other").read_bytes()),
    "a link to another entry": lambda path: replace(path, lambda p: p.symlink_to(p.with_name("other"))),
    "a key of the stranger's": lambda _: (caches.user_cache() / "key").write_bytes(b"1" * 32),
    "no key": lambda _: (caches.user_cache() / "key").unlink(),
    "a key that never ends": lambda _: replace(caches.user_cache() / "key", os.mkfifo),
}


@pytest.mark.parametrize("damage", _DAMAGE.values(), ids=_DAMAGE)
def test_an_entry_that_this_user_did_not_write_is_none(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    entry = tmp_path / "checkout" / "entry"
    caches.store(entry, b"report")
    caches.store(entry.with_name("other"), b"report")
    assert caches.load(entry) == b"report"
    damage(entry)
    caches._key.cache_clear()
    assert caches.load(entry) is None


def test_an_entry_outlives_its_process(tmp_path: Path, home: Path) -> None:
    caches.store(tmp_path / "entry", b"")
    caches._key.cache_clear()
    assert caches.load(tmp_path / "entry") == b""
    assert (home / "key").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


def test_a_key_that_others_could_have_put_there_is_not_used(tmp_path: Path, home: Path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o777)
    (home / "key").write_bytes(b"1" * 32)
    caches.store(tmp_path / "entry", b"report")
    caches._key.cache_clear()
    assert caches.load(tmp_path / "entry") is None


def to_a_strangers(folder: Path) -> None:
    (folder.parent / "strange").mkdir()
    os.chown(folder.parent / "strange", _STRANGER, _STRANGER)
    folder.symlink_to(folder.parent / "strange", target_is_directory=True)


def by_a_stranger(folder: Path) -> None:
    (folder.parent / "mine").mkdir()
    folder.symlink_to(folder.parent / "mine")
    os.chown(folder, _STRANGER, _STRANGER, follow_symlinks=False)


def instead(by: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        folder.rmdir()
        by(folder)

    return change


#: What makes a folder that others can steer.
_OPEN: dict[str, Callable[[Path], object]] = {
    "all may write": lambda folder: folder.chmod(0o777),
    "all may write, each their own": lambda folder: folder.chmod(0o1777),
    "its group may write": lambda folder: folder.chmod(0o770),
    "all may replace it": lambda folder: folder.parent.chmod(0o777),
    "a stranger's": lambda folder: os.chown(folder, _STRANGER, _STRANGER),
    "a stranger's link": instead(by_a_stranger),
    "a link to a stranger's": instead(to_a_strangers),
    "a link to itself": instead(lambda folder: folder.symlink_to(folder)),
    "a file": instead(lambda folder: folder.write_bytes(b"")),
    "a named pipe": instead(os.mkfifo),
}


@pytest.mark.parametrize("change", _OPEN)
def test_no_code_is_taken_from_a_folder_that_others_can_write(tmp_path: Path, change: str) -> None:
    if "stranger" in change and os.geteuid():
        pytest.skip("only root gives a file to another user")
    folder = caches.require_private(tmp_path / "above" / "kernels")
    assert caches.is_private(folder)
    _OPEN[change](folder)
    assert not caches.is_private(folder)
    with pytest.raises(UsageError, match=r"cache folder") as error:
        caches.require_private(folder)
    assert error.value.hint
    assert error.value.context == str(folder)


def test_a_folder_in_a_sticky_one_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert caches.is_private(caches.require_private(tmp_path / "kernels"))


def test_a_folder_of_the_system_is_private(tmp_path: Path) -> None:
    assert caches.is_private(Path("/usr"))
    assert not caches.is_private(tmp_path / "missing")
