"""Lists of a wheel that is no listed release: made in the cache, chosen by their version, and never by a range."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from opcheck.common.errors import OpListError, UsageError
from opcheck.common.versions import Version
from opcheck.data import built_lists, targets
from opcheck.data.registrations import FILES, NIGHTLY, VARIABLE, load, shipped_directory
from opcheck.data.wheels import release
from opcheck.data.wheels.release import ReleaseFacts

ROOT = Path(__file__).parents[2]
NEW = "2.16.0.dev20261120"


def facts(torch: str, like: str = "2.15", **changed: str) -> ReleaseFacts:
    """Return what a wheel of that version registers: as a listed release, but for these overloads."""
    lists = load(shipped_directory())
    release = msgspec.structs.replace(
        lists.release(like), torch=torch, line=str(Version.parse(torch)), wheel=f"torch-{torch}.whl"
    )
    columns = {key: dict(lists.operators(like, key)) for key in FILES}
    columns["MPS"].update({f"aten::{name}": value for name, value in changed.items()})
    return ReleaseFacts(release=release, columns=columns)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OPCHECK_CACHE", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    yield tmp_path
    built_lists.select()


def build(read: ReleaseFacts, folder: Path, monkeypatch: pytest.MonkeyPatch) -> built_lists.BuiltLists:
    wheel = folder / f"torch-{read.release.torch}-cp311-cp311-macosx_14_0_arm64.whl"
    wheel.write_bytes(b"wheel")
    monkeypatch.setattr(release, "obtain", lambda *_: wheel)
    monkeypatch.setattr(release, "read_release", lambda _: read)
    return built_lists.build_lists(wheel)


def test_a_run_that_names_the_version_has_the_wheel_and_no_other_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = build(facts(NEW, mode="kernel"), home, monkeypatch)
    assert (about.torch, about.line, about.carried) == (NEW, "2.16", "2.15.0")
    assert load().releases[-1].line == "2.15"
    assert built_lists.select(NEW) == about
    lists = load()
    mac = targets.target(NEW, None, lists)
    assert (str(mac.torch), mac.beyond) == ("2.16", "")
    assert lists.resolve("aten::mode", "2.16").status == "native"
    assert lists.resolve("aten::mode", "2.15").status != "native"
    assert targets.release_of(NEW, lists).torch == NEW
    assert built_lists.select("2.15") is None
    assert load().releases[-1].line == "2.15"


def test_a_range_and_newest_mean_releases_and_nightly_the_wheel(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(facts("2.16.0.dev20261119"), home, monkeypatch)
    build(facts(NEW), home, monkeypatch)
    assert built_lists.select(NIGHTLY, ">=2.14") is not None
    lists = load()
    assert targets.release_of("nightly", lists).torch == NEW
    assert targets.release_of("latest", lists).torch == targets.release_of(None, lists).torch == "2.15.0"
    assert [str(line) for line in targets.releases(">=2.14", lists)] == ["2.14", "2.15"]
    assert [str(line) for line in targets.releases(["newest", "nightly"], lists)] == ["2.15", "2.16"]


def test_an_unlisted_patch_release_answers_for_its_line(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = build(facts("2.12.0", "2.12", mode="kernel"), home, monkeypatch)
    assert not about.is_new_line
    built_lists.select("2.12.0")
    assert load().release("2.12").torch == "2.12.0"
    assert [str(line) for line in targets.releases("2.12", load())] == ["2.12"]
    built_lists.select("2.12")
    assert load().release("2.12").torch == "2.12.1"


def test_a_listed_release_needs_no_lists_of_its_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="is a listed release"):
        build(facts("2.15.0"), home, monkeypatch)
    assert built_lists.list_built() == {}
    assert [*built_lists.folder().iterdir()] == []


def test_lists_that_extend_other_lists_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = build(facts(NEW), home, monkeypatch)
    file = built_lists.folder() / NEW / "built.json"
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(about, base="0")))
    with pytest.raises(OpListError, match="extend other op lists"):
        built_lists.select(NEW)
    file.write_text("{")
    assert built_lists.select(NEW) is None


def test_two_unlisted_versions_in_a_run_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(facts(NEW), home, monkeypatch)
    build(facts("2.12.0", "2.12"), home, monkeypatch)
    with pytest.raises(UsageError, match=r"2\.12\.0"):
        built_lists.select(NEW, "2.12.0")


def opcheck(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "opcheck", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_the_command_line_takes_the_version(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(facts(NEW, mode="kernel"), home, monkeypatch)
    assert "native on torch 2.16" in opcheck("op", "aten::mode", "--torch", NEW)
    assert "native on torch 2.16" in opcheck("op", "aten::mode", "--torch", "nightly")
    assert "on torch 2.15" in opcheck("op", "aten::mode")
    # It is newer than every list where it was not read.
    assert "newer than the op lists" in opcheck("op", "aten::mode", "--torch", "2.16.0.dev20261121", code=3)


@pytest.mark.slow
def test_a_nightly_that_cannot_be_had_is_three_lines(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPCHECK_NIGHTLY_INDEX", (home / "no-index").as_uri())
    text = opcheck("op", "isin", "--torch", "nightly", code=3)
    assert text.startswith("no nightly wheel of torch could be downloaded")
    assert len(text.splitlines()) == 3


@pytest.mark.slow
def test_an_audit_names_what_the_lists_carry_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opcheck.api import audit

    build(facts(NEW), home, monkeypatch)
    report = audit("torch.nn:ReLU", ("2x3",), torch=NEW)
    assert report.op_lists.torch == NEW
    assert any(NEW in text and "2.15.0" in text for text in report.not_checked)
    assert audit("torch.nn:ReLU", ("2x3",)).target.torch == "2.15"
