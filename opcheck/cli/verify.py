"""``opcheck verify PREDICTION OBSERVATION``: compares a prediction with what a Mac did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions, CaptureRequest
from opcheck.cli import streams
from opcheck.cli.options import VERBOSE, OutputOptions, only, verb
from opcheck.common.errors import UsageError
from opcheck.common.files import is_file, write_text
from opcheck.data.registrations import OpLists, load
from opcheck.device.observe.draft_statements import draft_statements
from opcheck.device.verify import verify
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED
from opcheck.model import saved
from opcheck.model.options import Option
from opcheck.model.records import Report, ReportTarget
from opcheck.render import ANSWERS, write
from opcheck.render.answers.verified import content, document

_REPORTS = (".json", ".yaml", ".yml")


@verb(
    "verify",
    table="",
    epilog="PREDICTION is the JSON or YAML report of an audit, or a model as opcheck audit names it, which is then "
    "audited for the observation's torch and macOS. OBSERVATION is the report of opcheck run on a Mac, or of opcheck "
    "observe. Exits with 1 where something contradicts the prediction, with 3 where they have nothing in common.",
)
@click.argument("prediction")
@click.argument("observation")
def command(
    *,
    prediction: str,
    observation: str,
    capture: Annotated[
        CaptureOptions, only(inputs="Of a model: an input, as opcheck audit takes it.")
    ],
    propose: Annotated[
        str,
        Option(
            "Write what contradicts it as proposed statements: opcheck lists merge reviews them.",
            metavar="FILE",
        ),
    ] = "",
    output: OutputOptions,
    verbose: Annotated[bool, VERBOSE] = False,
) -> int:
    """Compare them, write the result, return the exit code."""
    lists = load()
    observed = saved.read(observation)
    predicted = _predicted(prediction, observed.target, capture.inputs, lists)
    verification = verify(predicted, observed, lists)
    name = output.chosen(ANSWERS)
    output.put(write(content(verification), document(verification), name, full=verbose))
    if propose:
        write_text(Path(propose), draft_statements(verification, lists))
        streams.note(f"the proposal is in {propose}: opcheck lists merge {propose}")
    if not verification.pairs:
        streams.note("nothing was both predicted and observed: the two are of different programs")
        return COULD_NOT_TELL
    return FINDINGS if verification.contradictions else PASSED


def _predicted(name: str, target: ReportTarget, inputs: tuple[str, ...], lists: OpLists) -> Report:
    if name.endswith(_REPORTS):
        if inputs:
            raise UsageError(
                "a report needs no inputs",
                context="--input",
                hint="name a model, or leave them out",
            )
        return saved.read(name)
    if is_file(name) and not name.endswith(".pt2"):
        raise UsageError(
            "neither a report nor a model",
            context=name,
            hint="a .json or .yaml report of opcheck audit, or a model such as file.py:attribute",
        )
    from opcheck.judge.pipeline import audit

    request = CaptureRequest(
        model=name,
        torch=target.torch,
        macos=target.macos,
        cpu_fallback=target.cpu_fallback,
        inputs=inputs,
    )
    return audit(request, lists)
