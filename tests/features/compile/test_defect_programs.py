"""Each known defect of Inductor's Metal backend, in a program that meets it and in a near one that does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opcheck.common.versions import Version
from opcheck.data.compile_defects import DEFECTS
from opcheck.worker.environments import distribution_version
from tests.features.compile.defect_programs import PAIRS

INSTALLED = ".".join(distribution_version("torch").split(".")[:2])
RELEASES = sorted({release for pair in PAIRS for release in (pair.torch, pair.other_torch)} - {""})


def test_every_defect_has_a_pair_of_programs_of_a_release_that_it_is_in() -> None:
    spans = {defect.id: defect.torch for defect in DEFECTS.load().defects}
    assert {pair.defect for pair in PAIRS} == spans.keys()
    assert all(Version.parse(pair.torch) in spans[pair.defect] for pair in PAIRS)


@pytest.mark.parametrize(
    "release", [pytest.param(release, marks=() if release == INSTALLED else pytest.mark.wheel) for release in RELEASES]
)
def test_a_defect_is_named_for_the_program_that_meets_it_alone(release: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.features.compile.defect_programs", release],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    named = json.loads(done.stdout.splitlines()[-1])
    assert named
    wrong = [
        (defect, program, defects)
        for defect, programs in named.items()
        for program, defects in programs.items()
        if (defect in defects) != (program == "meets")
    ]
    assert wrong == []
