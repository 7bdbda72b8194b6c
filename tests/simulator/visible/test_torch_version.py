"""The version of torch as a program and its libraries see it, and what of it is a question of the target."""

from __future__ import annotations

import importlib.metadata
import logging
import pickle
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.specifiers import SpecifierSet
from packaging.version import Version as PackagingVersion
from packaging.version import parse

import opcheck
from opcheck.common.versions import Target, Version
from opcheck.simulator import target_reads
from opcheck.simulator.visible import requirements
from opcheck.simulator.visible.public_names import names_of_the_target
from opcheck.simulator.visible.requirements import INSTALLED
from opcheck.simulator.visible.surface import mps_backend

MACOS = Version(15)


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_reads.READS, "answers", {})
    monkeypatch.setattr(target_reads.READS, "fallback", set())
    monkeypatch.setattr(target_reads.READS, "versions", {})
    monkeypatch.setattr(target_reads.READS, "of_libraries", {})


@pytest.fixture
def old() -> Iterator[None]:
    with mps_backend(target(2, 3)), names_of_the_target():
        yield


def target(major: int, minor: int) -> Target:
    return Target(torch=Version(major, minor), macos=MACOS)


def value(file: str, expression: str) -> Any:
    text = f"import importlib.metadata, torch\nx = {expression}\n"
    module = types.ModuleType("asks")
    exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - a line of this test's
    return module.__dict__["x"]


@pytest.mark.parametrize(
    "expression",
    [
        "torch.__version__",
        "torch.version.__version__",
        "torch.torch_version.__version__",
        "importlib.metadata.version('torch')",
        "importlib.metadata.distribution('torch').version",
    ],
)
@pytest.mark.usefixtures("old")
def test_the_program_and_its_libraries_see_the_version_of_the_target(expression: str) -> None:
    for file in (__file__, "/usr/lib/python3/site-packages/some_library/version.py"):
        assert str(value(file, expression)) == "2.3.1"
    assert str(value(torch.__file__, expression)) != "2.3.1"


@pytest.mark.usefixtures("old")
def test_the_backport_of_importlib_metadata_tells_of_the_target() -> None:
    pytest.importorskip("importlib_metadata")
    # Once it is imported, importlib.metadata gives distributions of its class.
    for module in ("importlib.metadata", "importlib_metadata"):
        assert value(__file__, f"__import__({module!r}, fromlist=['version']).version('torch')") == "2.3.1"


@pytest.mark.usefixtures("old")
def test_every_use_of_the_text_gives_the_version_of_the_target() -> None:
    seen: Any = torch.__version__
    assert seen < "2.10"
    assert seen >= (2, 3)
    assert not seen > "2.3.1"
    assert seen != "2.3"
    assert [int(part) for part in seen.split(".")] == [2, 3, 1]
    assert seen[:3] == "2.3"
    assert seen.startswith("2.3")
    assert f"{seen}" == str(seen) == "" + seen == "2.3.1"
    assert {seen: 1}["2.3.1"] == 1
    assert re.match(r"\d+\.\d+", seen).group() == "2.3"  # type: ignore[union-attr]
    assert pickle.loads(pickle.dumps(seen)) == "2.3.1"  # noqa: S301 - made in this line
    assert parse(seen) < parse("2.4") < PackagingVersion("2.10")
    assert PackagingVersion("2.4") > parse(importlib.metadata.version("torch"))
    assert parse(parse(seen).base_version).release == (2, 3, 1)
    assert SpecifierSet(">=2.3,<2.4").contains(seen)
    assert parse(seen).minor == 3
    assert isinstance(seen, torch.torch_version.TorchVersion)


def test_a_comparison_is_a_question_and_other_uses_ask_for_the_whole() -> None:
    with mps_backend(target(2, 6)), names_of_the_target():
        assert torch.__version__ >= "2.5"
        assert parse(torch.__version__) < parse("2.9")
    assert target_reads.READS.fits(target(2, 8))
    assert not target_reads.READS.fits(target(2, 4))
    assert not target_reads.READS.fits(target(2, 9))
    with mps_backend(target(2, 6)), names_of_the_target():
        assert torch.__version__.split(".")[1] == "6"
    assert target_reads.READS.fits(target(2, 6))
    assert not target_reads.READS.fits(target(2, 8))


def test_a_text_that_nothing_was_asked_of_may_have_been_matched() -> None:
    with mps_backend(target(2, 6)), names_of_the_target():
        re.match("2.6", torch.__version__)
    assert target_reads.READS.fits(target(2, 6))
    assert not target_reads.READS.fits(target(2, 7))


def test_a_comparison_in_a_fork_for_another_target_is_that_targets() -> None:
    with mps_backend(target(2, 8)), names_of_the_target():
        seen = torch.__version__
        assert seen >= "2.5"
    with mps_backend(target(2, 6)), names_of_the_target():
        assert not seen >= "2.7"
        assert str(seen) == "2.6.0"


def test_afterwards_all_is_as_before() -> None:
    before = type(torch), PackagingVersion.__init__, importlib.metadata.Distribution.version
    with mps_backend(target(2, 3)), names_of_the_target():
        assert torch.__version__ == "2.3.1"
    after = type(torch), PackagingVersion.__init__, importlib.metadata.Distribution.version
    assert after == before
    assert torch.__version__.partition("+")[0] == INSTALLED
    assert importlib.metadata.version("torch").partition("+")[0] == INSTALLED


def library(folder: Path, name: str, text: str) -> None:
    package = folder / "site-packages" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(text)


def test_a_library_takes_the_branch_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, "branches", "import torch\nold = torch.__version__ < '2.4'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    with opcheck.emulate(torch="2.3", macos="15") as run:
        assert value(__file__, "__import__('branches').old") is True
    assert "OC123" not in {finding.rule for finding in run.report.findings}
    del sys.modules["branches"]


def test_a_library_that_breaks_on_the_way_of_the_target_is_imported_as_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import torch\nif torch.__version__ < '2.4':\n    from torch import gone_for_years\nnew = 1\n"
    library(tmp_path, "breaks", text)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    with opcheck.emulate(torch="2.3", macos="15") as run:
        assert value(__file__, "__import__('breaks').new") == 1
    (message,) = [finding.message for finding in run.report.findings if finding.rule == "OC123"]
    assert "breaks fails here with the target's version" in message
    assert "breaks/__init__.py:2 (torch.__version__)" in message
    del sys.modules["breaks"]


@pytest.mark.usefixtures("old")
def test_a_number_of_the_version_is_compared_or_used_as_a_whole() -> None:
    version = parse(torch.__version__)
    assert version.major == 2
    assert version.minor < 6
    for settle in target_reads.READS.settle:
        settle()
    assert target_reads.READS.fits(target(2, 5))
    assert not target_reads.READS.fits(target(2, 6))
    assert (version.minor + 1, [version.minor][0], f"{version.minor}") == (4, 3, "3")
    assert range(version.minor) == range(3)
    assert not target_reads.READS.fits(target(2, 5))


@pytest.mark.usefixtures("old")
def test_a_version_in_a_log_is_no_question(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("some_library")
    caplog.set_level(logging.DEBUG)
    logger.debug(f"Detected torch {torch.__version__}")  # noqa: G004 - as transformers has it
    logger.info("torch %s", torch.__version__)
    assert caplog.messages == ["Detected torch 2.3.1", "torch 2.3.1"]
    assert target_reads.READS.fits(target(2, 6))


@pytest.mark.parametrize(
    ("requirement", "release", "seen"),
    [
        ("torch>=2.6", "2.6", "2.6.0"),
        ("torch>=2.6", "2.4", "2.6.0"),
        ("torch>=2.2,<2.5", "2.9", "2.4.1"),
        ("torch==2.13.0", "2.6", INSTALLED),
        ("torch>99", "2.6", INSTALLED),
        ("numpy", "2.6", "2.6.0"),
    ],
)
def test_a_library_sees_the_nearest_release_that_it_admits(
    requirement: str, release: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(tmp_path, "requires", "import torch\nversion = torch.__version__ + ''\n")
    metadata = tmp_path / "site-packages" / "requires-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: requires\nVersion: 1.0\nRequires-Dist: {requirement}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    for cache in (requirements._requirement, requirements._distribution, requirements._nearest_line):
        cache.cache_clear()
    old = Target(torch=Version.parse(release), macos=MACOS)
    with mps_backend(old), names_of_the_target():
        assert value(__file__, "__import__('requires').version") == seen
    del sys.modules["requires"]
    differing = requirements.differing_libraries(old)
    assert bool(differing) is (seen != requirements.version_of(old))
    if differing:
        assert differing["requires"].startswith("requires 1.0 requires torch")
        assert f"it ran as with torch {seen}" in differing["requires"]
        assert "requires/__init__.py:2 (torch.__version__)" in differing["requires"]


@pytest.mark.parametrize(("release", "there"), [((2, 7), False), ((2, 8), True)])
def test_a_private_function_is_there_where_its_operator_is(release: tuple[int, int], there: bool) -> None:
    with mps_backend(target(*release)), names_of_the_target():
        # transformers chooses the way of its experts by it (integrations/moe.py, _can_use_grouped_mm).
        assert hasattr(torch, "_grouped_mm") is there
        assert hasattr(torch, "_convolution")
