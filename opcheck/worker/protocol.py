"""The messages between a child process and its parent: one JSON object a line.

The parent writes an ``Order``.  The child writes a ``Stage`` whenever it begins the next step,
and then exactly one ``Answered`` or ``WorkFailure``.

User code runs in the child and can write to every descriptor there.  A line of the child therefore begins with a
secret that the order brought: what a program writes by accident, or to look like an answer, ends the work as garbled.
A program that searches opcheck's own frames for the secret is not kept from it: it has the same process.
"""

import secrets
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec

from opcheck.common import errors
from opcheck.common.errors import CaptureError, OpcheckError
from opcheck.common.text import error_text, error_type
from opcheck.model.records import Record
from opcheck.worker.process import GarbledError


class Limits(Record, frozen=True, kw_only=True):
    """Limits that a child enforces on itself."""

    #: Seconds, from when it has imported what it needs; 0: its parent alone limits its time.
    seconds: float = 0.0
    #: Bytes of memory beyond its use after its imports; 0: as many as there are.
    memory: int = 0


class Notes(Record, frozen=True, kw_only=True):
    """Where a child records what it reads (dependency_tracking.py)."""

    #: The file; lines are appended.
    path: str
    #: Folders that are not recorded, because the key of a result covers their contents.
    known: tuple[str, ...] = ()


class Order(Record, frozen=True, kw_only=True):
    """A piece of work for the child."""

    request: msgspec.Raw
    #: What each line of the answer begins with.
    secret: str
    #: The class of the request, as ``module:name``.
    type: str
    #: The subject of the request, such as the model's name: the context of errors.
    subject: str = ""
    limits: Limits = Limits()
    #: Where the child records what it reads; None: nowhere.
    notes: Notes | None = None


class Stage(Record, frozen=True, kw_only=True, tag="stage"):
    """The child begins its next step."""

    text: str
    #: Seconds that the step may take, even if less of the time limit is left; 0: no extension.
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class WorkFailure(Record, frozen=True, kw_only=True, tag="failure"):
    """The work could not be done; ``error`` names a class of opcheck.common.errors."""

    error: str
    message: str
    context: str = ""
    hint: str = ""


class Answered(Record, frozen=True, kw_only=True, tag="answered"):
    """The answer of the child; the parent has its type."""

    content: msgspec.Raw


Message = Stage | WorkFailure | Answered


def new_secret() -> str:
    """Return what authenticates the lines of one answer: it cannot be guessed."""
    return secrets.token_hex(16)


def seal(message: Any, secret: str) -> bytes:
    """Return the line of a message."""
    return secret.encode() + msgspec.json.encode(message) + b"\n"


def unseal(line: bytes, secret: str, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Return the message of a line without its end.

    Raises:
        GarbledError: it lacks the secret, or is no such message.
    """
    content = line.removeprefix(secret.encode())
    if len(content) == len(line):
        raise GarbledError(_quote(line))
    return decode(content, decoder)


def decode(content: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Return the value of the JSON; a GarbledError is raised where it is of another type."""
    try:
        return decoder.decode(content)
    except (ValueError, RecursionError) as error:  # those of msgspec and of Unicode are ValueErrors
        raise GarbledError(f"{_quote(content)} ({error})") from error


def _quote(content: bytes | msgspec.Raw) -> str:
    return repr(bytes(content)[:80].decode(errors="replace"))


class ProcessDisplay(NamedTuple):
    """What the caller of a process shows while it runs."""

    #: called with each stage
    progress: Callable[[str], None] | None = None
    #: whether the output of the process goes to stderr
    output: bool = False


NO_DISPLAY = ProcessDisplay()


class Say(Protocol):
    """Announces a stage to the parent; the arguments are those of Stage."""

    def __call__(self, text: str, /, *, seconds: float = 0.0) -> None:
        """Write the stage."""


def silent(text: str, *, seconds: float = 0.0) -> None:
    """Ignore a stage: a ``Say`` for callers that need no progress."""


def failure_of(
    error: BaseException,
    subject: str,
    message: str = "the capture of this model broke off",
    hint: str = "run again with -v to see what the process printed",
) -> WorkFailure:
    """Convert an exception: opcheck's own keeps its three lines, any other becomes a CaptureError of ``subject``."""
    if isinstance(error, OpcheckError):
        return WorkFailure(error=error_type(error), message=error.message, context=error.context, hint=error.hint)
    text = " ".join(f"{error_type(error)}: {error_text(error)}".split())
    return WorkFailure(error=CaptureError.__name__, message=f"{message}: {text}", context=subject, hint=hint)


def error_of(failure: WorkFailure) -> OpcheckError:
    """Return the exception of a failure; a CaptureError if the failure names no class of opcheck's."""
    kind = _ERRORS.get(failure.error, CaptureError)
    return kind(failure.message, context=failure.context, hint=failure.hint)


#: The exceptions that a child may name: user code can write that name.
_ERRORS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, OpcheckError)
}
