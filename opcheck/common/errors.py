"""The exceptions of opcheck: each names what happened, the context, and what to do next."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

#: Characters of a line of an error.
_LONGEST = 1000


class OpcheckError(Exception):
    """The work could not be done.  Findings are data and no errors.

    Args:
        message: what happened, on one line that a search finds.
        context: where: a file, a key path, a model name.
        hint: the next thing to do.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, context: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.context = context
        self.hint = hint

    def __str__(self) -> str:
        """Return three lines: the problem, its context, the next step; empty lines are left out."""
        lines = [_cut(line) for line in self.message.split("\n")]
        if self.context:
            lines.append(f"  in: {_cut(_flat(self.context))}")
        if self.hint:
            lines.append(f"  help: {_cut(_flat(self.hint))}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the keyword fields, which the default would lose."""
        return (_rebuild, (type(self), self.message, self.context, self.hint))


def _flat(text: str) -> str:
    """Join a text to one line: a path or a name may contain a newline."""
    return " ".join(text.split("\n"))


def _cut(line: str) -> str:
    """Leave out the middle of a long line: a name may have any length."""
    half = _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half]} ... {line[-half:]}"


def _rebuild(kind: type[OpcheckError], message: str, context: str, hint: str) -> OpcheckError:
    return kind(message, context=context, hint=hint)


class UsageError(OpcheckError):
    """An argument that cannot be used as given; the message quotes it, and stays on one line."""

    def __init__(self, message: str, *, context: str = "", hint: str = "") -> None:
        super().__init__(_flat(message), context=context, hint=hint)


class UnknownTargetError(OpcheckError):
    """A torch release or macOS version that no list describes."""


class OpListError(OpcheckError):
    """The op lists, or a wheel that they are read from, are damaged or contradict themselves."""

    exit_code = 3


class ModelLoadError(OpcheckError):
    """The model could not be imported or built."""


class LibraryLoadError(ModelLoadError):
    """The model could not be loaded after a library saw a release of torch that is not installed."""


class InputError(OpcheckError):
    """The inputs do not parse, or none could be derived for this model."""


class CaptureError(OpcheckError):
    """The model was loaded but could not be followed to its end."""

    exit_code = 3


class UnsupportedTorchError(OpcheckError):
    """The installed torch lacks a private name that opcheck uses."""

    exit_code = 3


@contextlib.contextmanager
def explain_errors(
    errors: type[Exception] | tuple[type[Exception], ...],
    message: str,
    *,
    context: object,
    hint: str | Callable[[Exception], str],
    kind: type[OpcheckError] = UsageError,
) -> Iterator[None]:
    """Turn errors of a block into an error for the user: the message, and the text of the error.

    Args:
        errors: the exceptions.
        message: what could not be done.
        context: where, as of ``OpcheckError``.
        hint: the next thing to do, or what returns it for the error.
        kind: the error for the user.
    """
    try:
        yield
    except errors as error:
        why = getattr(error, "strerror", None) or error
        advice = hint if isinstance(hint, str) else hint(error)
        raise kind(f"{message}: {why}", context=str(context), hint=advice) from error


@contextlib.contextmanager
def explain_missing(what: str, *packages: str, context: str, hint: str) -> Iterator[None]:
    """Turn a missing package into an error for the user.

    Args:
        what: the beginning of the message, such as ``reading a wheel needs``.
        packages: what the user may lack; another missing module is a mistake of the program.
        context: where, as of ``OpcheckError``.
        hint: the command that installs them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or packages[0]).partition(".")[0]
        if name not in packages:
            raise
        raise UsageError(f"{what} {name}, which is not installed", context=context, hint=hint) from error


@contextlib.contextmanager
def located_at(place: str) -> Iterator[None]:
    """Set the context of errors that have none, such as the flag that a text comes from."""
    try:
        yield
    except OpcheckError as error:
        error.context = error.context or place
        raise


#: A flag, and what precedes its value.
_FLAG = re.compile(r"--([a-z][a-z-]*[a-z])([ =](?=\w))?")


@contextlib.contextmanager
def named_by_keyword(keywords: Mapping[str, str]) -> Iterator[None]:
    """Name the keywords of a Python function in errors that name the flags of the command line.

    Args:
        keywords: by the name of the flag.
    """

    def keyword(match: re.Match[str]) -> str:
        name = keywords.get(match[1])
        return f"{name}{'=' if match[2] else ''}" if name else match[0]

    try:
        yield
    except OpcheckError as error:
        error.message, error.context, error.hint = (
            _FLAG.sub(keyword, text) for text in (error.message, error.context, error.hint)
        )
        raise
