"""``opcheck probe``: what a device really does with PyTorch's operator database, as evidence."""

from pathlib import Path
from typing import Annotated

from opcheck.capture.request import seconds
from opcheck.cli import streams
from opcheck.cli.options import DEVICE, OutputOptions, ProgressOptions, but, flag, jobs, only, verb
from opcheck.common.errors import UsageError
from opcheck.common.files import write_text
from opcheck.common.names import parse_dtype
from opcheck.data.targets import TargetOptions

_FILES = (".yaml", ".yml", ".json")


@verb("probe")
def command(
    *,
    device: Annotated[str, DEVICE],
    patterns: Annotated[
        tuple[str, ...], flag("OpInfos of this name; * and ? match. Repeatable.", "op", metavar="PATTERN")
    ] = (),
    dtypes: Annotated[
        tuple[str, ...],
        flag(
            "With this dtype alone. Repeatable.  [default: the eleven that PyTorch tests on MPS]",
            "dtype",
            metavar="DTYPE",
        ),
    ] = (),
    grad: Annotated[bool, flag("Also probe gradients.")] = False,
    limit: Annotated[int | None, flag("Probe at most so many this time.", metavar="N", least=1)] = None,
    samples: Annotated[int, flag("Samples of an OpInfo with a dtype.", metavar="N", least=1)] = 8,
    jobs: Annotated[int, jobs("Processes at once.")] = 1,
    time_limit: Annotated[float, seconds("Time that an OpInfo may take with a dtype.", 60.0)] = 60.0,
    target: Annotated[TargetOptions, only("fallback")],
    resume: Annotated[bool, flag("Continue with the file that --output names.")] = False,
    progress: Annotated[ProgressOptions, but(verbose="Show each OpInfo.")],
    output: OutputOptions,
) -> int:
    """Probe the device, write the evidence; 1 where something goes wrong."""
    from opcheck.data import device_evidence
    from opcheck.features.probe import page, probe_messages, prober
    from opcheck.render import ANSWERS, write

    path = None if output.to_stdout else Path(output.path)
    is_evidence = path is not None and path.suffix.lower() in _FILES
    if resume and not is_evidence:
        where, hint = f"--resume --output {output.path or '(none)'}", "name the file: --resume --output FILE.yaml"
        raise UsageError("there is no evidence to continue", context=where, hint=hint)
    before = device_evidence.load(path) if resume and path is not None and path.exists() else None
    setup = probe_messages.Setup(
        device=device,
        samples=samples,
        patterns=tuple(patterns),
        dtypes=tuple(map(parse_dtype, dtypes)) or probe_messages.DTYPES,
        phases=device_evidence.PHASES if grad else device_evidence.PHASES[:1],
    )
    name = output.chosen(ANSWERS)

    def keep(evidence: device_evidence.EvidenceFile) -> None:
        if path is not None and is_evidence:
            write_text(path, write(evidence, (), name))

    settings = device_evidence.Settings(samples=samples, seconds=time_limit, cpu_fallback=target.fallback)
    with progress.shown() as say:
        evidence = prober.probe(
            setup,
            settings,
            before=before,
            limit=limit or 0,
            jobs=jobs,
            progress=say,
            keep=keep if name in {"json", "yaml"} else None,
        )
    output.deliver(evidence, page.document)
    if path is not None and not progress.quiet:
        streams.note(page.counts(evidence))
    return int(any(result.outcome in page.BAD for result in evidence.results))
