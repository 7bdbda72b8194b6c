"""The program of ``opcheck verify MODEL --here``: one forward pass, or one training step, of a model on mps.

``opcheck run`` observes it like any other program; its only argument is a file with the request as JSON.
"""

import sys
from pathlib import Path

import msgspec
import torch

from opcheck.capture.child.training import TrainStep, autocast, parse_optimizer
from opcheck.capture.request import CaptureRequest
from opcheck.common import documents
from opcheck.numerics.child.model_run import build_model
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.torch_private.trees import tree_map_only
from opcheck.worker.protocol import silent


def main(file: Path) -> None:
    """Load the model of the request with its weights, move it and its inputs to mps, and run it once.

    Raises:
        OpcheckError: the model or its inputs cannot be made.
        Exception: whatever the model raises.
    """
    request = msgspec.json.decode(documents.read(file), type=CaptureRequest)
    model, inputs = build_model(request, silent)
    model.to("mps")
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to("mps"), (inputs.args, inputs.kwargs))
    torch.manual_seed(0)
    if request.mode == "train":
        step = TrainStep(parse_optimizer(request.optimizer), request.autocast)
        step(model, args, kwargs, CallSites())
        return
    with torch.set_grad_enabled(request.grad), autocast(request.autocast):
        model(*args, **kwargs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
