"""``opcheck observe LOG...``: what a Mac printed, as a report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from opcheck.cli import VERBS, flags, output, output_formats
from opcheck.common.errors import UsageError
from opcheck.data.registrations import load
from opcheck.judge.policy import FAIL_ON, exit_code
from opcheck.render import FORMATS

#: Bytes of all logs together; a longer one is a mistake, or wants to be cut first.
LARGEST = 1 << 30


@click.command(
    "observe",
    cls=flags.Configured,
    help=VERBS["observe"],
    epilog="LOG is a file with what a program on a Mac, or a CI job, printed; - is stdin. Time stamps, colours and the "
    "marks of CI services are taken off. PYTORCH_MPS_LOG_PROFILE_INFO=102 makes torch 2.1 and newer print each fallback "
    "and copy. Each flag has a variable (--fail-on: OPCHECK_FAIL_ON).",
)
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@flags.torch("The release, where the log does not tell.")
@flags.macos("The Mac's macOS, where the log does not tell.")
@flags.form(FORMATS)
@flags.output()
@flags.fail_on(FAIL_ON, "unsupported", "; unsupported: whatever raised.")
@flags.verbose()
@flags.color
def command(
    *,
    logs: Sequence[str],
    torch: str | None,
    macos: str | None,
    format_name: str | None,
    output_path: str,
    fail_on: str,
    verbose: bool,
    color: str,
) -> int:
    """Read the logs, write the report, return the exit code."""
    texts = [(name if name != "-" else "stdin", _text(name)) for name in logs]

    from opcheck.device.observe.log_report import read

    report = read(texts, load(), torch=torch, macos=macos)
    output_formats.deliver_report(report, format_name, output_path, color=color, full=verbose)
    if not report.totals["calls"]:
        output.note("nothing in it is what PyTorch, or Metal, prints of MPS")
    return exit_code(report, fail_on=fail_on, strict=False)


def _text(name: str) -> str:
    """The log; bytes that are no UTF-8 are replaced: a log is what a process printed.

    Raises:
        UsageError: it cannot be read, or is too large.
    """
    try:
        if name == "-":
            content = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(LARGEST + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read the log: {error.strerror}",
            context=name,
            hint="name a file, or - for what is piped in",
        ) from error
    if len(content) > LARGEST:
        raise UsageError(
            "the log is larger than 1 GiB", context=name, hint="cut out the lines of one run first"
        )
    return content.decode("utf-8", errors="replace")
