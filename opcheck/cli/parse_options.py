"""What the flags of a capture ask for, read and checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from opcheck.capture.request import AUTOCAST, DEFAULT_TRACER, PRECISIONS, CaptureRequest
from opcheck.common.documents import DocumentError, brief, from_yaml
from opcheck.common.errors import OpcheckError, UsageError
from opcheck.common.names import parse_dtype
from opcheck.common.versions import MACOS_MAJORS, Version, parse_macos, parse_torch
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import OpLists
from opcheck.model.records import Scalar

#: GB of a --memory-limit: more than any machine has
MOST_MEMORY = 1_000_000


def request_of(
    model: str,
    line: Version,
    system: Version,
    *,
    fallback: bool,
    inputs: Sequence[str],
    input_files: Sequence[str],
    settings: Sequence[str],
    dtype: str,
    tracer: str,
    grad: bool,
    mode: Mode,
    optimizer: str,
    autocast: str,
    timeout: float,
    memory_limit: float,
    checkpoints: Sequence[str] = (),
    precision: str = "",
    save_graph: str = "",
) -> CaptureRequest:
    """What the flags ask the capture for.

    Raises:
        UsageError: a value that its flag does not take, or flags that do not go together.
    """
    if mode == "train" and tracer != DEFAULT_TRACER:
        raise UsageError(
            f"the tracer {tracer} follows no training step",
            context=f"--mode train --tracer {tracer}",
            hint=f"leave --tracer at {DEFAULT_TRACER}",
        )
    return CaptureRequest(
        model=model,
        torch=str(line),
        macos=str(system),
        cpu_fallback=fallback,
        inputs=tuple(inputs),
        input_files=tuple(input_files),
        config=dict(setting(text) for text in settings),
        checkpoints=tuple(checkpoints),
        dtype=_dtype(dtype),
        precision=_precision(precision),
        tracer=tracer,
        grad=grad,
        mode=mode,
        optimizer=optimizer,
        autocast=_autocast(autocast),
        save_graph=save_graph,
        time_limit=timeout,
        memory_limit=_not_negative(memory_limit),
    )


def release_of(text: str | None, lists: OpLists) -> Version:
    """The release line that was asked for, or the newest."""
    known = tuple(Version.parse(release.line) for release in lists.releases)
    with _flag_named("--torch"):
        return parse_torch(text, known) if text else max(known)


def system_of(text: str | None, line: Version, lists: OpLists) -> Version:
    """The macOS version that was asked for, or the newest."""
    minimum = Version.parse(lists.release(str(line)).minimum_macos)
    with _flag_named("--macos"):
        return parse_macos(text or str(MACOS_MAJORS[-1]), minimum, line)


def _dtype(text: str) -> str:
    with _flag_named("--dtype"):
        return parse_dtype(text) if text else ""


def _precision(text: str) -> tuple[str, ...]:
    """The dtypes of ``--precision``, each once, in their order."""
    with _flag_named("--precision"):
        names = [parse_dtype(name.strip()) for name in text.split(",")] if text else []
    for name in names:
        if name not in PRECISIONS:
            raise UsageError(
                f"no run in {name} is compared with float64",
                context="--precision",
                hint=f"it compares {', '.join(PRECISIONS)}",
            )
    return tuple(dict.fromkeys(names))


def _autocast(text: str) -> str:
    with _flag_named("--autocast"):
        name = parse_dtype(text) if text else ""
    if name and name not in AUTOCAST:
        raise UsageError(
            f"autocast on MPS casts to no {name}",
            context="--autocast",
            hint=f"it casts to {' or '.join(AUTOCAST)}",
        )
    return name


@contextlib.contextmanager
def _flag_named(flag: str) -> Iterator[None]:
    """Name the flag in errors that do not know where their text comes from."""
    try:
        yield
    except OpcheckError as error:
        error.context = error.context or flag
        raise


def setting(text: str) -> tuple[str, Scalar | list[object] | dict[str, object]]:
    """``NAME=VALUE`` as a name and what YAML reads in the value.

    Raises:
        UsageError: no name, or no YAML.
    """
    name, equals, value = text.partition("=")
    try:
        content = from_yaml(value)
    except DocumentError as error:
        raise UsageError(
            f"not a YAML value: {brief(value)}",
            context=f"--config {text}",
            hint="quote it: a='[1, 2]'",
        ) from error
    if not (equals and name.strip()):
        raise UsageError(
            f"not a setting: {text!r}", context="--config", hint="write it as NAME=VALUE"
        )
    # A date is the one scalar that YAML knows and a request does not: it stays text.
    known = isinstance(content, (bool, int, float, str, list, dict)) or content is None
    return name.strip(), content if known else value


def _not_negative(limit: float) -> float:
    if 0 <= limit <= MOST_MEMORY:
        return limit
    wrong = (
        "must not be negative" if limit < 0 else f"must be a number of at most {MOST_MEMORY:,} GB"
    )
    raise UsageError(f"the memory {wrong}", context="--memory-limit", hint="try 8")
