"""Models of libraries that choose by the release of torch: each target gets the calls of its release.

The expectation is read from the libraries' source.  transformers 5.23, integrations/sdpa_attention.py: on MPS grouped
heads reach attention as they are (``enable_gqa``) from torch 2.13, and are repeated before (``use_gqa_in_sdpa``).
diffusers and timm pass the same calls on all of these releases.  So no attention with fewer heads of key than of query
runs on torch 2.5 to 2.8, where it ends the process or is not supported.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from opcheck.capture.parent import capture, capture_many
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import OpcheckError
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import load
from opcheck.judge.assembly import report
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, Policy, judge_report
from opcheck.judge.target_summary import summaries
from opcheck.model.records import Trace
from tests.made import make_target

MACOS = Version(15, 2)

TINY = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
HEADS = {"head_dim": 16}
MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("transformers:LlamaModel", TINY),
    ("transformers:MistralModel", TINY | HEADS),
    ("transformers:Qwen2Model", TINY),
    ("transformers:Qwen3Model", TINY | HEADS),
    ("transformers:GemmaModel", TINY | HEADS),
    ("transformers:PhiModel", TINY),
    ("transformers:Phi3Model", TINY | {"pad_token_id": 0}),
    ("transformers:FalconModel", {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}),
    ("transformers:Starcoder2Model", TINY),
    ("transformers:MixtralModel", TINY | EXPERTS),
    ("transformers:CohereModel", TINY | {"pad_token_id": 0}),
    ("transformers:OlmoModel", TINY | {"pad_token_id": 0}),
    ("transformers:GraniteModel", TINY),
    (
        "diffusers:Transformer2DModel",
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 8, "norm_num_groups": 4},
    ),
    ("timm:vit_tiny_patch16_224", {"depth": 2}),
)
RELEASES = ("2.5", "2.6", "2.7", "2.8")
#: integrations/moe.py, _can_use_grouped_mm: off the CPU and CUDA it asks only whether torch has the function, and torch
#: 2.8 has it without a kernel for MPS; 2.7 has it not.
FAILS = {("transformers:MixtralModel", "2.8"): "aten::_grouped_mm"}
GROUPED_SINCE = Version(2, 13)


def _captured(model: str, config: dict[str, Any], *releases: str) -> tuple[Trace, ...]:
    targets = [Target(torch=Version.parse(line), macos=MACOS) for line in releases]
    request = CaptureRequest(model=model, target=make_target(), config=config, call=("forward",), time_limit=600.0)
    traces = capture_many(request, targets)
    for trace in traces:
        if isinstance(trace, OpcheckError):
            raise trace
    return tuple(trace for trace in traces if isinstance(trace, Trace))


def _headline(trace: Trace) -> str:
    target = Target(torch=Version.parse(trace.target_torch), macos=MACOS)
    return report(trace, target, load()).headline


def _is_grouped(trace: Trace) -> bool:
    """Return whether a call of attention has several heads of key, and fewer than of query.

    Falcon passes a single head (modeling_falcon.py, FalconAttention), which a Mac broadcasts.
    Below torch 2.12 the call that MPS gets has its heads repeated by torch, from 2.7 on; on 2.5 and 2.6 not.
    """
    attention = [call for call in trace.calls if "scaled_dot_product" in call.op]
    return any(1 < call.inputs[1].shape[1] < call.inputs[0].shape[1] for call in attention)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "config"), MODELS, ids=[name for name, _ in MODELS])
def test_no_release_gets_the_calls_of_a_newer_one(model: str, config: dict[str, Any]) -> None:
    for trace in _captured(model, config, *RELEASES):
        assert trace.complete, trace.problems
        fails = FAILS.get((model, trace.target_torch))
        assert _headline(trace) == ("fails" if fails else "runs natively"), trace.target_torch
        assert not fails or fails in {call.op for call in trace.calls}
        assert not _is_grouped(trace)


@pytest.mark.slow
def test_grouped_heads_reach_attention_on_the_releases_for_which_transformers_passes_them() -> None:
    for trace in _captured(*MODELS[0], "2.5", "2.6", "2.12", "2.13"):
        assert _is_grouped(trace) is (Version.parse(trace.target_torch) >= GROUPED_SINCE)
        assert _headline(trace) == "runs natively"
        # transformers 5 requires torch 2.6.
        differs = ("transformers",) if trace.target_torch == "2.5" else ()
        assert trace.differing_libraries == differs


def _library(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Install a library with a class ``Layer``, and return a model that is one."""
    packages = folder / "site-packages"
    (packages / "lazy_library").mkdir(parents=True)
    (packages / "lazy_library" / "__init__.py").write_text(text)
    model = folder / "model.py"
    model.write_text(
        "import torch\nimport lazy_library\ndef model():\n    return lazy_library.Layer(), (torch.randn(4),)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(packages), os.environ.get("PYTHONPATH", ""))))
    return f"{model}:model"


LIBRARY = """
import torch
from torch import nn
OLD = torch.__version__ < "2.8"
def __getattr__(name):
    if OLD:
        torch.gone_for_years()
    return nn.ReLU
"""


def test_a_library_that_fails_with_the_targets_version_sees_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _library(tmp_path, monkeypatch, LIBRARY)
    alone = capture(CaptureRequest(model=model, target=make_target("2.6", "15.2")))
    new, old = _captured(model, {}, "2.13", "2.6")
    for trace in (alone, old):
        assert [call.op for call in trace.calls][-1] == "aten::relu"
        assert trace.differing_libraries == ("lazy_library",)
        assert any("lazy_library fails here with the target's version" in text for text in trace.differences)
    assert not new.differing_libraries


def test_several_macos_versions_of_one_release_are_captured_again_as_installed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _library(tmp_path, monkeypatch, LIBRARY)
    targets = [Target(torch=Version(2, 6), macos=Version(major)) for major in (14, 15)]
    for trace in capture_many(CaptureRequest(model=model, target=make_target("2.6", "15.2")), targets):
        assert isinstance(trace, Trace)
        assert trace.differing_libraries == ("lazy_library",)


CALLS = """
import torch
from torch import nn
OLD = torch.__version__ < "2.8"
class Layer(nn.Module):
    def forward(self, x):
        if OLD:
            torch.gone_for_years(x)
        return x.relu()
"""


@pytest.mark.slow
def test_a_library_that_fails_in_a_call_with_the_targets_version_is_run_again_as_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _library(tmp_path, monkeypatch, CALLS)
    alone = capture(CaptureRequest(model=model, target=make_target("2.6", "15.2")))
    new, old = _captured(model, {}, "2.13", "2.6")
    for trace in (alone, old):
        assert trace.complete
        assert [call.op for call in trace.calls][-1] == "aten::relu"
        assert trace.differing_libraries == ("lazy_library",)
    assert new.complete
    assert not new.differing_libraries


@pytest.mark.slow
def test_a_program_that_raises_on_every_release_keeps_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _library(tmp_path, monkeypatch, CALLS.replace("return x.relu()", "raise ValueError(1)"))
    (trace,) = _captured(model, {}, "2.6")
    assert not trace.complete
    assert "gone_for_years" in trace.problems[-1].message
    assert not trace.differing_libraries


DOUBLES = """
import torch
from torch import nn
if torch.__version__ < "2.8":
    torch.gone_for_years()
class Layer(nn.Module):
    def forward(self, x):
        return x.double()
"""


def test_a_refused_call_of_a_library_that_saw_another_release_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _library(tmp_path, monkeypatch, DOUBLES)
    for trace, expected in zip(_captured(model, {}, "2.13", "2.6"), ("fails", "could not tell"), strict=True):
        target = Target(torch=Version.parse(trace.target_torch), macos=MACOS)
        made = report(trace, target, load())
        (summary,) = summaries(trace, [target], load())
        assert made.headline == summary.headline == expected
        assert made.totals == summary.totals
        has_error = "error" in {finding.severity for finding in made.findings}
        assert has_error is (expected == "fails")
        code = judge_report(made, Policy()).code
        assert code == (FINDINGS if expected == "fails" else COULD_NOT_TELL)
