"""``opcheck audit MODEL``: what each operator call of a model does on the target Mac."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from opcheck.capture.request import (
    AUTOCAST,
    DEFAULT_OPTIMIZER,
    DEFAULT_TRACER,
    MODES,
    PRECISIONS,
    TRACERS,
    CaptureRequest,
)
from opcheck.cli import VERBS, config, output
from opcheck.errors import CaptureError, OpcheckError, UsageError
from opcheck.files import write_text
from opcheck.gate import FAIL_ON, FINDINGS, PASSED, Policy, judged
from opcheck.gate.policy import limit
from opcheck.model import Report, Scalar
from opcheck.names import parse_dtype
from opcheck.oplists.registrations import OpLists, load
from opcheck.report import FORMATS, format_of, render
from opcheck.versions import MACOS_MAJORS, Version, parse_macos, parse_torch
from opcheck.wording import plural

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Audit(click.Command):
    """A command whose flags get their defaults from pyproject.toml too."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Click's, with the configuration file as its default map."""
        flags = [flag for flag in self.params if isinstance(flag, click.Option) and flag.envvar]
        extra["default_map"] = config.read(flags, Path.cwd())
        return super().make_context(info_name, args, parent, **extra)


def _flag(*names: str, **attributes: Any) -> Callable[[_Function], _Function]:
    """A flag with its OPCHECK_* variable, named after the long spelling."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "OPCHECK_" + long.removeprefix("--").replace("-", "_").upper()
    attributes.setdefault("show_default", True)
    return click.option(*names, envvar=variable, **attributes)


@click.command(
    "audit",
    cls=_Audit,
    help=VERBS["audit"],
    epilog="MODEL is package.module:attribute, file.py:attribute, file.pt2, transformers:BertModel, "
    "timm:resnet50, torchvision:... or diffusers:... "
    "Each flag has a variable (--fail-on: OPCHECK_FAIL_ON) and a key in [tool.opcheck] of "
    "pyproject.toml (fail-on). A flag wins over its variable, the variable over the key.",
)
@click.argument("model")
@_flag("--torch", metavar="RELEASE", help="Judge by this release.  [default: the newest list]")
@_flag("--macos", metavar="VERSION", help="The Mac's macOS.  [default: the newest known]")
@_flag("--fallback/--no-fallback", default=False, help="PYTORCH_ENABLE_MPS_FALLBACK=1 is set.")
@_flag(
    "--input",
    "inputs",
    multiple=True,
    metavar="SPEC",
    help="An input: 1x3x224x224:float32, or name=1x128:int64. Repeat for each, in order.",
)
@_flag(
    "--input-file",
    "input_files",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Inputs from a .pt, .npy, .npz or .safetensors file. Repeatable.",
)
@_flag(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of a library's model; VALUE as in YAML. Repeatable.",
)
@_flag(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="FILE",
    help="A file of weights whose dtypes are looked at. Repeatable.",
)
@_flag("--dtype", default="", show_default=False, metavar="DTYPE", help="Cast the model to it.")
@_flag(
    "--precision",
    is_flag=False,
    flag_value=PRECISIONS[0],
    default="",
    show_default=False,
    metavar="[DTYPES]",
    help="Also run on this machine's CPU, each call beside float64, and say where digits are lost: "
    "float32, or a list such as float32,float16,bfloat16.",
)
@_flag("--grad/--no-grad", default=False, help="Run with grad mode on.")
@_flag(
    "--mode",
    type=click.Choice(MODES),
    default=MODES[0],
    help="One forward pass, or one training step: forward, loss, backward, optimizer step.",
)
@_flag(
    "--optimizer",
    default=DEFAULT_OPTIMIZER,
    metavar="NAME[:ARG=VALUE,...]",
    help="Of a training step: a class of torch.optim, as sgd:momentum=0.9 or adam:fused=true.",
)
@_flag(
    "--autocast",
    default="",
    show_default=False,
    metavar="DTYPE",
    help=f"Run under torch.autocast('mps', DTYPE): {' or '.join(AUTOCAST)}.",
)
@_flag(
    "--tracer",
    type=click.Choice(tuple(TRACERS)),
    default=DEFAULT_TRACER,
    help="How to capture the calls.",
)
@_flag(
    "--save-graph", default="", show_default=False, metavar="FILE", help="Write the graph there."
)
@_flag(
    "--format",
    "-f",
    "format_name",
    type=click.Choice(tuple(FORMATS)),
    help="Format of the report.  [default: by the suffix of --output, else text]",
)
@_flag(
    "--output",
    "-o",
    "output_path",
    default="",
    show_default=False,
    metavar="FILE",
    help="Write the report there, not to stdout.",
)
@_flag(
    "--fail-on",
    type=click.Choice(tuple(FAIL_ON)),
    default="unsupported",
    help="Exit with 1 for this and worse; unsupported: whatever raises on the target.",
)
@_flag(
    "--max",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Allow so many: fallback=3, transfers=10, bytes=10MB, or another status or kind. Repeatable.",
)
@_flag("--strict", is_flag=True, help="Exit with 3 if any call is unknown.")
@_flag(
    "--timeout",
    type=click.FLOAT,
    default=300.0,
    metavar="SECONDS",
    help="Time that the capture may take.",
)
@_flag(
    "--memory",
    type=click.IntRange(min=1),
    default=None,
    show_default=False,
    metavar="GB",
    help="Memory of the Mac that the model should fit: 8, 16, 24, 32, 64, 128.",
)
@_flag(
    "--memory-limit",
    type=click.FLOAT,
    default=0.0,
    show_default="three quarters of this machine",
    metavar="GB",
    help="Memory of this machine that the model may take (Linux).",
)
@_flag("--quiet", "-q", is_flag=True, help="Show no progress.")
@_flag(
    "--verbose",
    "-v",
    is_flag=True,
    help="Progress and the model's own output on stderr; nothing cut in the text.",
)
@_flag(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    help="Colour the text; auto: on a terminal, unless NO_COLOR is set.",
)
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
    mode: str,
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
    line = release_of(torch, lists)
    system = system_of(macos, line, lists)
    request = request_of(
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
    path = _writable(output_path) if output_path not in {"", "-"} else None
    policy = Policy(fail_on=fail_on, strict=strict, limits=dict(limit(text) for text in limits))
    ignores = config.ignores(Path.cwd())

    from opcheck.pipeline import audit  # noqa: PLC0415  (a wrong flag need not wait for it)

    with output.progress(quiet=quiet, verbose=verbose) as progress:
        report = audit(request, lists, progress=progress, show_output=verbose, mac=memory or 0)
    report = msgspec.structs.replace(report, findings=ignores.marked(report.findings, model=model))
    name = format_name or (format_of(output_path) if path else None) or "text"
    if path:
        write_text(path, render(report, name))
        output.note(f"{report.headline}; the report is in {output_path}")
    elif name == "text":
        output.emit(_for_terminal(report, color=output.color_wanted(color), full=verbose))
    else:
        output.emit(render(report, name))
    output.step_summary(report, name)
    if not report.capture["complete"]:
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
    where = " ".join(str(part) for part in (report.model, problem.location) if part)
    return str(
        CaptureError(
            problem.message,
            context=where,
            hint="the report holds only what ran before this; what follows was not judged",
        )
    )


def request_of(
    model: str,
    line: Version,
    system: Version,
    *,
    fallback: bool,
    inputs: Sequence[str],
    input_files: Sequence[str],
    settings: Sequence[str],
    dtype: str,
    tracer: str,
    grad: bool,
    mode: str,
    optimizer: str,
    autocast: str,
    timeout: float,
    memory_limit: float,
    checkpoints: Sequence[str] = (),
    precision: str = "",
    save_graph: str = "",
) -> CaptureRequest:
    """What the flags ask the capture for.

    Raises:
        UsageError: a value that its flag does not take, or flags that do not go together.
    """
    if mode == "train" and tracer != DEFAULT_TRACER:
        raise UsageError(
            f"the tracer {tracer} follows no training step",
            context=f"--mode train --tracer {tracer}",
            hint=f"leave --tracer at {DEFAULT_TRACER}",
        )
    return CaptureRequest(
        model=model,
        torch=str(line),
        macos=str(system),
        cpu_fallback=fallback,
        inputs=tuple(inputs),
        input_files=tuple(input_files),
        config=dict(setting(text) for text in settings),
        checkpoints=tuple(checkpoints),
        dtype=_dtype(dtype),
        precision=_precision(precision),
        tracer=tracer,
        grad=grad,
        mode=mode,
        optimizer=optimizer,
        autocast=_autocast(autocast),
        save_graph=save_graph,
        time_limit=_positive(timeout),
        memory_limit=_not_negative(memory_limit),
    )


def release_of(text: str | None, lists: OpLists) -> Version:
    """The release line that was asked for, or the newest."""
    known = tuple(Version.parse(release.line) for release in lists.releases)
    with _flag_named("--torch"):
        return parse_torch(text, known) if text else max(known)


def system_of(text: str | None, line: Version, lists: OpLists) -> Version:
    """The macOS version that was asked for, or the newest."""
    minimum = Version.parse(lists.release(str(line)).minimum_macos)
    with _flag_named("--macos"):
        return parse_macos(text or str(MACOS_MAJORS[-1]), minimum, line)


def _dtype(text: str) -> str:
    with _flag_named("--dtype"):
        return parse_dtype(text) if text else ""


def _precision(text: str) -> tuple[str, ...]:
    """The dtypes of ``--precision``, each once, in their order."""
    with _flag_named("--precision"):
        names = [parse_dtype(name.strip()) for name in text.split(",")] if text else []
    for name in names:
        if name not in PRECISIONS:
            raise UsageError(
                f"no run in {name} is compared with float64",
                context="--precision",
                hint=f"it compares {', '.join(PRECISIONS)}",
            )
    return tuple(dict.fromkeys(names))


def _autocast(text: str) -> str:
    with _flag_named("--autocast"):
        name = parse_dtype(text) if text else ""
    if name and name not in AUTOCAST:
        raise UsageError(
            f"autocast on MPS casts to no {name}",
            context="--autocast",
            hint=f"it casts to {' or '.join(AUTOCAST)}",
        )
    return name


@contextlib.contextmanager
def _flag_named(flag: str) -> Iterator[None]:
    """Name the flag in errors that do not know where their text comes from."""
    try:
        yield
    except OpcheckError as error:
        error.context = error.context or flag
        raise


def setting(text: str) -> tuple[str, Scalar | list[object] | dict[str, object]]:
    """``NAME=VALUE`` as a name and what YAML reads in the value.

    Raises:
        UsageError: no name, or no YAML.
    """
    import yaml  # noqa: PLC0415  (only where a setting is given)

    name, equals, value = text.partition("=")
    try:
        content = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(
            f"not a YAML value: {value!r}", context=f"--config {text}", hint="quote it: a='[1, 2]'"
        ) from error
    if not (equals and name.strip()):
        raise UsageError(
            f"not a setting: {text!r}", context="--config", hint="write it as NAME=VALUE"
        )
    # A date is the one scalar that YAML knows and a request does not: it stays text.
    known = isinstance(content, (bool, int, float, str, list, dict)) or content is None
    return name.strip(), content if known else value


def _not_negative(limit: float) -> float:
    if limit >= 0:
        return limit
    raise UsageError("the memory must not be negative", context="--memory-limit", hint="try 8")


def _positive(timeout: float) -> float:
    if timeout > 0:
        return timeout
    raise UsageError("the timeout must be more than nothing", context="--timeout", hint="try 300")


def _writable(text: str) -> Path:
    """The file, refused before the capture if its directory does not exist."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(
            "cannot write the report: no such directory"
            if not path.is_dir()
            else "cannot write the report: it is a directory",
            context=text,
            hint="name a file in a directory that exists",
        )
    return path


def _for_terminal(report: Report, *, color: bool, full: bool) -> str:
    from opcheck.report import terminal  # noqa: PLC0415  (rich is slow to load)

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else terminal.WIDTH
    return terminal.render(report, color=color, width=width, full=full)
