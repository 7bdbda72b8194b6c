"""Recorded processes: what a child on a Mac would leave behind, for the parent to read without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from opcheck.device.observe.recording import End, Line, ObserveRequest, RecordedRow, Start
from opcheck.model.records import SourceLocation
from opcheck.worker.protocol import seal

START = Start(torch="2.13.0", macos="15.3.2", machine="Apple M2", build="24D81")


def row(number: int, op: str, line: int = 1, **others: object) -> RecordedRow:
    content = {
        "number": number,
        "op": op,
        "dtypes": ("float32",),
        "devices": ("mps",),
        "shapes": ((2, 3),),
        "location": SourceLocation(file="train.py", line=line, function="step", text="y = f(x)"),
        **others,
    }
    return RecordedRow(**content)  # type: ignore[arg-type]


class Process:
    """A starter for opcheck.device.observe.observed_run.run; keeps the environment that it was given."""

    def __init__(self, *lines: Line, log: str = "", code: int = 0) -> None:
        self._lines = lines
        self._log = log
        self._code = code
        self.environment: dict[str, str] = {}

    def __call__(self, file: Path, environment: Mapping[str, str], keep: Callable[[bytes], None]) -> int:
        self.environment = dict(environment)
        request = msgspec.json.decode(file.read_bytes(), type=ObserveRequest)
        encoded = [seal(line, request.secret) for line in self._lines]
        Path(request.answer).write_bytes(b"".join(encoded))
        keep(self._log.encode())
        return self._code


def end(counts: Mapping[int, int], **others: object) -> End:
    content = {"exit_code": 0, "counts": dict(counts), **others}
    return End(**content)  # type: ignore[arg-type]


def during(number: int, *lines: str) -> str:
    """What is printed while a call is made, between the recorder's marks."""
    return f"\x1e{number}<\x1e" + "".join(f"{line}\n" for line in lines) + f"\x1e{number}>\x1e"


def fell(op: str, run: int = 1) -> str:
    return f"CPU Fallback::{op}:MPS:Float[2, 3] (id=1, run={run}, CopyOverhead=24 bytes)"
