"""``opcheck observe-all``: signed evidence of this Mac's GPU, and predictions compared with evidence."""

from pathlib import Path
from typing import Annotated

import click

from opcheck.cli import streams
from opcheck.cli.options import COULD_NOT_TELL, OutputOptions, ProgressOptions, flag, only, verb
from opcheck.common.errors import UsageError
from opcheck.common.text import plural
from opcheck.data.registrations import load
from opcheck.device.observation_store import STEP_KINDS


@verb("observe-all")
@click.argument("folder", type=click.Path(path_type=Path))
def command(
    *,
    folder: Path,
    merge: Annotated[tuple[Path, ...], flag("Evidence to collect in FOLDER. Repeatable.", metavar="EVIDENCE")] = (),
    kinds: Annotated[
        tuple[str, ...], flag(f"Only this: {', '.join(STEP_KINDS)}. Repeatable.", "only", metavar="STEP")
    ] = (),
    programs: Annotated[
        tuple[Path, ...], flag("Program to run and compare. Repeatable.", "program", metavar="FILE")
    ] = (),
    ops: Annotated[
        tuple[str, ...], flag("OpInfos to probe in place of the first ones. Repeatable.", "op", metavar="PATTERN")
    ] = (),
    models: Annotated[tuple[str, ...], flag("Only this model of the list. Repeatable.", "model", metavar="NAME")] = (),
    kernels: Annotated[
        tuple[str, ...], flag("Only kernels of this operation. Repeatable.", "kernel", metavar="NAME")
    ] = (),
    minutes: Annotated[float, flag("Begin no step after so many.", metavar="N", above=0)] = 300.0,
    output: OutputOptions,
    progress: Annotated[ProgressOptions, only("quiet")],
) -> int:
    """Observe, or merge evidence; write what came of it."""
    from opcheck.features.observe_all import page

    lists = load()
    if merge:
        from opcheck.common.files import write_text
        from opcheck.device.observation_store import merge as merge_evidence
        from opcheck.render.markdown import as_markdown

        result = merge_evidence(merge, folder, lists)
        summary = result.summary
        write_text(folder / "observed.md", as_markdown(page.document(summary)))
        output.deliver(summary, page.document)
        counts = f"{result.added} added, {result.extended} extended, {result.unchanged} unchanged"
        more = ", proposed.yaml" if summary.contradictions else ""
        streams.note(f"{counts}; {folder} has observed.json, observed.md{more}")
        return 1 if summary.contradictions else 0
    for kind in (each for each in kinds if each not in STEP_KINDS):
        known = f"one of {', '.join(STEP_KINDS)}"
        raise UsageError(f"no step is called {kind!r}", context="--only", hint=known)
    from opcheck.device.here import this_mac
    from opcheck.device.observation_store import summarize_run
    from opcheck.features.observe_all.observing import ObservedSteps, gather_host, observe

    mac = this_mac()
    only_these = tuple(kind for kind in STEP_KINDS if not kinds or kind in kinds)
    chosen = ObservedSteps(only_these, programs, ops=ops, models=models, kernels=kernels, budget=minutes * 60)
    with progress.shown() as say:
        evidence = observe(folder, gather_host(mac), mac, chosen, lists, say)
    summary = summarize_run(folder, evidence)
    output.deliver(summary, page.document)
    failed = sum(step.state == "failed" for step in evidence.steps)
    if not evidence.complete or failed:
        streams.note(
            f"{plural(len(evidence.steps) - failed, 'step')} done, {failed} failed; run the command again to continue"
        )
    if summary.contradictions:
        return 1
    return 0 if evidence.complete and not failed else COULD_NOT_TELL
