"""Attributes each missing verdict to opcheck, PyTorch or the model, by explicit rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from opcheck.common.yaml_text import load_shipped
from opcheck.features.sweep.records import Failed, Result

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
KNOWN = tuple(
    Known(**row) for row in load_shipped(Path(__file__).with_name("known_failures.yaml"))["known"]
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
