"""``opcheck audit MODEL``: what each operator call of a model does on the target Mac."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from opcheck.capture.request import (
    AUTOCAST,
    DEFAULT_OPTIMIZER,
    DEFAULT_TRACER,
    MODES,
    PRECISIONS,
    TRACERS,
)
from opcheck.cli import VERBS, config, flags, output, output_formats, parse_options
from opcheck.common.errors import CaptureError
from opcheck.common.text import plural
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import load
from opcheck.judge.policy import FAIL_ON, FINDINGS, PASSED, Policy, judged, limit
from opcheck.model.records import Report
from opcheck.render import FORMATS


@click.command(
    "audit",
    cls=flags.Configured,
    help=VERBS["audit"],
    epilog="MODEL is package.module:attribute, file.py:attribute, file.pt2, transformers:BertModel, "
    "timm:resnet50, torchvision:... or diffusers:... "
    "Each flag has a variable (--fail-on: OPCHECK_FAIL_ON) and a key in [tool.opcheck] of "
    "pyproject.toml (fail-on). A flag wins over its variable, the variable over the key.",
)
@click.argument("model")
@flags.torch()
@flags.macos()
@flags.fallback
@flags.flag(
    "--input",
    "inputs",
    multiple=True,
    metavar="SPEC",
    help="An input: 1x3x224x224:float32, or name=1x128:int64. Repeat for each, in order.",
)
@flags.flag(
    "--input-file",
    "input_files",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Inputs from a .pt, .npy, .npz or .safetensors file. Repeatable.",
)
@flags.flag(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of a library's model; VALUE as in YAML. Repeatable.",
)
@flags.flag(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="FILE",
    help="A file of weights whose dtypes are looked at. Repeatable.",
)
@flags.flag("--dtype", default="", metavar="DTYPE", help="Cast the model to it.")
@flags.flag(
    "--precision",
    is_flag=False,
    flag_value=PRECISIONS[0],
    default="",
    metavar="[DTYPES]",
    help="Also run on this machine's CPU, each call beside float64, and say where digits are lost: "
    "float32, or a list such as float32,float16,bfloat16.",
)
@flags.flag("--grad/--no-grad", default=False, help="Run with grad mode on.")
@flags.flag(
    "--mode",
    type=click.Choice(MODES),
    default=MODES[0],
    help="One forward pass, or one training step: forward, loss, backward, optimizer step.",
)
@flags.flag(
    "--optimizer",
    default=DEFAULT_OPTIMIZER,
    metavar="NAME[:ARG=VALUE,...]",
    help="Of a training step: a class of torch.optim, as sgd:momentum=0.9 or adam:fused=true.",
)
@flags.flag(
    "--autocast",
    default="",
    metavar="DTYPE",
    help=f"Run under torch.autocast('mps', DTYPE): {' or '.join(AUTOCAST)}.",
)
@flags.flag(
    "--tracer",
    type=click.Choice(tuple(TRACERS)),
    default=DEFAULT_TRACER,
    help="How to capture the calls.",
)
@flags.flag("--save-graph", default="", metavar="FILE", help="Write the graph there.")
@flags.form(FORMATS)
@flags.output()
@flags.fail_on(FAIL_ON, "unsupported", "; unsupported: whatever raises on the target.")
@flags.flag(
    "--max",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Allow so many: fallback=3, transfers=10, bytes=10MB, or another status or kind. Repeatable.",
)
@flags.strict()
@flags.timeout(300.0, "Time that the capture may take.")
@flags.flag(
    "--memory",
    type=click.IntRange(min=1),
    default=None,
    metavar="GB",
    help="Memory of the Mac that the model should fit: 8, 16, 24, 32, 64, 128.",
)
@flags.flag(
    "--memory-limit",
    type=click.FLOAT,
    default=0.0,
    show_default="three quarters of this machine",
    metavar="GB",
    help="Memory of this machine that the model may take (Linux).",
)
@flags.quiet()
@flags.verbose("Progress and the model's own output on stderr; nothing cut in the text.")
@flags.color
def command(
    *,
    model: str,
    torch: str | None,
    macos: str | None,
    fallback: bool,
    inputs: Sequence[str],
    input_files: Sequence[str],
    settings: Sequence[str],
    checkpoints: Sequence[str],
    dtype: str,
    precision: str,
    grad: bool,
    mode: Mode,
    optimizer: str,
    autocast: str,
    tracer: str,
    save_graph: str,
    format_name: str | None,
    output_path: str,
    fail_on: str,
    limits: Sequence[str],
    strict: bool,
    timeout: float,
    memory: int | None,
    memory_limit: float,
    quiet: bool,
    verbose: bool,
    color: str,
) -> int:
    """Audit the model, write the report, return the exit code."""
    lists = load()
    line = parse_options.release_of(torch, lists)
    system = parse_options.system_of(macos, line, lists)
    request = parse_options.request_of(
        model,
        line,
        system,
        fallback=fallback,
        inputs=inputs,
        input_files=input_files,
        settings=settings,
        checkpoints=checkpoints,
        dtype=dtype,
        precision=precision,
        tracer=tracer,
        grad=grad,
        mode=mode,
        optimizer=optimizer,
        autocast=autocast,
        save_graph=save_graph,
        timeout=timeout,
        memory_limit=memory_limit,
    )
    policy = Policy(fail_on=fail_on, strict=strict, limits=dict(limit(text) for text in limits))
    ignores = config.ignores(Path.cwd())

    from opcheck.judge.pipeline import audit

    with output.progress(quiet=quiet, verbose=verbose) as progress:
        report = audit(request, lists, progress=progress, show_output=verbose, mac=memory or 0)
    report = msgspec.structs.replace(report, findings=ignores.marked(report.findings, model=model))
    output_formats.deliver_report(report, format_name, output_path, color=color, full=verbose)
    if not report.capture.complete:
        output.note(_broke_off(report))
    for over in ignores.expired():
        output.note(over)
    judgement = judged(report, policy)
    code = judgement.code
    if limits and code == FINDINGS:
        output.note(f"fails: {'; '.join(judgement.reasons)}")
    unknown = report.totals["unknown"]
    if code == PASSED and unknown:
        output.note(
            f"this result does not vouch for {plural(unknown, 'call')}: nothing is known about "
            f"{'it' if unknown == 1 else 'them'} (--strict makes that exit with 3)"
        )
    return code


def _broke_off(report: Report) -> str:
    """The three lines of an error, for a report that must not pass for a whole one."""
    problem = report.problems[-1]
    where = " ".join(part for part in (report.model, problem.line) if part)
    return str(
        CaptureError(
            problem.message,
            context=where,
            hint="the report holds only what ran before this; what follows was not judged",
        )
    )
