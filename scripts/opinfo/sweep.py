"""Tries each operator of PyTorch's operator database, and keeps what came of it between runs."""

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import torch

from opcheck.common.files import write_text
from scripts.opinfo.ci import key
from scripts.opinfo.forks import run_in_forks
from scripts.opinfo.record import op_db
from scripts.pages import ROOT, aligned_table

#: operators a fork tries, and the seconds that each of them may take on the whole
CHUNK, SECONDS = 10, 60.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one operator."""

    op: str
    result: str
    reason: str = ""


AnyRow = TypeVar("AnyRow", bound=Row)


@dataclass(frozen=True, kw_only=True)
class Sweep(Generic[AnyRow]):
    """The operators that take a dtype on the CPU, what tries one of them, and the file that keeps what came of them."""

    path: Path
    kind: type[AnyRow]
    dtype: str
    attempt: Callable[[Any], AnyRow]

    def operators(self) -> list[Any]:
        """Return the entries of the database that take the dtype."""
        return [op for op in op_db() if getattr(torch, self.dtype) in op.supported_dtypes("cpu")]

    def rows(self) -> dict[str, AnyRow]:
        """Return what earlier runs kept, by operator."""
        rows: list[AnyRow] = []
        if self.path.is_file():
            rows = msgspec.json.decode(self.path.read_bytes(), type=list[self.kind])  # type: ignore[name-defined]
        return {row.op: row for row in rows}

    def run(self, only: str) -> None:
        """Try the operators that are not kept, or those whose name matches ``only``, and keep what comes of them."""
        ops, done = self.operators(), self.rows()
        wanted = [op for op in ops if (re.search(only, key(op)) if only else key(op) not in done)]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for made in run_in_forks(
            wanted,
            lambda some: [self.attempt(op) for op in some],
            list[self.kind],  # type: ignore[name-defined]
            lambda op, error: [self.kind(op=key(op), result="ended", reason=str(error))],
            chunk=CHUNK,
            seconds=SECONDS,
        ):
            done |= {row.op: row for row in made}
            # In the order of the database, whatever was tried first.
            rows = [done[key(op)] for op in ops if key(op) in done]
            write_text(self.path, msgspec.json.encode(rows).decode() + "\n")
            counts = Counter(row.result for row in rows)
            print(f"{self.path.stem}: {len(rows)} of {len(ops)}: {dict(counts)}", file=sys.stderr)


def results_of(sweep: str) -> dict[str, dict[str, str]]:
    """Return the entry of a sweep in sweep_results.yaml, which states what it has."""
    path = Path(__file__).with_name("sweep_results.yaml")
    return msgspec.yaml.decode(path.read_bytes(), type=dict[str, dict[str, dict[str, str]]])[sweep]


def run_sweeps(
    description: str,
    sweeps: Mapping[str, Sweep[Any]],
    page: Path,
    paragraphs: Callable[[], Iterable[str]],
    *prepare: Callable[[], None],
) -> int:
    """Run the command of a script: sweep, or write the page; return 1 where an operator ended the process.

    Args:
        description: of the command.
        sweeps: by dtype; ``--dtype`` chooses where there are several.
        page: where ``--report`` writes.
        paragraphs: makes the page.
        prepare: what all operators need, called once before the forks.
    """
    parser = argparse.ArgumentParser(description=description)
    if len(sweeps) > 1:
        parser.add_argument("--dtype", action="append", choices=sweeps)
    parser.add_argument("--only", default="", help="operators whose name matches this pattern")
    parser.add_argument("--report", action="store_true", help="write the report")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.report:
        write_text(page, "\n\n".join(paragraphs()) + "\n")
        print(f"written to {page.relative_to(ROOT)}")
        return 0
    for function in prepare:
        function()
    for dtype in vars(options).get("dtype") or sweeps:
        sweeps[dtype].run(options.only)
    return int(any(row.result == "ended" for sweep in sweeps.values() for row in sweep.rows().values()))


def section(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a heading and a table; nothing without rows."""
    if rows:
        yield f"## {title}"
        yield aligned_table(headers, rows)


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
