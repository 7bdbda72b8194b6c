"""The page of the public models: rows that can be read, and what is not native by target."""

from __future__ import annotations

import subprocess
import sys

import pytest

from opcheck.capture.request import CaptureOptions, Captures, find_source, request_of
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import Headline
from opcheck.judge.target_summary import TargetSummary
from scripts import refresh_models
from scripts.pages import ROOT
from scripts.refresh_models import TORCH, WIDTH, Result, page


def cells(**headlines: Headline) -> tuple[TargetSummary, ...]:
    return tuple(
        TargetSummary(
            target=Target(torch=Version.parse(release), macos=Version(15, 0)),
            headline=headlines.get(f"on_{release.replace('.', '_')}", "runs natively"),
            totals={},
            operators=(("aten::bmm", "unsupported", None, 3),)
            if f"on_{release.replace('.', '_')}" in headlines
            else (),
        )
        for release in TORCH
    )


def test_a_row_is_narrow_and_says_where_a_model_fails() -> None:
    long = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"
    detects = ("forward", "post_process_object_detection of the processor")
    text = page(
        [
            Result(
                model=long, task="text-classification", called=("forward", "the class of the logits"), cells=cells()
            ),
            Result(model="a/detector", task="object-detection", called=detects, cells=cells(on_2_9="fails")),
            Result(model="a/lost", task="object-detection", problems=("x" * 20 + " y" * 90,)),
        ]
    )
    assert f"| {long} | class | all | native |" in text
    assert "| a/detector | post-processing | all | fails on 1 of 3 |" in text
    assert "- a/detector: torch 2.9 on macOS 15\n    - `aten::bmm` unsupported, 3 calls" in text
    assert "| a/lost | - | all | ? |" in text
    assert max(map(len, text.splitlines())) <= WIDTH + 4


def test_a_target_that_no_run_served_is_named_below_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = (Target(torch=Version(2, minor), macos=Version(15)) for minor in (9, 13))
    request = request_of(find_source("torch.nn:Identity", CaptureOptions()), newer, CaptureOptions())
    for left, problems in (
        ((0,), ("this process has loaded code as on another Mac than torch 2.9, macOS 15.0",)),
        ((), ()),
    ):
        monkeypatch.setattr(refresh_models, "captures", lambda *_, left=left: Captures(shared=(), left=left))
        result = refresh_models._audited(Result(model="m", task="t"), request, (older, newer))
        assert result.problems == problems


_PREPARE = """
from opcheck.data import targets
from opcheck.data.registrations import load
from opcheck.simulator.target_reads import READS
from scripts import refresh_models

refresh_models.prepare()
on = targets.pairs(refresh_models.TORCH, refresh_models.MACOS, lists=load()).targets
print([str(target) for target in on if not READS.fits(target)])
"""


@pytest.mark.slow
def test_the_libraries_that_the_runs_share_fit_all_targets() -> None:
    done = subprocess.run([sys.executable, "-c", _PREPARE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
