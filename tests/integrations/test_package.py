"""The package: what it holds, and what an index shows of it. `make package` runs the checkers of packages."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from opcheck.data.lint import lint
from tests.integrations.runner import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_carries_its_data_and_nothing_of_the_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "opcheck/op_lists/releases.yaml" in names
    assert "opcheck/rule_pages/OC102.md" in names
    assert "opcheck/py.typed" in names
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {"opcheck"}


def test_the_wheel_carries_no_review_material_and_lints_without_it(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    lists = tmp_path / "opcheck" / "op_lists"
    review = {"extracted", "texts.yaml", "reports.yaml"}
    assert {path.name for path in lists.iterdir()} == {path.name for path in (ROOT / "op_lists").iterdir()} - review
    assert not [path for path in lists.rglob("*") if "coverage" in path.name]
    assert lint(lists) == lint(ROOT / "op_lists")
    for page in lists.rglob("*.md"):
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_the_index_shows_who_made_it_and_where_it_lives(metadata: Message) -> None:
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= set(urls)
    assert all(url.startswith("https://") for url in urls.values())
    assert "opcheck" in str(metadata["Author-email"])


def test_links_and_images_of_the_readme_work_away_from_the_repository(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    relative = [link for link in links if not link.startswith(("https://", "#"))]
    assert relative == []
    for path in re.findall(r"https://github.com/OWNER/opcheck/(?:blob|raw)/main/([^)#\s]+)", text):
        assert (ROOT / path).exists(), path
    assert len(links) > 10
