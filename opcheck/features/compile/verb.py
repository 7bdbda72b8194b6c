"""``opcheck compile MODEL``: which variant of torch.compile works, up to the Metal kernels."""

from __future__ import annotations

import functools
import shlex
from typing import Annotated

import click

from opcheck.capture.request import CaptureOptions, request_of, seconds
from opcheck.cli import streams
from opcheck.cli.options import (
    OutputOptions,
    ProgressOptions,
    but,
    flag,
    only,
    verb,
)
from opcheck.common.errors import CaptureError
from opcheck.common.names import parse_dtype
from opcheck.common.tool import TOOL
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions
from opcheck.features.compile.plan import AOTINDUCTOR, BACKENDS, DTYPES, RUNS
from opcheck.judge.policy import COULD_NOT_TELL
from opcheck.worker.platform import ENDED


@verb(
    "compile",
    epilog="MODEL is named as for opcheck audit. The model is run with its weights on this machine: "
    "take a small configuration of a large one (--config num_hidden_layers=2). Exits with 1 where inference or "
    "training works for Metal in no dtype, or not in a dtype that --dtype names; with 3 where that cannot be told.",
)
@click.argument("model")
def command(
    *,
    model: str,
    target: Annotated[TargetOptions, only("torch", "macos", "fallback")],
    capture: Annotated[CaptureOptions, only("inputs", "config", "exact")],
    backends: Annotated[
        tuple[str, ...],
        flag(
            "Try this backend alone; with --all, with every setting. Repeatable.",
            "backend",
            metavar="NAME",
            values=(*BACKENDS, AOTINDUCTOR),
        ),
    ] = (),
    every: Annotated[bool, flag("Try every backend with every setting.", "all")] = False,
    dtypes: Annotated[
        tuple[str, ...],
        flag(
            f"Try this dtype alone. Repeatable.  [default: {', '.join(DTYPES)}]",
            "dtype",
            metavar="DTYPE",
        ),
    ] = (),
    modes: Annotated[
        tuple[str, ...],
        flag(
            "One forward pass, or one training step. Repeatable.  [default: both]",
            "mode",
            choices=RUNS,
        ),
    ] = (),
    device: Annotated[
        str, flag("Where the model runs on this machine.", choices=("cpu", "cuda"))
    ] = "cpu",
    time_limit: Annotated[float, seconds("Time that a variant may take.", 120.0)] = 120.0,
    emit_metal: Annotated[str, flag("Write the Metal kernels there.", metavar="FOLDER")] = "",
    check_metal: Annotated[bool, flag("Have Clang read the kernels (extra: metal).")] = False,
    run_metal: Annotated[
        bool, flag("Experimental: run the kernels, on this machine's CPU.")
    ] = False,
    progress: Annotated[
        ProgressOptions, but(verbose="Show what the program prints, and what took how long.")
    ],
    output: OutputOptions,
) -> int:
    """Compile each variant, write what came of it; 1 where none works, 3 where that cannot be told."""
    from opcheck.features.compile import page, plan
    from opcheck.features.compile.compile_process import compile_variants
    from opcheck.features.compile.target_inductor import Backend, backend, differing, includes
    from opcheck.features.compile.target_outcomes import audits, eager_runs, exit_code, report

    lists = load()
    mac = target.target(lists)
    chosen = modes or RUNS, tuple(map(parse_dtype, dtypes)) or DTYPES
    # The CPU traces what a Mac would compile.
    metal = device != "cuda"
    variants = plan.choose(*chosen, backends=backends, every_setting=every, metal=metal)
    if check_metal:
        from opcheck.features.compile.check import metal_check

        metal_check.available()
    if run_metal:
        from opcheck.features.compile import metal_runner

        metal_runner.compiler()
        variants = plan.with_kernels_run(variants)
    request = request_of(model, mac, capture)
    with progress.shown() as say:
        metal = any(variant.metal for variant in variants)
        own = backend(lists.release(str(mac.torch)), say) if metal else Backend()
        compiled = compile_variants(
            request,
            plan.CompilePlan(
                variants=variants,
                device=device,
                seconds=time_limit,
                backend=own.folder,
                backend_release=own.release,
            ),
            progress=say,
            show_output=progress.verbose,
        )
        runs = eager_runs(each.variant for each in compiled.tried)
        eager = audits(request, () if compiled.ended else runs, lists, progress=say)
    if compiled.ended:
        eager = dict.fromkeys(runs, CaptureError(f"{compiled.ended} ended the run"))
    if check_metal:
        compiled = metal_check.check_kernels(compiled, includes(own.folder))
    graphs = (graph for each in compiled.tried for graph in each.side)
    operators = (operator for graph in graphs for operator in graph.operators)
    words = ["opcheck", "compile", model, *request.flags(), f"--torch={mac.torch}"]
    words += [f"--mode={run}" for run in modes] + [f"--dtype={dtype}" for dtype in dtypes]
    answer = report(
        *(compiled, mac, lists, TOOL),
        eager=eager,
        unread=own.problem,
        differing=differing(own.folder, operators),
        command=shlex.join(words),
    )
    if emit_metal:
        from opcheck.features.compile.emit import emit

        streams.note(f"{emit(compiled, emit_metal)} written to {emit_metal}")
    output.deliver(answer, functools.partial(page.document, times=progress.verbose))
    if compiled.ended:
        streams.note(f"{compiled.ended} ended the run: {compiled.lacking} variants were not tried")
        return ENDED.get(compiled.ended, COULD_NOT_TELL)
    return exit_code(answer, each_dtype=bool(dtypes))
