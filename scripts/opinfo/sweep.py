"""Tries each operator of PyTorch's operator database, and keeps what came of it between runs."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch

from opcheck.common.files import write_text
from scripts.opinfo.ci import key
from scripts.opinfo.forks import run_in_forks
from scripts.opinfo.record import op_db

#: operators a fork tries, and the seconds that each of them may take on the whole
CHUNK, SECONDS = 10, 60.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one operator."""

    op: str
    result: str
    reason: str = ""


AnyRow = TypeVar("AnyRow", bound=Row)


def list_operators(dtype: str) -> list[Any]:
    """Return the entries of the database that take a dtype on the CPU."""
    return [op for op in op_db() if getattr(torch, dtype) in op.supported_dtypes("cpu")]


def read_rows(path: Path, kind: type[AnyRow]) -> dict[str, AnyRow]:
    """Return what earlier runs kept, by operator."""
    rows: list[AnyRow] = []
    if path.is_file():
        rows = msgspec.json.decode(path.read_bytes(), type=list[kind])  # type: ignore[valid-type]
    return {row.op: row for row in rows}


def sweep(path: Path, kind: type[AnyRow], ops: Sequence[Any], attempt: Callable[[Any], AnyRow], only: str) -> None:
    """Try the operators that are not kept, or those whose name matches ``only``, and keep what comes of them."""
    done = read_rows(path, kind)
    wanted = [op for op in ops if (re.search(only, key(op)) if only else key(op) not in done)]
    path.parent.mkdir(parents=True, exist_ok=True)
    for made in run_in_forks(
        wanted,
        lambda some: [attempt(op) for op in some],
        list[kind],  # type: ignore[valid-type]
        lambda op, error: [kind(op=key(op), result="ended", reason=str(error))],
        chunk=CHUNK,
        seconds=SECONDS,
    ):
        done |= {row.op: row for row in made}
        # In the order of the database, whatever was tried first.
        rows = [done[key(op)] for op in ops if key(op) in done]
        write_text(path, msgspec.json.encode(rows).decode() + "\n")
        counts = Counter(row.result for row in rows)
        print(f"{path.stem}: {len(rows)} of {len(ops)}: {dict(counts)}", file=sys.stderr)


def shorten(text: str) -> str:
    """Return the beginning of a text, on a single line."""
    return " ".join(text.split())[:200]


def group_reasons(rows: Iterable[Row], result: str) -> list[tuple[str, str]]:
    """Return the reasons of one result as cells of a table, each with its operators."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.result == result:
            groups.setdefault(row.reason.replace("|", "\\|"), []).append(f"`{row.op}`")
    return [(reason, ", ".join(ops)) for reason, ops in sorted(groups.items())]
