"""The page of the public models: rows that can be read, and what is not native by target."""

from __future__ import annotations

from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import Headline
from opcheck.judge.target_summary import TargetSummary
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
