from __future__ import annotations

import ast
import errno
from pathlib import Path

import pytest

import opcheck
from opcheck.common.errors import UsageError
from opcheck.common.versions import Target, Version
from opcheck.features.sweep.sweep_folder import ABOUT, SOURCES, Folder, key_of, read
from opcheck.features.sweep.sweep_records import Model
from tests.features.sweep.made import about, runs

ROOT = Path(opcheck.__file__).parent
#: Imported with the pipeline, of which a sweep takes the headline and the totals alone.
WITHOUT_A_PART = {"numerics"}
MAC = Target(torch=Version(2, 13), macos=Version(15))


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    with Folder(tmp_path / "new") as folder:
        folder.begin(about(["a" * 32, "c" * 32]))
        assert not folder.has("a" * 32)
        folder.keep(runs())
        assert folder.has("a" * 32)
    _, results = read(tmp_path / "new")
    assert list(results) == [runs()]


def test_a_second_sweep_into_one_folder_is_refused(tmp_path: Path) -> None:
    with (
        Folder(tmp_path),
        pytest.raises(UsageError, match=r"another sweep writes into this folder: process \d+ on"),
        Folder(tmp_path),
    ):
        pass
    with Folder(tmp_path):
        pass


def test_a_folder_of_another_version_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / ABOUT).write_text('{"format": 0, "opcheck": "0.1.0"}')
    with pytest.raises(UsageError, match="its format is 0, this one's 1") as caught, Folder(tmp_path):
        pass
    assert "--fresh" in caught.value.hint
    with Folder(tmp_path, fresh=True) as folder:
        folder.begin(about([]))
    assert read(tmp_path)[0] == about([])


def test_fresh_forgets_what_was_there(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        folder.begin(about(["a" * 32]))
        folder.keep(runs())
    with Folder(tmp_path, fresh=True) as folder:
        folder.begin(about(["a" * 32]))
        assert not folder.has("a" * 32)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(UsageError, match="not that of a sweep"), Folder(tmp_path):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize("marker", [None, "{", "[]", '{"format": "1"}', '{"format": 1}'])
def test_fresh_deletes_nothing_in_a_folder_of_something_else(tmp_path: Path, marker: str | None) -> None:
    kept = [tmp_path / "years.parquet", tmp_path / "results" / "ab" / "thesis.json"]
    kept[1].parent.mkdir(parents=True)
    for file in kept:
        file.write_text("years")
    if marker is not None:
        (tmp_path / ABOUT).write_text(marker)
    with pytest.raises(UsageError) as caught, Folder(tmp_path, fresh=True) as folder:
        folder.begin(about([]))
    assert "another folder" in caught.value.hint
    assert [file.read_text() for file in kept] == ["years", "years"]


def test_fresh_deletes_only_what_a_sweep_names_so_and_follows_no_link(tmp_path: Path) -> None:
    sweep, elsewhere = tmp_path / "sweep", tmp_path / "elsewhere"
    with Folder(sweep) as folder:
        folder.begin(about(["a" * 32]))
        folder.keep(runs())
    kept = [
        elsewhere / "bb" / f"{'b' * 32}.json",
        sweep / "results" / "aa" / "notes.json",
        sweep / "results" / "aa" / f"{'c' * 32}.json",
        sweep / "mine.parquet",
    ]
    for file in kept:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("years")
    (sweep / "results" / "bb").symlink_to(elsewhere / "bb")
    (sweep / "outcomes.parquet").symlink_to(kept[0])
    with Folder(sweep, fresh=True) as folder:
        folder.begin(about(["a" * 32]))
        assert not folder.has("a" * 32)
    assert not (sweep / "outcomes.parquet").is_symlink()
    assert [file.read_text() for file in kept] == ["years"] * 4


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("years")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.lock").symlink_to(target)
    with pytest.raises(UsageError, match="cannot write"), Folder(tmp_path / "sweep"):
        pass
    assert target.read_text() == "years"


def test_a_damaged_description_and_result_are_named(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        folder.begin(about(["a" * 32]))
        folder.keep(runs())
    (place,) = (tmp_path / "results").glob("??/*.json")
    place.write_text("{")
    with pytest.raises(UsageError, match="a result is damaged"):
        list(read(tmp_path)[1])
    (tmp_path / ABOUT).write_text("{")
    with pytest.raises(UsageError, match="description is damaged"):
        read(tmp_path)


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: object, _to: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Folder(tmp_path) as folder:
        folder.begin(about(["a" * 32]))
        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(UsageError, match="No space left on device"):
            folder.keep(runs())
        monkeypatch.undo()
        assert not folder.has("a" * 32)
        assert not [place for place in (tmp_path / "results").rglob("*") if place.is_file()]
        folder.keep(runs())
    assert list(read(tmp_path)[1]) == [runs()]


@pytest.mark.parametrize(
    "other",
    [
        key_of(Model(spec="timm:y"), "train", [MAC], {"torch": "2.13"}),
        key_of(Model(spec="timm:x", config={"a": 1}), "train", [MAC], {"torch": "2.13"}),
        key_of(Model(spec="timm:x"), "inference", [MAC], {"torch": "2.13"}),
        key_of(Model(spec="timm:x"), "train", [MAC, MAC], {"torch": "2.13"}),
        key_of(Model(spec="timm:x"), "train", [MAC], {"torch": "2.14"}),
    ],
)
def test_whatever_decides_a_result_is_in_its_name(other: str) -> None:
    assert other != key_of(Model(spec="timm:x"), "train", [MAC], {"torch": "2.13"})


def test_the_sources_are_all_that_a_measurement_imports() -> None:
    waiting, seen = [ROOT / "features" / "sweep" / "server.py"], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for name in names:
                parts = name.split(".")
                if parts[0] == "opcheck" and len(parts) > 1:
                    place = ROOT.joinpath(*parts[1:])
                    waiting += [p for p in (place.with_suffix(".py"), place / "__init__.py") if p.exists()]
    named = {str(path.relative_to(ROOT)) for path in seen} - {
        "__init__.py",
        "features/__init__.py",
        "features/sweep/__init__.py",
    }
    missing = {name for name in named if not any(name == s or name.startswith(f"{s}/") for s in SOURCES)}
    assert {name.partition("/")[0] for name in missing} <= WITHOUT_A_PART, missing
