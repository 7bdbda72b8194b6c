"""``opcheck observe LOG...``: what a Mac printed, as a report."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import click

from opcheck.cli import streams
from opcheck.cli.options import VERBOSE, ReportOptions, only, verb
from opcheck.common import documents
from opcheck.common.errors import UsageError
from opcheck.data.registrations import load
from opcheck.data.targets import TargetOptions
from opcheck.judge.policy import FAIL_ON, exit_code
from opcheck.model.options import failing_on

#: Limit on the size of all logs together, in bytes; longer input is a mistake or must be cut first.
LARGEST = 1 << 30


@verb("observe", table="")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
def command(
    *,
    logs: Sequence[str],
    target: Annotated[
        TargetOptions,
        only(torch="torch release, if the log does not name it.", macos="macOS version, if the log does not name it."),
    ],
    output: ReportOptions,
    fail_on: Annotated[str, failing_on(FAIL_ON, "; unsupported: whatever raised.")] = "unsupported",
    verbose: Annotated[bool, VERBOSE] = False,
) -> int:
    """Read the logs, write the report, return the exit code."""
    texts = [(name if name != "-" else "stdin", _text(name)) for name in logs]

    from opcheck.device.observe.log_report import read

    report = read(texts, load(), torch=target.torch, macos=target.macos)
    output.deliver_report(report, full=verbose)
    if not report.totals["calls"]:
        streams.note("the log has no message of PyTorch or Metal about MPS")
    return exit_code(report, fail_on=fail_on, strict=False)


def _text(name: str) -> str:
    """Read a log; bytes that are not UTF-8 are replaced, because a process may print anything.

    Raises:
        UsageError: it cannot be read, or is too large.
    """
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if name == "-" else documents.open_file(name) as file:
            # Of a file that is too large by its size, nothing is read.
            size = 0 if name == "-" else os.fstat(file.fileno()).st_size
            content = file.read(LARGEST + 1) if size <= LARGEST else b""
    except OSError as error:
        hint = "name a file, or - for stdin"
        raise UsageError(f"cannot read the log: {error.strerror}", context=name, hint=hint) from error
    if max(size, len(content)) > LARGEST:
        raise UsageError("the log is larger than 1 GiB", context=name, hint="cut out the lines of one run first")
    return content.decode("utf-8", errors="replace")
