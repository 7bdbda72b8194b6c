"""``opcheck compile MODEL``: which variant of torch.compile works, up to the Metal kernels."""

import functools
import shlex
from pathlib import Path
from typing import Annotated

import click
from msgspec.structs import replace

from opcheck.capture.request import CaptureOptions, find_source, request_of, seconds
from opcheck.cli import streams
from opcheck.cli.options import OutputOptions, ProgressOptions, but, flag, only, verb
from opcheck.common.errors import CaptureError
from opcheck.common.names import parse_dtype
from opcheck.common.tool import TOOL
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions
from opcheck.features.compile import compile_records as records
from opcheck.judge.policy import COULD_NOT_TELL
from opcheck.model.records import Record
from opcheck.render import ANSWERS
from opcheck.worker.platform import ENDED
from opcheck.worker.protocol import ProcessDisplay


class VariantOptions(Record, frozen=True, kw_only=True):
    """The options that choose the ways to call torch.compile."""

    backends: Annotated[
        tuple[str, ...],
        flag(
            "Try only this backend; with --all, with every setting. Repeatable.",
            "backend",
            metavar="NAME",
            values=(*records.BACKENDS, records.AOTINDUCTOR),
        ),
    ] = ()
    every: Annotated[bool, flag("Try every backend with every setting.", "all")] = False
    dtypes: Annotated[
        tuple[str, ...],
        flag(f"Try only this dtype. Repeatable.  [default: {', '.join(records.DTYPES)}]", "dtype", metavar="DTYPE"),
    ] = ()
    modes: Annotated[
        tuple[str, ...],
        flag("One forward pass, or one training step. Repeatable.  [default: both]", "mode", choices=records.RUNS),
    ] = ()
    device: Annotated[str, flag("Where the model runs on this machine.", choices=("cpu", "cuda"))] = "cpu"
    time_limit: Annotated[float, seconds("Time limit of loading the model, and of each variant.", 120.0)] = 120.0

    def variants(self, *, run_metal: bool, every: bool = False) -> tuple[records.Variant, ...]:
        """Return what to try, or what --all tries; the CPU traces what a Mac would compile."""
        return records.choose(
            self.modes or records.RUNS,
            tuple(map(parse_dtype, self.dtypes)) or records.DTYPES,
            backends=self.backends,
            every_setting=self.every or every,
            metal=self.device != "cuda",
            run_metal=run_metal,
        )

    def flags(self) -> list[str]:
        """Return the runs and dtypes as flags of a command line."""
        return [f"--mode={run}" for run in self.modes] + [f"--dtype={d}" for d in self.dtypes]


class KernelOptions(Record, frozen=True, kw_only=True):
    """The options for the kernels that Inductor writes."""

    emit_metal: Annotated[str, flag("Write the Metal kernels to this folder.", metavar="FOLDER")] = ""
    check_metal: Annotated[bool, flag("Check the kernels with Clang (extra: metal).")] = False
    run_metal: Annotated[bool, flag("Experimental: run the kernels, on this machine's CPU.")] = False

    def require_tools(self) -> None:
        """Refuse what this machine cannot do, before the work starts."""
        if self.check_metal:
            from opcheck.features.compile.check import metal_check

            metal_check.index()
        if self.run_metal:
            from opcheck.features.compile import metal_runner

            metal_runner.compiler()

    def inspect(self, compiled: records.CompiledVariants, headers: Path | None) -> records.CompiledVariants:
        """Write the kernels to files and have them read, where that is requested."""
        from opcheck.features.compile.check import metal_check

        if self.check_metal:
            compiled = metal_check.check_kernels(compiled, headers)
        if self.emit_metal:
            streams.note(f"{metal_check.emit(compiled, self.emit_metal)} written to {self.emit_metal}")
        return compiled


@verb("compile")
@click.argument("model")
def command(
    *,
    model: str,
    target: Annotated[TargetOptions, only("torch", "macos", "fallback")],
    capture: Annotated[CaptureOptions, only("inputs", "config", "exact")],
    choice: VariantOptions,
    kernels: KernelOptions,
    progress: Annotated[ProgressOptions, but(verbose="Show the program's output and the time of each step.")],
    output: OutputOptions,
) -> int:
    """Compile each variant, write the outcomes; 1 where none works, 3 where the outcome is not known."""
    from opcheck.features.compile import page
    from opcheck.features.compile.compile_process import Backend, backend, compile_variants, differing, includes
    from opcheck.features.compile.target_outcomes import audits, eager_runs, exit_code, report

    lists = load()
    mac = target.target(lists)
    variants = choice.variants(run_metal=kernels.run_metal)
    kernels.require_tools()
    request = request_of(find_source(model, capture), mac, capture)
    with progress.shown() as say:
        metal = any(variant.metal for variant in variants)
        own = backend(lists.release(str(mac.torch)), say) if metal else Backend()
        plan = records.CompilePlan(
            variants=variants,
            device=choice.device,
            seconds=choice.time_limit,
            backend=own.folder,
            backend_release=own.release,
        )
        compiled = compile_variants(request, plan, display=ProcessDisplay(say, progress.verbose))
        runs = eager_runs(compiled.tried)
        eager = audits(replace(request, time_limit=choice.time_limit), () if compiled.ended else runs, lists, say)
    if compiled.ended:
        eager = dict.fromkeys(runs, CaptureError(f"{compiled.ended} ended the run"))
    compiled = kernels.inspect(compiled, includes(own.folder))
    graphs = (graph for each in compiled.tried for graph in each.side)
    operators = (operator for graph in graphs for operator in graph.operators)
    different = differing(own.folder, operators)
    words = shlex.join(["opcheck", "compile", model, *request.flags(), f"--torch={mac.torch}", *choice.flags()])
    answer = report(*(compiled, mac, lists, TOOL), eager=eager, unread=own.problem, differing=different, command=words)
    left = 0 if choice.backends else len(choice.variants(run_metal=False, every=True)) - len(variants)
    whole = progress.verbose or compiled.ended or output.chosen(ANSWERS) != "text"
    page_of = functools.partial(page.document, times=progress.verbose, short=not whole, left=left, command=words)
    output.deliver(answer, page_of)
    if compiled.ended:
        streams.note(f"{compiled.ended} ended the run: {compiled.lacking} variants were not tried")
        return ENDED.get(compiled.ended, COULD_NOT_TELL)
    return exit_code(answer, each_dtype=bool(choice.dtypes))
