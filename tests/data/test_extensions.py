"""The lists of torchvision and torchaudio: read, paired with a torch release, judged, damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from opcheck.common.errors import OpListError
from opcheck.common.versions import Target, Version
from opcheck.data.extensions import (
    FILE,
    LIBRARIES,
    VALUES,
    Extensions,
    dump_extensions,
    paired_line,
    read_extensions,
    registrations_file,
    torch_line_of,
)
from opcheck.data.files import read_history
from opcheck.data.history import contract, dump, expand
from opcheck.data.registrations import data_directory, load
from opcheck.judge.judge import judge
from opcheck.model.records import OpCall

LISTS = load()
RELEASES = read_extensions(data_directory() / FILE)

#: Kernels for MPS, operators with nothing but a CPU kernel; counted by another program.
COUNTS = {
    "torchvision 0.17.2": (9, 2),
    "torchvision 0.24.1": (10, 1),
    "torchvision 0.28.0": (10, 4),
    "torchvision 0.29.2": (10, 4),
    "torchaudio 2.8.0": (0, 7),
    "torchaudio 2.9.1": (0, 7),
    "torchaudio 2.11.0": (0, 3),
}

BACKWARDS = {f"torchvision::_{name}_backward" for name in ("roi_align", "ps_roi_pool")}


def test_the_counts_are_those_of_the_wheels() -> None:
    results = {
        f"{library} {release.version}": (release.counts.mps, release.counts.cpu_only)
        for library, releases in RELEASES.items()
        for release in releases
    }
    assert COUNTS.items() <= results.items()


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_lists_hold_as_many_as_they_say(library: str) -> None:
    for release in RELEASES[library]:
        column = LISTS.extensions.operators(library, release.line)
        kinds = list(column.values())
        counts = release.counts
        assert (counts.mps, counts.cpu_only, counts.operators) == (
            kinds.count("kernel"),
            kinds.count("cpu_only"),
            len(kinds),
        )
        assert all(name.startswith(f"{library}::") for name in column)


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_torch_release_from_2_0_has_its_pair(library: str) -> None:
    last = {"torchvision": "0.29.2", "torchaudio": "2.11.0"}[library]
    for release in LISTS.releases:
        result = LISTS.extension(library, release.line)
        line = Version.parse(release.line)
        assert (result is not None) == (Version(2, 0) <= line), release.line
        if result is not None and result[0] != last:
            of_the_pair = LISTS.extensions.releases[library]
            assert [item.torch_line for item in of_the_pair if item.version == result[0]] == [release.line]


@pytest.mark.parametrize(
    ("library", "torch_line", "version"),
    [
        # Requires-Dist: torch>=2.14.0, a wheel of the stable ABI
        ("torchvision", "2.15", "0.29.2"),
        ("torchvision", "2.14", "0.29.2"),
        # Requires-Dist: torch (==2.13.0), so no other
        ("torchvision", "2.13", "0.28.0"),
        # no Requires-Dist, libtorchaudio.abi3.so
        ("torchaudio", "2.15", "2.11.0"),
        ("torchaudio", "2.12", "2.11.0"),
        ("torchaudio", "2.10", "2.10.0"),
    ],
)
def test_the_wheels_own_metadata_says_which_newer_torch_it_goes_with(
    library: str, torch_line: str, version: str
) -> None:
    release = LISTS.extensions.release(library, torch_line)
    assert release is not None
    assert release.version == version


def test_a_wheel_that_pins_its_torch_goes_with_no_other() -> None:
    for release in RELEASES["torchvision"]:
        assert release.admits("2.15") == (release.line == "0.29"), release.version
        assert not release.admits(release.torch_line)


@pytest.mark.parametrize(
    ("library", "torch_line", "line"),
    [
        ("torchvision", "2.2", "0.17"),
        ("torchvision", "2.13", "0.28"),
        ("torchvision", "2.15", "0.30"),
        ("torchvision", "1.13", None),
        ("torchaudio", "2.9", "2.9"),
        ("torchaudio", "2.11", "2.11"),
        ("torchaudio", "2.12", None),
        ("torchtext", "2.2", None),
    ],
)
def test_which_release_goes_with_a_torch_line(library: str, torch_line: str, line: str | None) -> None:
    assert paired_line(library, torch_line) == line
    if line is not None:
        assert torch_line_of(library, line) == torch_line


def test_what_the_wheels_ask_for_agrees_with_the_pairs() -> None:
    for releases in RELEASES.values():
        for release in releases:
            if "==" in release.requires:
                assert release.torch_line in release.requires


def test_the_release_and_its_operators() -> None:
    result = LISTS.extension("torchvision", "2.13")
    assert result is not None
    version, operators = result
    assert version == "0.28.0"
    assert operators["torchvision::nms"] == "kernel"
    assert operators["torchvision::_deform_conv2d_backward"] == "cpu_only"
    assert {name for name, value in operators.items() if value == "kernel"} >= BACKWARDS


@pytest.mark.parametrize(
    ("op", "line", "status", "kind", "says"),
    [
        ("torchvision::nms", "2.13", "native", None, "registered in torchvision 0.28.0"),
        ("torchvision::nms", "2.0", "fallback", "env", "torchvision 0.15.2 registers"),
        ("torchvision::deform_conv2d", "2.2", "fallback", "env", "torchvision 0.17.2 registers a CPU"),
        ("torchvision::deform_conv2d", "2.9", "native", None, "torchvision 0.24.1"),
        ("torchvision::qnms", "2.14", "fallback", "env", "torchvision 0.29.2 registers a CPU kernel"),
        ("torchvision::nms", "2.15", "native", None, "registered in torchvision 0.29.2"),
        ("torchvision::qnms", "2.15", "fallback", "env", "torchvision 0.29.2 registers a CPU kernel"),
        ("torchvision::nms", "1.13", "unknown", None, "no torchvision for torch 1.13"),
        ("torchvision::zzz", "2.13", "unknown", None, "torchvision 0.28.0 registers no operator"),
        ("torchaudio::forced_align", "2.11", "fallback", "env", "torchaudio 2.11.0 registers a CPU"),
        ("torchaudio::forced_align", "2.15", "fallback", "env", "torchaudio 2.11.0 registers a CPU"),
        ("torchaudio::forced_align", "1.13", "unknown", None, "no torchaudio for torch"),
        ("torchaudio::_lfilter_core_loop", "2.9", "unknown", None, "whose body was not followed"),
        ("torchtext::zzz", "2.9", "unknown", None, "do not describe the namespace torchtext"),
    ],
)
def test_a_call_is_judged_by_the_release_that_goes_with_the_target(
    op: str, line: str, status: str, kind: str | None, says: str
) -> None:
    target = Target(torch=Version.parse(line), macos=Version(15, 0))
    verdict = judge(OpCall(op=op), target, LISTS)
    assert (verdict.status, verdict.kind) == (status, kind)
    assert says in verdict.because
    assert verdict.evidence
    if status == "native":
        assert verdict.evidence[0].where.startswith("torchvision/_C")
        assert "torchvision 0." in verdict.evidence[0].detail
    if status == "fallback":
        assert f"The operator '{op}' is not currently implemented" in verdict.prints


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_files_are_as_the_builder_writes_them(library: str) -> None:
    assert dump_extensions(RELEASES) == (data_directory() / FILE).read_text()
    path = data_directory() / registrations_file(library)
    lines = [release.line for release in RELEASES[library]]
    history, raw = read_history(path, lines, VALUES)
    again = {name: contract(expand(h, lines), lines) for name, h in history.operators.items()}
    assert dump(msgspec.structs.replace(history, operators=again)).encode() == raw


def test_without_lists_nothing_is_known(tmp_path: Path) -> None:
    for extensions in (Extensions(), Extensions(tmp_path)):
        assert extensions.release("torchvision", "2.13") is None
        assert extensions.operators("torchvision", "0.28") == {}


def test_the_digest_speaks_of_the_extensions(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(data_directory(), tmp_path / "op_lists"))
    assert load(copy).digest == LISTS.digest
    path = copy / registrations_file("torchvision")
    path.write_text(path.read_text().replace('"kernel"', '"cpu_only"', 1))
    other = Path(shutil.copytree(copy, tmp_path / "other"))
    assert load(other).digest != LISTS.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('version: "0.28.0"', 'version: "0.27.9"', "another's key"),
        ('version: "0.28.0"', "version: 0.28", "Expected `str`"),
        ('torch_line: "2.13"', 'torch_line: "2.12"', "another one"),
        ("  torchvision:", "  torchtext:", "Invalid enum value 'torchtext'"),
        ("schema: 1", "schema: 2", "the schema must be 1"),
        ('"0.28":', '"0.27":', "occurs twice"),
        ("operators: 15", "operators: many", "Expected `int`"),
    ],
)
def test_damage_is_reported_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (data_directory() / FILE).read_text()
    assert old in text
    (tmp_path / FILE).write_text(text.replace(old, new, 1))
    with pytest.raises(OpListError) as caught:
        _ = Extensions(tmp_path).releases
    assert message in caught.value.message
    assert f"{FILE}:" in caught.value.message
