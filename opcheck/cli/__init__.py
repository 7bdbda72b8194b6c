"""The command line turns arguments into an exit code; it judges nothing and imports no torch."""

import gc
import itertools
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from opcheck.cli import streams
from opcheck.common.errors import OpcheckError, UsageError
from opcheck.common.tool import VERSION
from opcheck.features import features, verbs
from opcheck.worker import platform, process

#: The exit code when a reader of stdout has stopped (``| head``): click exits with 1 (core.py, main),
#: which means findings here.
_PIPE_CLOSED = 0
#: The exit code after Ctrl-C, as shells define it.
_INTERRUPTED = 130

#: The variable that a shell sets for completions: click derives it from the program's name.
_ASKED_BY_SHELL = "_OPCHECK_COMPLETE"


class _Verbs(click.Group):
    """A group that lists its commands' names and helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(features())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in verbs():
            return None
        command: click.Command = import_module(f"opcheck.features.{cmd_name.replace('-', '_')}.verb").command
        if _ASKED_BY_SHELL in os.environ:
            import_module("opcheck.cli.complete").attach(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb of the arguments.

        Raises:
            UsageError: there is none of that name, with the command that was probably meant.
        """
        import difflib

        from opcheck.common.documents import brief

        name = args[0]
        if name in verbs() or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = [f"opcheck {verb}" for verb in difflib.get_close_matches(name, verbs(), 1)]
        near += [f"opcheck {verb} {name}" for form, verb in _WITHOUT_VERB if form.fullmatch(name)]
        hint = f"did you mean {near[0]}?" if near else "opcheck --help lists the commands"
        raise UsageError(f"opcheck has no command {brief(name)}", context="opcheck", hint=hint)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``help VERB`` as ``VERB --help``."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = features()
        width = max(map(len, shown))
        with formatter.section("Commands"):
            for group, named in itertools.groupby(shown, lambda verb: shown[verb].group):
                with formatter.section(group):
                    formatter.write_dl([(verb.ljust(width), shown[verb].help) for verb in named])


#: What is often written without its verb -> the verb.
_WITHOUT_VERB = (
    (re.compile(r"oc\d{3}", re.IGNORECASE), "explain"),
    (re.compile(r".*(\.py:.*|\.pt2|\.pt|\.pth|\.safetensors|[^:]:[^:].*)"), "audit"),
    (re.compile(r".*\.py"), "run"),
    (re.compile(r".*::.*|(torch|nn|F|Tensor|aten|linalg|fft)\..*"), "op"),
    (re.compile(r"[\w-]+/[\w.-]+"), "audit"),
)


#: Not a docstring, because ``python -OO`` removes docstrings.
_HELP = """Predict how a PyTorch model runs on a Mac's GPU (MPS), from any machine.

Exit codes: 0 nothing at or above --fail-on; 1 findings; 2 usage or input error; 3 unknown.
"""


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    help=_HELP,
    epilog="Try: opcheck op torch.linalg.svd, or opcheck help audit",
    context_settings={"max_content_width": 100},
)
@click.version_option(VERSION, "-V", "--version", prog_name="opcheck", message="%(prog)s %(version)s")
@click.pass_context
def opcheck(ctx: click.Context) -> int:
    """Show the help where no verb is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return UsageError.exit_code
    return 0


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    # The op lists stay as long as the process: the usual thresholds go through them a hundred times.
    gc.set_threshold(100_000, 20, 100)
    streams.open_streams()
    platform.handle_signals()
    try:
        code = invoke(sys.argv[1:] if args is None else args)
    except (platform.SignalledError, KeyboardInterrupt) as ended:  # a second signal, or a signal at the end
        code = _code_of(ended)
    finally:
        platform.ignore_signals()
        process.end_all()
        streams.close_full_stderr()
    sys.exit(code)


def invoke(args: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    if _ASKED_BY_SHELL in os.environ:
        import_module("opcheck.cli.complete").install()
    try:
        with process.end_started_on_error():
            code: int = opcheck.main(list(args), prog_name="opcheck", standalone_mode=False) or 0
    except OpcheckError as error:
        return _report_error(error, args)
    except click.ClickException as error:
        return _usage_error(error)
    except (click.Abort, KeyboardInterrupt, platform.SignalledError) as ended:
        return _code_of(ended)
    except SystemExit:
        return _PIPE_CLOSED
    except OSError as error:
        return _not_written(error)
    except UnicodeEncodeError as error:
        return _not_text(error)
    except Exception:  # noqa: BLE001  (left to Python it would exit with 1, which means findings)
        streams.note(traceback.format_exc().rstrip())
        streams.note("this is a bug in opcheck; the audit could not be done")
        return 3
    return code


def _code_of(ended: BaseException) -> int:
    return 128 + ended.number if isinstance(ended, platform.SignalledError) else _INTERRUPTED


def _report_error(error: OpcheckError, args: Sequence[str] = ()) -> int:
    """Print an error in three lines; an error without a place, as from a parsed version, gets the verb's."""
    verb = " ".join(["opcheck", *[word for word in args[:1] if word in verbs()]])
    error.context = error.context or verb
    error.hint = error.hint or f"{verb} --help"
    streams.note(str(error))
    return error.exit_code


def _not_written(error: OSError) -> int:
    """Print what the system refused: the disk is full, a stream is closed, a folder is gone."""
    from opcheck.common.files import hint_of

    streams.close()
    hint = hint_of(error, "see that it is there and open, and that you may use it")
    context = str(error.filename or "stdout, or a file")
    return _report_error(UsageError(f"cannot read or write: {error.strerror or error}", context=context, hint=hint))


def _not_text(error: UnicodeEncodeError) -> int:
    """Say which name is no UTF-8: what travels to a child and into a report is JSON, which has no half characters."""
    context = ascii(error.object[max(0, error.start - 40) : error.end + 40])
    hint = "rename the file or the folder"
    return _report_error(UsageError("a name that is not UTF-8 cannot be used here", context=context, hint=hint))


def _usage_error(error: click.ClickException) -> int:
    """Print a usage error of click in the same three lines as every other error."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "opcheck"
    message = " ".join(error.format_message().split())
    hint = f"{path} --help"
    # Of a group without a command, click's message is the whole help.
    if context and isinstance(context.command, click.Group) and message.startswith("Usage: "):
        message = "Missing command."
        hint = f"known: {', '.join(context.command.list_commands(context))}; {hint}"
    return _report_error(UsageError(message, context=path, hint=hint))
