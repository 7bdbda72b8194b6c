"""What the verbs share that compare a prediction with a run on this Mac."""

from pathlib import Path

from opcheck.capture.request import CaptureOptions, find_source, request_of
from opcheck.cli import streams
from opcheck.cli.options import COULD_NOT_TELL, ProgressOptions
from opcheck.common.errors import UsageError, explain_errors
from opcheck.common.files import write_text
from opcheck.data.registrations import OpLists, load
from opcheck.data.targets import TargetOptions
from opcheck.device import here as this
from opcheck.device.verify import Verification, draft_statements
from opcheck.judge.policy import FINDINGS, PASSED
from opcheck.model.options import Option
from opcheck.model.records import Report
from opcheck.render import render, write
from opcheck.render.verification_page import document, write_shared

KEPT = "opcheck-verify"
FOLDER = Option(
    "With --here: folder for the reports, the proposal and the text to share.", metavar="DIR", action="writes"
)


def target_here(target: TargetOptions) -> TargetOptions:
    """Return the target that this Mac is.

    Raises:
        UsageError: this is no Mac, or another release or macOS is named.
    """
    mac = this.this_mac()
    if target.torch or target.macos:
        problem = "a run is observed with the torch and the macOS that are here"
        hint = "leave them out, or leave --verify out"
        raise UsageError(problem, context="--verify with --torch or --macos", hint=hint)
    return TargetOptions(torch=mac.torch, macos=mac.macos, fallback=target.fallback)


def compared_here(
    prediction: Report, model: str, target: TargetOptions, capture: CaptureOptions, progress: ProgressOptions
) -> int:
    """Observe an audited model here, print on stderr how both compare, and return the exit code."""
    lists = load()
    request = request_of(find_source(model, capture), target.target(lists), capture)
    with progress.shown() as say:
        verified = this.verify_model(request, prediction, this.this_mac(), lists, say)
    verification = verified.verification
    streams.note(write(verification, document(verification), "text", full=progress.verbose).rstrip())
    keep(verified, Path(KEPT), lists)
    return exit_code(verification)


def keep(verified: this.Verified, folder: Path, lists: OpLists) -> None:
    """Write both reports, the text to share and, where something contradicts, the proposal.

    Raises:
        UsageError: the folder cannot be made or written.
    """
    hint = "name another with --folder"
    with explain_errors(OSError, "cannot make the folder", context=folder, hint=hint):
        folder.mkdir(parents=True, exist_ok=True)
    verification = verified.verification
    write_text(folder / "predicted.json", render(verified.prediction, "json"))
    write_text(folder / "observed.json", render(verified.observation, "json"))
    write_text(folder / "share.md", write(verification, write_shared(verification), "markdown"))
    streams.note(f"{folder}: predicted.json, observed.json, and share.md to share")
    if verification.contradictions:
        write_proposal(folder / "proposal.yaml", verification, lists)


def exit_code(verification: Verification) -> int:
    """Return 1 for contradictions, 3 where nothing was compared, else 0."""
    if not verification.pairs:
        streams.note("nothing was both predicted and observed: the two are of different programs")
        return COULD_NOT_TELL
    return FINDINGS if verification.contradictions else PASSED


def write_proposal(file: Path, verification: Verification, lists: OpLists) -> None:
    """Write what contradicts the prediction as proposed statements."""
    write_text(file, draft_statements(verification, lists))
    streams.note(f"the proposal is in {file}: opcheck lists merge {file}")
