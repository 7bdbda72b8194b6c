"""Compile every operator of PyTorch's operator database for Metal beside the CPU, and count what came of it.

    python -m scripts.opinfo_compile [--dtype DTYPE ...] [--only PATTERN] [--report]

The first sample of every OpInfo that takes the dtype on the CPU goes through the side-compile of
``opcheck compile``, a few at a time in a fork with a time limit.  What is found is kept in
``build/opinfo_compile/DTYPE.json``; operators that stand there are not tried again unless
``--only`` names them.  ``--report`` writes ``reports/compile_opinfo.md`` from it.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from tabulate import tabulate
from torch.testing._internal.common_methods_invocations import op_db

from opcheck.common.files import write_text
from opcheck.features.compile.child.inductor_metal import SideCompiler, preload
from opcheck.features.compile.compile_records import CompileFailure, SideGraph
from opcheck.worker.worker import WorkerError, run_forked
from scripts.opinfo.ci import key

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "opinfo_compile"
REPORT = ROOT / "reports" / "compile_opinfo.md"
DTYPES = ("float32", "int64", "complex64")

#: operators a fork tries, and the seconds that each of them may take on the whole
CHUNK, SECONDS = 12, 60.0

CLASSES = {
    "metal": "all of it Metal",
    "mixed": "Metal and eager operators",
    "eager": "eager operators only",
    "nothing": "views, or no graph",
    "raised": "Inductor raised",
    "ours": "failed for a reason of ours",
    "outside": "failed before Inductor",
    "ended": "ended the process",
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one operator in one dtype."""

    op: str
    result: str
    #: kind, message and operator of what failed
    kind: str = ""
    reason: str = ""
    blamed: str = ""
    externs: tuple[str, ...] = ()


def main() -> int:
    """Sweep, or write the report; 1 where an operator ended the process."""
    parser = argparse.ArgumentParser(description="OpInfo through Inductor's Metal backend.")
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--only", default="", help="operators whose name matches this pattern")
    parser.add_argument("--report", action="store_true", help="write the report")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.report:
        outcome = {dtype: _kept(dtype) for dtype in DTYPES}
        write_text(REPORT, "\n\n".join(_paragraphs(outcome)) + "\n")
        print(f"written to {REPORT.relative_to(ROOT)}")
        return 0
    preload()
    for dtype in options.dtype or DTYPES:
        _sweep(dtype, options.only)
    return int(any(row.result == "ended" for dtype in DTYPES for row in _kept(dtype).values()))


def _sweep(dtype: str, only: str) -> None:
    number = getattr(torch, dtype)
    done = _kept(dtype)
    ops = _ops(dtype)
    wanted = [op for op in ops if (re.search(only, key(op)) if only else key(op) not in done)]
    for start in range(0, len(wanted), CHUNK):
        for row in _chunk(wanted[start : start + CHUNK], number):
            done[row.op] = row
        KEPT.mkdir(parents=True, exist_ok=True)
        # In the order of the database, whatever was tried first.
        rows = [done[key(op)] for op in ops if key(op) in done]
        write_text(KEPT / f"{dtype}.json", msgspec.json.encode(rows).decode() + "\n")
        counts = Counter(row.result for row in rows)
        print(f"{dtype}: {len(rows)} of {len(ops)}: {dict(counts)}", file=sys.stderr)


def _ops(dtype: str) -> list[Any]:
    number = getattr(torch, dtype)
    database: Sequence[Any] = op_db  # torch gives it no types
    return [op for op in database if number in op.supported_dtypes("cpu")]


def _kept(dtype: str) -> dict[str, Row]:
    file = KEPT / f"{dtype}.json"
    rows = msgspec.json.decode(file.read_bytes(), type=list[Row]) if file.is_file() else []
    return {row.op: row for row in rows}


def _chunk(ops: Sequence[Any], dtype: torch.dtype) -> list[Row]:
    """The operators together; one by one where their process ended."""
    try:
        return run_forked(lambda: [_try(op, dtype) for op in ops], list[Row], SECONDS * len(ops))
    except WorkerError as error:
        if len(ops) > 1:
            return [row for op in ops for row in _chunk([op], dtype)]
        return [Row(op=key(ops[0]), result="ended", reason=str(error))]


def _try(op: Any, dtype: torch.dtype) -> Row:
    name = key(op)
    side = SideCompiler()
    torch.compiler.reset()
    try:
        torch.manual_seed(0)
        sample = next(iter(op.sample_inputs("cpu", dtype)))
        program = lambda *args, **kwargs: op(*args, **kwargs)  # noqa: E731, PLW0108 - an OpInfo is no function
        compiled = torch.compile(program, backend=side)
        with torch.no_grad():
            compiled(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:  # noqa: BLE001 - whatever the operator or Dynamo raises
        if not any(graph.failures for graph in side.graphs):
            text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return Row(op=name, result="outside", kind=type(error).__name__, reason=text)
    return _row(name, side.graphs)


def _row(name: str, graphs: Sequence[SideGraph]) -> Row:
    failures = [failure for graph in graphs for failure in graph.failures]
    externs = tuple(sorted({extern.op for graph in graphs for extern in graph.externs}))
    if failures:
        worst = min(failures, key=lambda failure: failure.ours)
        return Row(
            op=name,
            result="ours" if worst.ours else "raised",
            kind=worst.kind,
            reason=_short(worst),
            blamed=worst.op,
            externs=externs,
        )
    kernels = any(graph.kernels for graph in graphs)
    classes = {(True, False): "metal", (True, True): "mixed", (False, True): "eager"}
    return Row(op=name, result=classes.get((kernels, bool(externs)), "nothing"), externs=externs)


def _short(failure: CompileFailure) -> str:
    return " ".join(failure.message.split())[:200]


def _paragraphs(outcome: dict[str, dict[str, Row]]) -> Iterator[str]:
    yield "# PyTorch's operators through Inductor's Metal backend"
    yield (
        "The first sample of every operator of PyTorch's operator database (torch "
        f"{torch.__version__.partition('+')[0]}) that takes the "
        "dtype on the CPU, compiled for Metal beside the CPU, as `scripts/opinfo_compile.py` "
        "counted it. One sample an operator "
        "proves nothing about the others. Nothing was compiled by Metal, nothing ran on a Mac, "
        "and an eager operator needs a kernel of its own there."
    )
    rows = []
    for name, meaning in CLASSES.items():
        counts = [sum(row.result == name for row in outcome[dtype].values()) for dtype in DTYPES]
        rows.append((meaning, *counts))
    rows.append(("not tried yet", *(len(_ops(dtype)) - len(outcome[dtype]) for dtype in DTYPES)))
    rows.append(("operators", *(len(_ops(dtype)) for dtype in DTYPES)))
    yield tabulate(rows, headers=("", *DTYPES), tablefmt="github")
    for title, result in (
        ("What Inductor raised", "raised"),
        ("What failed for a reason of ours", "ours"),
        ("What failed before Inductor", "outside"),
        ("What ended the process", "ended"),
    ):
        table = list(_failed(outcome, result))
        if table:
            yield f"## {title}"
            yield tabulate(table, headers=("why", "dtype", "operators"), tablefmt="github")


def _failed(outcome: dict[str, dict[str, Row]], result: str) -> Iterator[tuple[str, str, str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for dtype in DTYPES:
        for row in outcome[dtype].values():
            if row.result == result:
                groups.setdefault((row.reason.replace("|", "\\|"), dtype), []).append(f"`{row.op}`")
    for (reason, dtype), ops in sorted(groups.items()):
        yield reason, dtype, ", ".join(ops)


if __name__ == "__main__":
    sys.exit(main())
