"""Compare the span, the dtypes and the condition of a statement with its own evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opcheck.common.names import DTYPES
from opcheck.common.versions import Span, Version
from opcheck.data.conditions import RESULT
from opcheck.data.matching import matches_call
from opcheck.data.statement_model import Arguments, Statement
from opcheck.model.records import OpCall, TensorSpec

#: The releases whose library contains a text or a check, as the detail of an entry words them.
_RANGE = re.compile(
    r"\b(?:present|throws|raises)\b[^;]*?\b(\d+\.\d+)(?:\.\d+)? (?:to|and) (\d+\.\d+)\b"
)
#: A tensor as a report's call writes it: ``float16[1, 77, 768]``, with ``@cpu`` where it is not on the GPU.
_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\](?:@(?P<device>\w+))?(?: offset (?P<offset>\d+))?"
)


def disagreements(
    statement: Statement, lines: Sequence[Version], arguments: Mapping[str, Arguments]
) -> Iterator[tuple[str, str]]:
    """Yield where a statement and its evidence disagree: the key of the statement, and the message.

    Args:
        statement: the statement.
        lines: the release lines that are known, in order.
        arguments: the arguments of each operator's schema.
    """
    if statement.fixed and _end(statement.fixed, lines) != statement.torch.until:
        yield "fixed", f"fixed in {statement.fixed}, but the span ends at {statement.torch.until}"
    for index, entry in enumerate(statement.evidence):
        key = f"evidence.{index}"
        for release in entry.reported:
            if _line(release) not in statement.torch:
                yield f"{key}.reported", f"reported on {release}, outside of the span"
        if entry.mended and _end(entry.mended, lines) != statement.torch.until:
            ends = f"but the span ends at {statement.torch.until}"
            yield f"{key}.mended", f"mended in {entry.mended}, {ends}"
        match = _RANGE.search(entry.detail) if entry.kind == "binary" else None
        if match and not _contains(match[1], match[2], statement.torch, lines):
            yield f"{key}.detail", f"the library shows {match[1]} to {match[2]}, the span is wider"
        if entry.call:
            yield from ((f"{key}.call", text) for text in _call(statement, entry.call, arguments))


def _call(
    statement: Statement, written: Mapping[str, Any], arguments: Mapping[str, Arguments]
) -> Iterator[str]:
    """Yield what is wrong with the reported call: it cannot be read, or the statement does not apply to it."""
    tensors: list[TensorSpec] = []
    values: dict[str, Any] = {}
    for name, value in written.items():
        every = value if isinstance(value, list) else [value]
        texts = [text for text in every if isinstance(text, str)]
        specs = [spec for text in texts if (spec := _tensor(name, text)) is not None]
        if len(specs) == len(every):
            tensors += specs
        elif any("[" in text for text in texts):
            yield f"{name} is no tensor such as float16[2, 3]: {value}"
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    outputs = tuple(spec for spec in tensors if spec.argument == RESULT)
    inputs = tuple(spec for spec in tensors if spec.argument != RESULT)
    op = statement.ops[0]
    call = OpCall(op=op, inputs=inputs, outputs=outputs, arguments=values)
    if matches_call(statement, call, arguments.get(op)) is False:
        yield "the statement does not apply to the reported call"


def _tensor(name: str, text: str) -> TensorSpec | None:
    match = _TENSOR.fullmatch(text)
    if match is None or match["dtype"] not in DTYPES:
        return None
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    return TensorSpec(
        tensor=0,
        storage=0,
        dtype=match["dtype"],
        shape=shape,
        stride=tuple(math.prod(shape[place + 1 :]) for place in range(len(shape))),
        offset=int(match["offset"] or 0),
        device=match["device"] or "mps",
        argument=name,
    )


def _line(release: str) -> Version:
    return Version.parse(".".join(release.split(".")[:2]))


def _end(release: str, lines: Sequence[Version]) -> Version | None:
    """Return where a span ends that a release mends: its line, or the next line for a patch release of 1 and more."""
    line = _line(release)
    if release.count(".") < 2 or release.endswith(".0"):
        return line
    return next((later for later in lines if later > line), None)


def _contains(first: str, last: str, span: Span, lines: Sequence[Version]) -> bool:
    until = next((line for line in lines if line > _line(last)), None)
    starts = span.since is not None and span.since >= _line(first)
    ends = until is None or (span.until is not None and span.until <= until)
    return starts and ends
