"""Real models with complex numbers, transforms and float64, on targets where they fail and where they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.models import spectral
from opcheck.capture.child.run import run
from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists
from opcheck.judge.assembly import report
from opcheck.model.records import Report
from tests.made import make_target

TARGETS = (("2.1", "13"), ("2.4", "13"), ("2.4", "14"), ("2.13", "15"), ("2.15", "15"))

RUNS = "runs natively"
ENV = "runs only with PYTORCH_ENABLE_MPS_FALLBACK=1"
FAILS = "fails"
#: transformers 5 requires torch 2.6, so that below it a call of its code that fails may never be made.
UNKNOWN = "could not tell"

#: The headline on each of TARGETS.  Transforms have no kernel before 2.3 and need macOS 14 before 2.9; complex
#: arithmetic needs 2.3 and macOS 14; istft's unfold_backward has a kernel from 2.6 on; float64 never runs.
HEADLINES = {
    "complex_transformer": (FAILS, FAILS, RUNS, RUNS, RUNS),
    "cosine_schedule": (FAILS,) * 5,
    "filter_bank": (FAILS,) * 5,
    "fnet": (ENV, UNKNOWN, RUNS, RUNS, RUNS),
    "fourier_operator": (FAILS, FAILS, RUNS, RUNS, RUNS),
    "rotary_attention": (FAILS, FAILS, RUNS, RUNS, RUNS),
    "separator": (FAILS, FAILS, ENV, RUNS, RUNS),
    "state_space": (FAILS, FAILS, RUNS, RUNS, RUNS),
    "vocoder": (FAILS, FAILS, ENV, RUNS, RUNS),
    "diffusers_schedule": (RUNS,) * 5,
}

#: Of each model, a part of the line where the first dtype begins that is refused, on the oldest target.
ORIGINS = {
    "complex_transformer": "nn.Linear(size, size, dtype=torch.complex64)",
    "cosine_schedule": "dtype=torch.float64",
    "filter_bank": "torch.from_numpy(band)",
    "rotary_attention": "torch.polar(",
    "separator": "torch.stft(",
    "state_space": "1j * self.imag",
}


def _report(name: str, torch: str, macos: str, lists: OpLists) -> Report:
    model = f"{Path(spectral.__file__)}:{name}"
    trace = run(CaptureRequest(model=model, target=make_target(torch, macos)), lambda *_, **__: None).trace
    assert trace.complete, trace.problems
    target = Target(torch=Version.parse(torch), macos=Version.parse(macos))
    return report(trace, target, lists)


def test_every_model_of_the_zoo_is_here() -> None:
    assert set(HEADLINES) == set(spectral.MODELS)


# torch's own __array__, which diffusers calls, has no copy keyword.
@pytest.mark.filterwarnings("default::DeprecationWarning")
@pytest.mark.parametrize("name", HEADLINES)
def test_the_verdict_on_each_target_and_the_evidence_for_it(name: str, lists: OpLists) -> None:
    results = [_report(name, torch, macos, lists) for torch, macos in TARGETS]
    assert tuple(report.headline for report in results) == HEADLINES[name]
    for each in results:
        for group in each.groups:
            assert group.verdict.status != "unknown" or each.headline == UNKNOWN
            assert group.verdict.evidence
    if name in ORIGINS:
        lines = [
            place.location.text
            for finding in results[0].findings
            if finding.rule in {"OC140", "OC141"} and finding.severity == "error"
            for place in finding.locations[:1]
            if place.location is not None
        ]
        assert any(ORIGINS[name] in line for line in lines), lines
