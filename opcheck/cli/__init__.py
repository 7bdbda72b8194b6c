"""The command line turns arguments into an exit code; it judges nothing and imports no torch."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from opcheck.common.errors import OpcheckError, UsageError
from opcheck.common.sanitize import for_stderr
from opcheck.common.tool import VERSION
from opcheck.worker import platform, process

#: The verbs and their one-line helps, grouped by purpose.  A verb is imported when it is
#: called: ``opcheck.cli.<verb>``.
GROUPS = {
    "Look up": {
        "op": "Say what the releases do with an operator: can I use it?",
        "history": "Say how an operator's status changed from release to release, and why.",
        "matrix": "Write the coverage of a torch release: one row an operator overload.",
        "explain": "Explain a finding, or list all of them.",
    },
    "Audit a model or its source": {
        "audit": "Say what each operator call of a model does on the target Mac.",
        "compile": "Say which variant of torch.compile works, up to the Metal kernels.",
        "scan": "Find the lines of a source that were written for CUDA, without running it.",
        "upgrade": "Say which torch or macOS removes a model's findings, and what that breaks.",
        "diff": "Say what differs between two releases, two reports or two targets of a model.",
        "repro": "Write the smallest program for a finding, tried on an emulated Mac.",
        "issue": "Write what PyTorch's tracker asks for about a finding.",
    },
    "Audit many models": {
        "init": "Write the table that the gate reads, and its workflow for CI.",
        "gate": "Audit all models of a project on all of its targets, and judge them: for CI.",
        "sweep": "Audit whole libraries of models over many releases and macOS versions.",
    },
    "Run and observe": {
        "run": "Run a program, as it is, on an emulated Mac or observed on a real one.",
        "observe": "Read the logs of a Mac or of a CI job: what ran on the CPU, what raised, and where.",
        "verify": "Hold a prediction against what a Mac did: agreements, contradictions, unseen.",
        "doctor": "Say what is wrong with a machine: torch, macOS, Python, variables, packages.",
        "compare": "Hold a real device's results against float64, operator by operator.",
        "probe": "Record what a device does with PyTorch's operator database, as evidence.",
    },
    "Maintain and publish": {
        "kernels": "List, compare and run the Metal kernels that a torch release ships.",
        "lists": "Show the op lists that the verdicts come from, or build them.",
        "site": "Write the op lists, and a sweep's models, as static pages with a search.",
    },
}
VERBS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}

#: The exit code when a reader of stdout has stopped (``| head``): click exits with 1 (core.py, main),
#: which means findings here.
_PIPE_CLOSED = 0
#: The exit code after Ctrl-C, as shells define it.
_INTERRUPTED = 130

#: The variable by which a shell asks for completions: click derives it from the program's name.
_ASKED_BY_SHELL = "_OPCHECK_COMPLETE"


class _Verbs(click.Group):
    """A group that knows its commands' names and helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"opcheck.cli.{cmd_name}").command
        if _ASKED_BY_SHELL in os.environ:
            import_module("opcheck.cli.complete").attach(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``help VERB`` as ``VERB --help``."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, VERBS))
        with formatter.section("Commands"):
            for wish, verbs in GROUPS.items():
                with formatter.section(wish):
                    formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs.items()])


#: Not a docstring, because ``python -OO`` removes docstrings.
_HELP = """Say what a PyTorch model does on Apple's GPU (MPS), from any machine.

Exit codes: 0 nothing at or above --fail-on; 1 findings; 2 usage or input error; 3 could not
tell.
"""


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    help=_HELP,
    epilog="Try: opcheck op torch.linalg.svd, or opcheck help audit",
    context_settings={"max_content_width": 100},
)
@click.version_option(
    VERSION, "-V", "--version", prog_name="opcheck", message="%(prog)s %(version)s"
)
@click.pass_context
def opcheck(ctx: click.Context) -> int:
    """Show the help where no verb is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return UsageError.exit_code
    return 0


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    from opcheck.cli import streams

    streams.open_streams()
    platform.handle_signals()
    try:
        code = invoke(sys.argv[1:] if args is None else args)
    finally:
        process.end_all()
    sys.exit(code)


def invoke(args: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    if _ASKED_BY_SHELL in os.environ:
        import_module("opcheck.cli.complete").install()
    try:
        with process.household():
            code: int = opcheck.main(list(args), prog_name="opcheck", standalone_mode=False) or 0
    except OpcheckError as error:
        return _stopped(error, args)
    except click.ClickException as error:
        return _usage_error(error)
    except platform.SignalledError as ended:
        return 128 + ended.number
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except SystemExit:
        return _PIPE_CLOSED
    except (OSError, UnicodeEncodeError) as error:
        return _not_written(error) if isinstance(error, OSError) else _not_text(error, args)
    except Exception:  # noqa: BLE001  (left to Python it would exit with 1, which means findings)
        return _bug()
    return code


def _stopped(error: OpcheckError, args: Sequence[str]) -> int:
    """Print an error in three lines; one that lacks its place, as of a parsed version, gets the verb's."""
    verb = " ".join(["opcheck", *[word for word in args[:1] if word in VERBS]])
    error.context = error.context or verb
    error.hint = error.hint or f"{verb} --help"
    _tell(str(error))
    return error.exit_code


def _tell(text: str) -> None:
    """Write sanitized lines to stderr, because they quote models, files and arguments."""
    # Where it cannot be written, nobody reads it.
    with contextlib.suppress(OSError, ValueError):
        click.echo(for_stderr(text), err=True)


def _not_written(error: OSError) -> int:
    """Print what the system refused: the disk is full, a stream is closed, a folder is gone."""
    from opcheck.cli import streams

    streams.close()
    full = UsageError(
        f"cannot read or write: {error.strerror or error}",
        context=str(error.filename or "stdout, or a file"),
        hint="free some space"
        if error.errno == errno.ENOSPC
        else "see that it is there and open, and that you may use it",
    )
    streams.note(str(full))
    return full.exit_code


def _not_text(error: UnicodeEncodeError, args: Sequence[str]) -> int:
    """Say which name is no UTF-8: what travels to a child and into a report is JSON, which has no half characters."""
    refused = UsageError(
        "a name that is not UTF-8 cannot be used here",
        context=ascii(error.object[max(0, error.start - 40) : error.end + 40]),
        hint="rename the file or the folder",
    )
    return _stopped(refused, args)


def _bug() -> int:
    _tell(traceback.format_exc().rstrip())
    _tell("this is a bug in opcheck; the audit could not be done")
    return 3


def _usage_error(error: click.ClickException) -> int:
    """Print a usage error of click in the same three lines as every other error."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "opcheck"
    message = " ".join(error.format_message().split())
    _tell(str(UsageError(message, context=path, hint=f"{path} --help")))
    return UsageError.exit_code
