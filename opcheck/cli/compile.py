"""``opcheck compile MODEL``: which variant of torch.compile works, up to the Metal kernels."""

from __future__ import annotations

from collections.abc import Sequence

import click

from opcheck.cli import VERBS, flags, output, output_formats, parse_options
from opcheck.cli.capture_options import borrowed
from opcheck.common.names import parse_dtype
from opcheck.common.tool import TOOL
from opcheck.common.versions import Target
from opcheck.compiler.plan import DTYPES, RUNS
from opcheck.data.registrations import load


@click.command(
    "compile",
    help=VERBS["compile"],
    params=borrowed("inputs", "settings"),
    epilog="MODEL is named as for opcheck audit. The model is run with its weights on this machine: "
    "take a small configuration of a large one (--config num_hidden_layers=2). Exits with 1 where no "
    "variant for Metal works, with 3 where that cannot be told.",
)
@click.argument("model")
@flags.torch()
@flags.macos()
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Try this backend alone. Repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Try every backend with every setting.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="DTYPE",
    help=f"Try this dtype alone. Repeatable.  [default: {', '.join(DTYPES)}]",
)
@click.option(
    "--mode",
    "runs",
    multiple=True,
    type=click.Choice(RUNS),
    help="One forward pass, or one training step. Repeatable.  [default: both]",
)
@click.option(
    "--device",
    type=click.Choice(("cpu", "cuda")),
    default="cpu",
    show_default=True,
    help="Where the model runs on this machine.",
)
@flags.timeout(120.0, "Time that a variant may take.")
@click.option("--emit-metal", default="", metavar="FOLDER", help="Write the Metal kernels there.")
@click.option("--check-metal", is_flag=True, help="Have Clang read the kernels (extra: metal).")
@click.option(
    "--run-metal", is_flag=True, help="Experimental: run the kernels, on this machine's CPU."
)
@flags.quiet()
@flags.verbose("Show what the program prints.")
@output_formats.format_flag
@flags.output()
def command(  # noqa: D103
    *,
    model: str,
    torch: str | None,
    macos: str | None,
    inputs: Sequence[str],
    settings: Sequence[str],
    backends: Sequence[str],
    every: bool,
    dtypes: Sequence[str],
    runs: Sequence[str],
    device: str,
    timeout: float,
    emit_metal: str,
    check_metal: bool,
    run_metal: bool,
    quiet: bool,
    verbose: bool,
    format_name: str | None,
    output_path: str,
) -> int:
    from opcheck.capture.request import CaptureRequest
    from opcheck.compiler import plan
    from opcheck.compiler.parent import compile_variants
    from opcheck.project.compiled import report
    from opcheck.render.answers import compiled as page

    lists = load()
    line = parse_options.release_of(torch, lists)
    system = parse_options.system_of(macos, line, lists)
    chosen_runs, chosen = tuple(runs) or RUNS, tuple(map(parse_dtype, dtypes)) or DTYPES
    if backends:
        variants = plan.named(backends, chosen_runs, chosen)
    else:
        variants = (plan.every if every else plan.default)(chosen_runs, chosen)
    if device == "cuda":
        # What a Mac would compile is traced on the CPU.
        variants = tuple(variant for variant in variants if not variant.metal)
    if check_metal:
        from opcheck.compiler.check import clang

        clang.available()
    if run_metal:
        from opcheck.compiler.execute import compiler

        compiler.prepare()
        variants = plan.with_kernels_run(variants)
    request = CaptureRequest(
        model=model,
        torch=str(line),
        macos=str(system),
        inputs=tuple(inputs),
        config=dict(parse_options.setting(text) for text in settings),
    )
    with output.progress(quiet=quiet, verbose=verbose) as progress:
        compiled = compile_variants(
            request,
            plan.Plan(variants=variants, device=device, seconds=timeout),
            progress=progress,
            show_output=verbose,
        )
    if check_metal:
        compiled = clang.checked(compiled)
    found = report(compiled, Target(torch=line, macos=system), lists, TOOL)
    if emit_metal:
        from opcheck.compiler.emit import emit

        output.note(f"{emit(compiled, emit_metal)} written to {emit_metal}")
    output_formats.deliver(found, page.document, format_name, output_path)
    every_one = backends or device == "cuda"
    tried = [
        attempt.outcome for attempt in found.compiled.tried if attempt.variant.metal or every_one
    ]
    if "works" in tried:
        return 0
    return output_formats.COULD_NOT_TELL if "could not tell" in tried else 1
