"""A kept report is found again only where all that it depends on is as it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from opcheck import report_cache
from opcheck.capture.request import CaptureRequest
from opcheck.report_cache import Cache, default_folder, dependencies
from opcheck.worker.dependency_tracking import Dependencies, digest, names_in
from tests.made import call, make_report, make_target

REQUEST = CaptureRequest(model="net.py:Net", target=make_target())
REPORT = msgspec.structs.replace(make_report(call("aten::mm")), graph=())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache with a report that depends on one of each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASKED", "1")
    Path("net.py").write_text("import helper\n")
    Path("data").mkdir()
    Path("notes.jsonl").write_bytes(
        b"\n".join(
            msgspec.json.encode(line)
            for line in (
                ["start"],
                ["file", str(Path("net.py").absolute()), *seen("net.py")],
                ["folder", str(Path("data").absolute()), names_in("data", modules=False)],
                ["modules", str(Path.cwd()), names_in(".", modules=True)],
                ["file", str(Path("gone.json").absolute()), None],
                ["environment", "ASKED", digest("1")],
                ["environment", "NOT_SET", None],
            )
        )
    )
    result = Cache(tmp_path / "cache")
    result.keep(REQUEST, REPORT, dependencies(Path("notes.jsonl"), REQUEST))
    return result


def seen(path: str) -> tuple[int, int]:
    about = Path(path).stat()
    return about.st_mtime_ns, about.st_size


def test_nothing_changed_is_the_same_report(kept: Cache) -> None:
    assert kept.find(REQUEST) == REPORT


def test_an_entry_that_was_made_for_another_key_is_none(kept: Cache) -> None:
    (entry,) = kept.folder.rglob("*.msgpack")
    other = msgspec.structs.replace(REQUEST, target=make_target("2.12"))
    place = kept._path(other)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(entry.read_bytes())
    assert kept.find(other) is None
    assert kept.find(REQUEST) == REPORT


def test_no_link_in_the_cache_is_followed(kept: Cache, tmp_path: Path) -> None:
    (entry,) = kept.folder.rglob("*.msgpack")
    elsewhere = tmp_path / "elsewhere"
    entry.rename(elsewhere)
    entry.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    assert kept.find(REQUEST) is None
    kept.keep(REQUEST, REPORT, Dependencies(seen=(("file", "/no/such", None),)))
    assert elsewhere.read_bytes() == before
    assert kept.find(REQUEST) == REPORT


def test_only_entries_are_forgotten(kept: Cache) -> None:
    (entry,) = kept.folder.rglob("*.msgpack")
    old, mine = entry.with_name(f"{'0' * 32}.msgpack"), entry.with_name("thesis.tex")
    for file in (old, mine):
        file.write_text("years")
        os.utime(file, (1, 1))
    kept.keep(REQUEST, REPORT, Dependencies())
    assert mine.read_text() == "years"
    assert not old.exists()


def test_a_file_that_was_written_anew_with_the_same_content_is_no_change(kept: Cache) -> None:
    Path("net.py").write_text("import helper\n")
    os.utime("net.py", (1, 1))
    assert kept.find(REQUEST) == REPORT


@pytest.mark.parametrize(
    "change",
    [
        lambda _: Path("net.py").write_text("import helped\n"),
        lambda _: Path("net.py").unlink(),
        lambda _: Path("data/new.txt").write_text(""),
        lambda _: Path("helper.py").write_text(""),
        lambda _: Path("gone.json").write_text("{}"),
        lambda patch: patch.setenv("ASKED", "2"),
        lambda patch: patch.delenv("ASKED"),
        lambda patch: patch.setenv("NOT_SET", ""),
        lambda patch: patch.setenv("PYTORCH_MPS_FAST_MATH", "1"),
        lambda patch: patch.setattr(report_cache, "_process_parts", lambda: ("another torch",)),
        lambda patch: patch.chdir("data"),
    ],
)
def test_whatever_it_depends_on_may_not_change(
    kept: Cache, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], object]
) -> None:
    change(monkeypatch)
    assert kept.find(REQUEST) is None


@pytest.mark.parametrize(
    "others",
    [
        {"target": make_target("2.14")},
        {"target": make_target(macos="26.0")},
        {"target": make_target(cpu_fallback=True)},
        {"config": {"layers": 2}},
    ],
)
def test_another_request_is_another_entry(kept: Cache, others: dict[str, object]) -> None:
    assert kept.find(msgspec.structs.replace(REQUEST, **others)) is None


def test_how_long_a_run_might_take_is_no_part_of_it(kept: Cache) -> None:
    assert kept.find(msgspec.structs.replace(REQUEST, time_limit=1.0, notes="x")) == REPORT


def entry(result: Cache) -> Path:
    (path,) = result.folder.rglob("*.msgpack")
    return path


@pytest.mark.parametrize("content", [b"", b"short", bytes(100)])
def test_a_damaged_entry_is_none(kept: Cache, content: bytes) -> None:
    entry(kept).write_bytes(content)
    assert kept.find(REQUEST) is None


def test_one_wrong_bit_is_damage(kept: Cache) -> None:
    whole = bytearray(entry(kept).read_bytes())
    whole[-20] ^= 1
    entry(kept).write_bytes(whole)
    assert kept.find(REQUEST) is None


def test_a_run_that_broke_off_is_not_kept(tmp_path: Path) -> None:
    result = Cache(tmp_path)
    result.keep(REQUEST, make_report(call("aten::mm"), complete=False), Dependencies())
    result.keep(REQUEST, REPORT, Dependencies(unknowable="it uses the network"))
    assert result.find(REQUEST) is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "did not say"),
        ([["start"], ["unknowable", "it starts a program"]], "it starts a program"),
        ([["start"], ["file", "/nowhere/x.json", 1, 1]], "x.json was changed meanwhile"),
        ([["start"], ["folder", "/a/b", "1"], ["folder", "/a/b", "2"]], "b was changed meanwhile"),
    ],
)
def test_what_cannot_be_known_is_said(tmp_path: Path, lines: list[object], why: str) -> None:
    notes = tmp_path / "notes"
    notes.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    assert why in dependencies(notes, REQUEST).unknowable


def test_a_file_that_changed_after_it_was_opened_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("1")
    notes = tmp_path / "notes"
    notes.write_text(f'["start"]\n["file", "{path}", 5, 1]\n')
    assert dependencies(notes, REQUEST).unknowable == "x.json was changed meanwhile"


def test_files_that_the_request_names_are_dependencies(tmp_path: Path) -> None:
    for name in ("x.npy", "w.pt", "net.pt2"):
        (tmp_path / name).write_bytes(b"1")
    notes = tmp_path / "notes"
    notes.write_text('["start"]\n')
    request = msgspec.structs.replace(
        REQUEST,
        model=str(tmp_path / "net.pt2"),
        input_files=(f"x={tmp_path / 'x.npy'}",),
        checkpoints=(str(tmp_path / "w.pt"),),
    )
    result = dependencies(notes, request)
    assert sorted(Path(path).name for _, path, _ in result.seen) == ["net.pt2", "w.pt", "x.npy"]


def test_a_folder_that_cannot_be_written_keeps_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = Cache(tmp_path / "file")
    result.keep(REQUEST, REPORT, Dependencies())
    assert result.find(REQUEST) is None


def test_what_nobody_asked_for_in_a_month_goes(kept: Cache) -> None:
    old = entry(kept).with_name(f"{'0' * 32}.msgpack")
    old.write_bytes(b"")
    before = time.time() - 31 * 86400
    os.utime(old, (before, before))
    kept.keep(REQUEST, REPORT, Dependencies())
    assert not old.exists()
    assert entry(kept).exists()


def test_nothing_else_is_left_in_the_folder(kept: Cache) -> None:
    assert [path.suffix for path in kept.folder.rglob("*") if path.is_file()] == [".msgpack"]


def test_it_is_below_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_folder() == Path("/caches/opcheck/gate")
