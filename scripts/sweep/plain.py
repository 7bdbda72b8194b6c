"""The same model and inputs without opcheck: on the CPU, or on meta where it is large."""

from __future__ import annotations

import traceback

import torch
from torch.utils._pytree import tree_map_only

from opcheck.capture.blame import one_line
from opcheck.capture.inputs import inputs_for
from opcheck.capture.libraries import build, find
from opcheck.capture.lines import display_path
from opcheck.capture.load import load
from scripts.sweep.records import Config

#: Parameters up to which the model gets real weights.
REAL = 150_000_000
RUNS = "runs"


def plain(spec: str, config: Config, stage: str) -> str:
    """``runs``, or what building or running it raises, and on which line."""
    library, _, name = spec.partition(":")
    try:
        if stage == "load":
            build(library, find(library, spec), name, config, None)
            return RUNS
        loaded = load(spec, config)
        inputs = inputs_for(loaded, ())
        model = loaded.model
        assert isinstance(model, torch.nn.Module)  # noqa: S101 - of a library
        meta = sum(weight.numel() for weight in model.parameters()) > REAL
        args, kwargs = inputs.args, inputs.kwargs
        if meta:
            model = model.to("meta")
            args, kwargs = tree_map_only(torch.Tensor, lambda one: one.to("meta"), (args, kwargs))
        else:
            model = build(library, find(library, spec), name, config, None)
        with torch.no_grad():
            model.eval()(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - whatever a model raises
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = display_path(frame.filename)
        return f"{type(error).__name__}: {one_line(error, 200)} [{place}:{frame.lineno}]"
    return RUNS
