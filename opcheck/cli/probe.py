"""``opcheck probe``: what a device really does with PyTorch's operator database, as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from opcheck.cli import VERBS, flags, output, output_formats
from opcheck.common.errors import UsageError
from opcheck.common.files import write_text
from opcheck.common.names import parse_dtype

_FILES = (".yaml", ".yml", ".json")


@click.command(
    "probe",
    help=VERBS["probe"],
    epilog="Each OpInfo of the installed torch is run with each dtype, in a process of its own kind: one that ends "
    "or hangs loses one result. Each call of an operator is held against float64 on the CPU. With --output FILE.yaml "
    "or .json the results are evidence that opcheck reads again; without, a summary is printed. Exits with 1 where "
    "something is wrong, raises, crashes or hangs. Needs the extra: pip install 'opcheck[probe]'.",
)
@flags.device
@click.option(
    "--op",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="OpInfos of this name; * and ? match. Repeatable.",
)
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="DTYPE",
    help="With this dtype alone. Repeatable.  [default: the eleven that PyTorch tests on MPS]",
)
@click.option("--grad", is_flag=True, help="Also probe gradients.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Probe at most so many this time."
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    metavar="N",
    help="Samples of an OpInfo with a dtype.",
)
@flags.jobs(1, "Processes at once.")
@flags.timeout(60.0, "Time that an OpInfo may take with a dtype.")
@flags.fallback
@click.option("--resume", is_flag=True, help="Go on with the file that --output names.")
@flags.quiet()
@flags.verbose("Show each OpInfo.")
@output_formats.format_flag
@flags.output()
def command(  # noqa: D103
    *,
    device: str,
    patterns: Sequence[str],
    dtypes: Sequence[str],
    grad: bool,
    limit: int | None,
    samples: int,
    jobs: int,
    timeout: float,
    fallback: bool,
    resume: bool,
    quiet: bool,
    verbose: bool,
    format_name: str | None,
    output_path: str,
) -> int:
    from opcheck.data import device_evidence
    from opcheck.numerics.probe import parent, records
    from opcheck.render import ANSWERS, write
    from opcheck.render.answers import probed as page

    path = Path(output_path) if output_path not in flags.STDOUT else None
    is_evidence = path is not None and path.suffix.lower() in _FILES
    if resume and not is_evidence:
        raise UsageError(
            "there is no evidence to go on with",
            context=f"--resume --output {output_path or '(none)'}",
            hint="name the file: --resume --output FILE.yaml",
        )
    before = device_evidence.load(path) if resume and path is not None and path.exists() else None
    setup = records.Setup(
        device=device,
        samples=samples,
        patterns=tuple(patterns),
        dtypes=tuple(map(parse_dtype, dtypes)) or records.DTYPES,
        phases=device_evidence.PHASES if grad else device_evidence.PHASES[:1],
    )
    name = output_formats.chosen(format_name, output_path, ANSWERS)

    def keep(found: device_evidence.Evidence) -> None:
        if path is not None and is_evidence:
            write_text(path, write(found, (), name))

    with output.progress(quiet=quiet, verbose=verbose) as progress:
        found = parent.probe(
            setup,
            device_evidence.Settings(samples=samples, seconds=timeout, cpu_fallback=fallback),
            before=before,
            limit=limit or 0,
            jobs=jobs,
            progress=progress,
            keep=keep if name in {"json", "yaml"} else None,
        )
    output_formats.deliver(found, page.document, format_name, output_path)
    if path is not None and not quiet:
        output.note(page.counts(found))
    return int(any(result.outcome in page.BAD for result in found.results))
