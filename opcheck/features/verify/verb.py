"""``opcheck verify``: compares a prediction with a Mac's observation; with ``--here``, this Mac, in one command."""

from pathlib import Path
from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions, CaptureRequest, find_source, request_of
from opcheck.cli.options import VERBOSE, OutputOptions, ProgressOptions, flag, only, verb
from opcheck.cli.verification import FOLDER, KEPT, exit_code, keep, target_here, write_proposal
from opcheck.common.errors import UsageError
from opcheck.common.files import is_file
from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import TargetOptions
from opcheck.device import here as this
from opcheck.device.verify import verify
from opcheck.model import saved
from opcheck.model.options import RUNNER, Option
from opcheck.model.records import Report, ReportTarget
from opcheck.render import ANSWERS, write
from opcheck.render.verification_page import document

_REPORTS = (".json", ".yaml", ".yml")


@verb("verify", table="", takes=RUNNER)
@click.argument("prediction")
@click.argument("observation", required=False)
def command(
    *,
    prediction: str,
    observation: str | None,
    here: Annotated[bool, Option("Audit the model, run it on this Mac's GPU, and compare.", action="runs")] = False,
    program: Annotated[
        bool, flag("With --here: the name is a program's file, which runs emulated and observed.")
    ] = False,
    folder: Annotated[str, FOLDER] = KEPT,
    target: Annotated[TargetOptions, only(fallback="With --here: run with PYTORCH_ENABLE_MPS_FALLBACK=1.")],
    capture: Annotated[
        CaptureOptions, only("config", "dtype", "mode", inputs="Input of a model, as for opcheck audit.")
    ],
    propose: Annotated[
        str,
        Option(
            "File for proposed statements on the contradictions; review it with opcheck lists merge.",
            metavar="FILE",
            action="writes",
        ),
    ] = "",
    output: OutputOptions,
    verbose: Annotated[bool, VERBOSE] = False,
) -> int:
    """Compare them, write the result, return the exit code."""
    from opcheck.orchestrator import audit
    from opcheck.worker.protocol import ProcessDisplay

    lists = load()
    if here:
        if observation:
            hint = "opcheck verify MODEL --here, or opcheck verify PREDICTION OBSERVATION"
            raise UsageError("with --here the run is observed now", context=observation, hint=hint)
        mac = this.this_mac()
        if program:
            verified = this.verify_program(prediction, mac, lists, cpu_fallback=target_here(target).fallback)
        else:
            request = request_of(find_source(prediction, capture), target_here(target).target(lists), capture)
            with ProgressOptions(verbose=verbose).shown() as say:
                predicted = audit(request, lists, display=ProcessDisplay(say))
                verified = this.verify_model(request, predicted, mac, lists, say)
        verification = verified.verification
        keep(verified, Path(folder), lists)
    elif observation:
        observed = saved.read(observation)
        predicted = _predict(prediction, observed.target, capture.inputs, lists)
        verification = verify(predicted, observed, lists)
    else:
        hint = "name the report of opcheck run on a Mac, or add --here on the Mac itself"
        raise UsageError("no observation", context=f"opcheck verify {prediction}", hint=hint)
    name = output.chosen(ANSWERS)
    if propose:  # first: where nothing contradicts, it is refused, and stdout stays empty
        write_proposal(Path(propose), verification, lists)
    output.put(write(verification, document(verification), name, full=verbose))
    return exit_code(verification)


def _predict(name: str, target: ReportTarget, inputs: tuple[str, ...], lists: OpLists) -> Report:
    if name.endswith(_REPORTS):
        if inputs:
            hint = "name a model, or leave them out"
            raise UsageError("a report needs no inputs", context="--input", hint=hint)
        return saved.read(name)
    if is_file(name) and not name.endswith(".pt2"):
        hint = "a .json or .yaml report of opcheck audit, or a model such as file.py:attribute"
        raise UsageError("neither a report nor a model", context=name, hint=hint)
    from opcheck.orchestrator import audit

    torch, macos = Version.parse(target.torch), Version.parse(target.macos)
    mac = Target(torch=torch, macos=macos, cpu_fallback=target.cpu_fallback)
    return audit(CaptureRequest(model=name, target=mac, inputs=inputs), lists)
