"""Attributes each missing verdict to opcheck, PyTorch or the model, by explicit rules."""

from __future__ import annotations

import re
from typing import NamedTuple

from opcheck.project.sweep.records import Failed, Result

OWNERS = ("model", "pytorch", "opcheck")
MODELS, PYTORCH, OURS = OWNERS


class Attribution(NamedTuple):
    """The owner of a failure, and the reason."""

    owner: str
    why: str


class Known(NamedTuple):
    """A failure that was investigated."""

    #: searched for in ``library:Class: message``
    pattern: str
    owner: str
    why: str
    #: applies only if the model also fails without opcheck
    reproduced: bool = False


#: The first match decides.  Without an entry a failure that is not reproduced without opcheck is opcheck's,
#: and so is a failure with inputs that opcheck made.
KNOWN: tuple[Known, ...] = (
    Known(
        # 70 is what opcheck's own code exits with where it fails (worker/platform.py, Fork).
        r"the process that ran the model (?:was )?exited with code (?!70\b)\d+",
        MODELS,
        "it ends its own process, as by os._exit",
    ),
    Known(
        r"unsupported autocast device_type 'mps'",
        PYTORCH,
        "the release has no autocast for MPS, and raises this on a Mac, too",
    ),
    Known(
        r"Training is not implemented|does not support training",
        MODELS,
        "it refuses to be trained",
    ),
    Known(
        r"values were guessed before",
        OURS,
        "a guess about values that nobody knows does not fit the program",
    ),
    Known(
        r"has been modified by an inplace operation",
        MODELS,
        "it writes over what its own backward reads, on a CPU, too",
        reproduced=True,
    ),
    Known(
        r"requires the \w+ library",
        MODELS,
        "it needs a compiled package of a third party that is not installed",
    ),
    Known(
        r"'\w+Config' object has no attribute",
        MODELS,
        "its code reads a setting that its configuration does not have",
    ),
    Known(
        r"has not been implemented|cannot be run by itself",
        MODELS,
        "its forward refuses to run, whatever it is given",
    ),
    Known(
        r"inference_session",
        MODELS,
        "it is called frame by frame with a session object of its processor",
    ),
)


def attribute(spec: str, result: Failed) -> Attribution:
    """Return the owner of the failure of a model that has no verdict."""
    text = f"{spec}: {result.message}"
    for known in KNOWN:
        if re.search(known.pattern, text) and (_same(result) or not known.reproduced):
            return Attribution(known.owner, known.why)
    if result.problem == "nothing_to_train":
        return Attribution(
            MODELS, "it has no parameter, or no result, that a training step could change"
        )
    if result.stage == "load" and _same(result):
        return Attribution(
            MODELS, "the library does not build it from its own default configuration"
        )
    if result.stage == "inputs":
        return Attribution(OURS, "nothing here says what it is called with")
    if _same(result):
        return Attribution(OURS, "refuses the inputs that were made for it, on a CPU, too")
    if "NotImplementedError" in result.message and "meta" in result.message.lower():
        return Attribution(PYTORCH, "the operator has no rule for shapes without values")
    return Attribution(
        OURS, "runs without opcheck" if result.plain == "runs" else "another failure"
    )


def audited(result: Result) -> bool:
    """Return whether every target has a verdict: the run ended, or stopped at an operator that fails."""
    return not result.failures


def _same(result: Failed) -> bool:
    """Return whether the model raises the same type of error without opcheck."""
    kind = result.plain.partition(":")[0]
    text = f" {result.problem}: {result.message}"
    return kind not in ("", "runs") and f" {kind}: " in text
