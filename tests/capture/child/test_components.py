"""A pipeline that breaks off: the stage is named, and the components that it did not come to are called by themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from opcheck.capture.child import calls, run
from opcheck.capture.child.loading.load import Loaded, as_loaded, load
from opcheck.capture.child.recipes import pipelines as diffusers_inputs
from opcheck.capture.child.recipes.pipelines import PipelineModel, latents
from opcheck.capture.repository import FolderWeights, Repository
from opcheck.capture.request import CaptureRequest
from opcheck.common.errors import ModelLoadError
from opcheck.judge.assembly import headline
from opcheck.model.records import Trace
from opcheck.worker.protocol import silent
from tests.made import make_target

diffusers = pytest.importorskip("diffusers")

REQUEST = CaptureRequest(model="org/model", target=make_target())
VAE: dict[str, Any] = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [32, 32],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "sample_size": 16,
}

UNET: dict[str, Any] = {
    "_class_name": "UNet2DModel",
    "block_out_channels": [32],
    "down_block_types": ["DownBlock2D"],
    "up_block_types": ["UpBlock2D"],
    "sample_size": 8,
}


def small_vae() -> nn.Module:
    """A VAE whose latents have half the height and width of its pictures."""
    made: nn.Module = diffusers.AutoencoderKL.from_config(VAE)
    return made


class Pipeline:
    """A pipeline whose call is a function of its components."""

    def __init__(self, call: Callable[..., Any], **components: nn.Module) -> None:
        self.call, self.components = call, components

    def set_progress_bar_config(self, **_settings: Any) -> None:
        """Show no progress."""

    def __call__(self) -> Any:
        """Call it."""
        return self.call(**self.components)


def traced(loaded: Loaded) -> Trace:
    """Follow it in this process."""
    return run.record(REQUEST, REQUEST.target, run.prepare(REQUEST, REQUEST.target, silent, loaded), silent).trace  # fmt: skip


def audited(call: Callable[..., Any], **components: nn.Module) -> Trace:
    """Follow a pipeline of these components."""
    model = PipelineModel(Pipeline(call, **components), components, {})
    return traced(as_loaded(model, ((), {}), as_used=True))


def breaks_between(text: nn.Module, vae: nn.Module) -> Any:
    """Use the first component, and raise before the second."""
    text(torch.zeros(1, 4, device="mps"))
    raise ValueError("no such thing")


def test_what_a_pipeline_does_not_come_to_is_called_by_itself() -> None:
    trace = audited(breaks_between, text=nn.Linear(4, 4), vae=small_vae())
    assert trace.called == ("forward", "vae.decode by itself")
    assert [call.module.partition(".")[0] for call in trace.calls].count("text") == 1
    assert any(call.module.startswith("vae.decoder.") for call in trace.calls)
    assert not any(call.module.startswith("vae.encoder.") for call in trace.calls)
    (problem,) = trace.problems
    assert problem.kind == "pipeline_raised"
    assert problem.message == (
        "the pipeline breaks off in its own code: the model raised ValueError: no such thing; "
        "judged by themselves, with guessed inputs: vae.decode"
    )
    assert trace.inputs == ("vae.decode(1x4x32x32:float32)",)
    assert trace.inputs_note == "inputs guessed for components by themselves"


def test_the_headline_of_what_is_not_whole_is_not_native() -> None:
    trace = audited(breaks_between, text=nn.Linear(4, 4), vae=small_vae())
    assert not trace.complete
    assert headline(trace, {("native", None)}, REQUEST.target, None) == "could not tell"


def test_the_component_that_breaks_is_named_and_tried_with_inputs_of_its_own() -> None:
    def gives_too_much(text: nn.Module) -> Any:
        return text(torch.zeros(1, 5, device="mps"))

    trace = audited(gives_too_much, text=nn.Linear(4, 4))
    assert trace.called == ("forward", "text by itself")
    assert "the pipeline breaks off in text: " in trace.problems[0].message
    assert trace.problems[0].message.endswith("judged by themselves, with guessed inputs: text")
    assert len(trace.problems) == 1


class WithLatents(Pipeline):
    """A pipeline that has made latents when its call breaks off."""

    def __call__(self) -> Any:
        """Make latents, and raise before they are decoded."""
        latents = torch.zeros(1, self.call(), 6, 10, device="mps")
        raise ValueError(f"no such thing: {latents.shape}")


@pytest.mark.parametrize(
    ("channels", "given", "shape"),
    [(4, "with the pipeline's latents", "1x4x6x10"), (3, "with guessed inputs", "1x4x32x32")],
)
def test_what_the_pipeline_had_come_to_is_decoded(channels: int, given: str, shape: str) -> None:
    vae = small_vae()
    model = PipelineModel(WithLatents(lambda: channels, vae=vae), {"vae": vae}, {})
    trace = traced(as_loaded(model, ((), {}), as_used=True))
    assert trace.problems[0].message.endswith(f"judged by themselves, {given}: vae.decode")
    assert trace.inputs == (f"vae.decode({shape}:float32)",)
    assert bool(trace.inputs_note) == (given == "with guessed inputs")


class Lost(nn.Module):
    """Nothing says what it is called with."""

    def forward(self, item: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Add them."""
        return item + other


def test_a_component_that_nobody_can_call_is_named_too() -> None:
    trace = audited(breaks_between, text=nn.Linear(4, 4), vae=Lost())
    messages = [problem.message for problem in trace.problems]
    assert messages[1] == "vae by itself: opcheck cannot derive the inputs of Lost"
    assert trace.problems[1].kind == "component_raised"
    assert "judged by themselves" not in messages[0]


def test_a_whole_call_is_followed_by_no_other() -> None:
    trace = audited(lambda text: text(torch.zeros(1, 4, device="mps")), text=nn.Linear(4, 4))
    assert trace.complete
    assert not trace.called


INDEX: dict[str, Any] = {"vae": ["diffusers", "AutoencoderKL"], "scheduler": ["diffusers", "DDIMScheduler"]}  # fmt: skip
LATER: dict[str, Any] = {"scheduler": ["diffusers", "OfALaterScheduler"]}


@pytest.mark.parametrize(
    ("index", "named"),
    [
        ({**INDEX, "_class_name": "OfALaterPipeline"}, "OfALaterPipeline"),
        ({**INDEX, **LATER, "_class_name": "DDIMPipeline"}, "scheduler"),
    ],
)
def test_a_pipeline_that_cannot_be_built_is_judged_by_its_components(index: dict[str, Any], named: str) -> None:
    contents = {
        "model_index.json": index,
        "vae/config.json": VAE,
        "scheduler/scheduler_config.json": {"_class_name": "DDIMScheduler"},
    }
    files = {path: json.dumps(content) for path, content in contents.items()}
    described = Repository(name="org/model", files=files, weights=(FolderWeights(elements={"F32": 1}),))
    trace = traced(load("org/model", repository=described))
    (problem,) = trace.problems
    assert problem.kind == "not_built"
    assert problem.message.startswith(f"{named} cannot be built, and the pipeline was not called")
    assert problem.message.endswith("judged by themselves, with guessed inputs: vae.decode")
    assert "install the diffusers" in problem.answered
    assert trace.calls
    assert not trace.complete


def test_the_scheduler_is_the_one_that_the_pipeline_names() -> None:
    contents = {
        "model_index.json": {
            "_class_name": "DDIMPipeline",
            "unet": ["diffusers", "UNet2DModel"],
            "scheduler": ["diffusers", "DDIMScheduler"],
        },
        "unet/config.json": UNET,
        "scheduler/scheduler_config.json": {"_class_name": "EulerDiscreteScheduler"},
    }
    files = {path: json.dumps(content) for path, content in contents.items()}
    made: Any = load("org/model", repository=Repository(name="org/model", files=files)).model
    assert isinstance(made.pipeline.scheduler, diffusers.DDIMScheduler)


def test_a_pipeline_without_any_model_is_an_error() -> None:
    files = {"model_index.json": json.dumps({"_class_name": "OfALaterPipeline"})}
    with pytest.raises(ModelLoadError, match="OfALaterPipeline"):
        load("org/model", repository=Repository(name="org/model", files=files))


def test_latents_have_the_size_that_pictures_are_encoded_to() -> None:
    vae: Any = small_vae()
    pictures = diffusers_inputs.derive(vae)["sample"]
    assert latents(vae).shape == vae.encode(pictures).latent_dist.mode().shape


class Detector(nn.Module):
    """Raises in its forward, or returns scores."""

    def __init__(self, *, raises: bool) -> None:
        super().__init__()
        self.raises = raises

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return it."""
        if self.raises:
            raise ValueError("no boxes")
        return x * 2


@pytest.mark.parametrize("raises", [True, False])
def test_what_takes_the_result_of_a_call_that_broke_off_is_left_out(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    def fails(_model: nn.Module, _arguments: Any, _before: Any) -> Any:
        raise RuntimeError("post-processing")

    usual = (calls.FORWARD_CALL, calls.ModelCall(name="boxes", run=fails, follows=True))
    monkeypatch.setattr(run, "calls_of", lambda *_arguments: usual)
    trace = traced(as_loaded(Detector(raises=raises), ((torch.zeros(2),), {}), as_used=True))
    messages = [problem.message for problem in trace.problems]
    assert len(messages) == 1
    assert not trace.complete
    if raises:
        assert "no boxes" in messages[0]
    else:
        assert messages[0].startswith("boxes: the model raised RuntimeError: post-processing")
        assert [call.op for call in trace.calls] == ["aten::mul.Tensor"]
