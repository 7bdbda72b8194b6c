"""Runs the same model and inputs without the simulation: on the CPU, or on meta where it is large."""

import traceback
from typing import Any

import torch

from opcheck.capture.child.inputs.specs import Inputs
from opcheck.capture.child.loading.fixed_programs import set_training
from opcheck.capture.child.loading.load import Loaded, load
from opcheck.capture.child.run import called_with
from opcheck.capture.child.training import loss_of
from opcheck.capture.request import CaptureRequest
from opcheck.common.text import one_line
from opcheck.simulator.real_device import hide_device
from opcheck.tracing.source_locations import display_path
from opcheck.tracing.torch_private.trees import tree_map_only

#: Most parameters of a model that gets real weights.
REAL = 150_000_000
RUNS = "runs"


@hide_device()
def plain(request: CaptureRequest, *, build_only: bool = False) -> str:
    """Return ``runs``, or the error that building or running the model raises, and its line.

    Args:
        request: the model, its configuration, inputs and mode; the target plays no part.
        build_only: do not run it.
    """
    try:
        if build_only:
            load(request.model, request.config, real=True, repository=request.repository)
        else:
            _run(request)
    except Exception as error:  # noqa: BLE001 - whatever a model raises
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        frame = traceback.extract_tb(cause.__traceback__)[-1]
        place = f"{display_path(frame.filename)}:{frame.lineno}"
        return f"{type(cause).__name__}: {one_line(cause, 200)} [{place}]"
    return RUNS


def _run(request: CaptureRequest) -> None:
    loaded = load(request.model, request.config, repository=request.repository)
    trains = request.mode == "train"
    model, args, kwargs = _ready(request, loaded, called_with(loaded, request))
    if isinstance(model, torch.nn.Module):
        set_training(model, request.model, training=trains)
    with torch.set_grad_enabled(trains):
        output = model(*args, **kwargs)
        if trains:
            loss_of(output).value.backward()


def _ready(request: CaptureRequest, loaded: Loaded, inputs: Inputs) -> tuple[Any, Any, Any]:
    model = loaded.model
    if not isinstance(model, torch.nn.Module):
        return model, inputs.args, inputs.kwargs
    if sum(weight.numel() for weight in model.parameters()) <= REAL:
        built = load(request.model, request.config, real=True, repository=request.repository)
        return built.model, inputs.args, inputs.kwargs
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (inputs.args, inputs.kwargs))
    return model.to("meta"), args, kwargs
