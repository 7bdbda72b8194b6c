"""``opcheck verify``: compares a prediction with what a Mac did; with ``--here``, this Mac, in one command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions, CaptureRequest, request_of
from opcheck.cli import streams
from opcheck.cli.options import VERBOSE, OutputOptions, ProgressOptions, only, verb
from opcheck.common.errors import UsageError
from opcheck.common.files import is_file, write_text
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import TargetOptions
from opcheck.device import here as this
from opcheck.device.observe.draft_statements import draft_statements
from opcheck.device.verify import Verification, verify
from opcheck.judge.policy import COULD_NOT_TELL, FINDINGS, PASSED
from opcheck.model import saved
from opcheck.model.options import RUNNER, Option
from opcheck.model.records import Report, ReportTarget
from opcheck.render import ANSWERS, render, write
from opcheck.render.answers.verified import document, shared

_REPORTS = (".json", ".yaml", ".yml")
KEPT = "opcheck-verify"
FOLDER = Option(
    "With --here: where the reports, the proposal and the text to share are written.",
    metavar="DIR",
    action="writes",
)


@verb(
    "verify",
    table="",
    takes=RUNNER,
    epilog="PREDICTION is the JSON or YAML report of an audit, or a model as opcheck audit names it, which is then "
    "audited for the observation's torch and macOS. OBSERVATION is the report of opcheck run on a Mac, or of opcheck "
    "observe; with --here, MODEL takes the place of both: it is audited for this Mac's torch and macOS, run on its GPU "
    "with its weights as they are initialized, and compared; --folder gets both reports, the text to share and, where "
    "something contradicts, the proposal. Exits with 1 where something contradicts the prediction, with 3 where they "
    "have nothing in common.",
)
@click.argument("prediction")
@click.argument("observation", required=False)
def command(
    *,
    prediction: str,
    observation: str | None,
    here: Annotated[
        bool, Option("Audit the model, run it on this Mac's GPU, compare.", action="runs")
    ] = False,
    folder: Annotated[str, FOLDER] = KEPT,
    target: Annotated[
        TargetOptions, only(fallback="With --here: PYTORCH_ENABLE_MPS_FALLBACK=1 is set.")
    ],
    capture: Annotated[
        CaptureOptions,
        only("config", "dtype", "mode", inputs="Of a model: an input, as opcheck audit takes it."),
    ],
    propose: Annotated[
        str,
        Option(
            "Write what contradicts it as proposed statements: opcheck lists merge reviews them.",
            metavar="FILE",
            action="writes",
        ),
    ] = "",
    output: OutputOptions,
    verbose: Annotated[bool, VERBOSE] = False,
) -> int:
    """Compare them, write the result, return the exit code."""
    lists = load()
    if here:
        if observation:
            raise UsageError(
                "with --here the run is observed now",
                context=observation,
                hint="opcheck verify MODEL --here, or opcheck verify PREDICTION OBSERVATION",
            )
        mac = this.this_mac()
        request = request_of(prediction, target_here(target).target(lists), capture)
        with ProgressOptions(verbose=verbose).shown() as say:
            predicted = _audited(request, lists, say)
            verified = this.verified(request, predicted, mac, lists, say)
        verification = verified.verification
        keep(verified, Path(folder), lists)
    elif observation:
        observed = saved.read(observation)
        predicted = _predicted(prediction, observed.target, capture.inputs, lists)
        verification = verify(predicted, observed, lists)
    else:
        raise UsageError(
            "no observation",
            context=f"opcheck verify {prediction}",
            hint="name the report of opcheck run on a Mac, or add --here on the Mac itself",
        )
    name = output.chosen(ANSWERS)
    output.put(write(verification, document(verification), name, full=verbose))
    if propose:
        _propose(Path(propose), verification, lists)
    return exit_code(verification)


def target_here(target: TargetOptions) -> TargetOptions:
    """Return the target that this Mac is.

    Raises:
        UsageError: this is no Mac, or another release or macOS is named.
    """
    mac = this.this_mac()
    if target.torch or target.macos:
        raise UsageError(
            "a run is observed with the torch and the macOS that are here",
            context="--verify with --torch or --macos",
            hint="leave them out, or leave --verify out",
        )
    return TargetOptions(torch=mac.torch, macos=mac.macos, fallback=target.fallback)


def compared_here(
    prediction: Report,
    model: str,
    target: TargetOptions,
    capture: CaptureOptions,
    progress: ProgressOptions,
) -> int:
    """Observe an audited model here, print on stderr how both compare, and return the exit code."""
    lists = load()
    request = request_of(model, target.target(lists), capture)
    with progress.shown() as say:
        verified = this.verified(request, prediction, this.this_mac(), lists, say)
    verification = verified.verification
    page = write(verification, document(verification), "text", full=progress.verbose)
    streams.note(page.rstrip())
    keep(verified, Path(KEPT), lists)
    return exit_code(verification)


def keep(verified: this.Verified, folder: Path, lists: OpLists) -> None:
    """Write both reports, the text to share and, where something contradicts, the proposal.

    Raises:
        UsageError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder: {error.strerror}",
            context=str(folder),
            hint="name another with --folder",
        ) from error
    verification = verified.verification
    write_text(folder / "predicted.json", render(verified.prediction, "json"))
    write_text(folder / "observed.json", render(verified.observation, "json"))
    text = write(verification, shared(verification), "markdown")
    write_text(folder / "share.md", text)
    streams.note(f"{folder}: predicted.json, observed.json, and share.md to share")
    if verification.contradictions:
        _propose(folder / "proposal.yaml", verification, lists)


def exit_code(verification: Verification) -> int:
    """Return 1 for contradictions, 3 where nothing was compared, else 0."""
    if not verification.pairs:
        streams.note("nothing was both predicted and observed: the two are of different programs")
        return COULD_NOT_TELL
    return FINDINGS if verification.contradictions else PASSED


def _propose(file: Path, verification: Verification, lists: OpLists) -> None:
    write_text(file, draft_statements(verification, lists))
    streams.note(f"the proposal is in {file}: opcheck lists merge {file}")


def _audited(
    request: CaptureRequest, lists: OpLists, progress: Callable[[str], None] | None = None
) -> Report:
    from opcheck.judge.pipeline import audit

    return audit(request, lists, progress=progress)


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
    request = CaptureRequest(
        model=name,
        torch=target.torch,
        macos=target.macos,
        cpu_fallback=target.cpu_fallback,
        inputs=inputs,
    )
    return _audited(request, lists)
