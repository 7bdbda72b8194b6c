"""Compile every operator of PyTorch's operator database for Metal beside the CPU, and count what came of it.

    python -m scripts.opinfo_compile [--dtype DTYPE ...] [--only PATTERN] [--report]

The first sample of every OpInfo that takes the dtype on the CPU goes through the side-compile of
``opcheck compile``, a few at a time in a fork with a time limit.  What is found is kept in
``build/opinfo_compile/DTYPE.json``; operators that stand there are not tried again unless
``--only`` names them.  ``--report`` writes ``reports/compile_opinfo.md`` from it.
"""

import argparse
import functools
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

from opcheck.common.files import write_text
from opcheck.features.compile.child.inductor_metal import SideCompiler, preload
from opcheck.features.compile.compile_records import SideGraph
from scripts.opinfo.ci import key
from scripts.opinfo.sweep import Row, group_reasons, list_operators, read_rows, shorten, sweep
from scripts.pages import page_text

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build" / "opinfo_compile"
REPORT = ROOT / "reports" / "compile_opinfo.md"
DTYPES = ("float32", "int64", "complex64")

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


class CompiledRow(Row, frozen=True, kw_only=True):
    """What came of one operator in one dtype."""

    #: kind and operator of what failed
    kind: str = ""
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
        attempt = functools.partial(_try, dtype=getattr(torch, dtype))
        sweep(_file(dtype), CompiledRow, list_operators(dtype), attempt, options.only)
    return int(any(row.result == "ended" for dtype in DTYPES for row in _kept(dtype).values()))


def _file(dtype: str) -> Path:
    return KEPT / f"{dtype}.json"


def _kept(dtype: str) -> dict[str, CompiledRow]:
    return read_rows(_file(dtype), CompiledRow)


def _try(op: Any, dtype: torch.dtype) -> CompiledRow:
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
            text = shorten(f"{type(error).__name__}: {error}")
            return CompiledRow(op=name, result="outside", kind=type(error).__name__, reason=text)
    return _row(name, side.graphs)


def _row(name: str, graphs: Sequence[SideGraph]) -> CompiledRow:
    failures = [failure for graph in graphs for failure in graph.failures]
    externs = tuple(sorted({extern.op for graph in graphs for extern in graph.externs}))
    if failures:
        worst = min(failures, key=lambda failure: failure.ours)
        return CompiledRow(
            op=name,
            result="ours" if worst.ours else "raised",
            kind=worst.kind,
            reason=shorten(worst.message),
            blamed=worst.op,
            externs=externs,
        )
    kernels = any(graph.kernels for graph in graphs)
    classes = {(True, False): "metal", (True, True): "mixed", (False, True): "eager"}
    return CompiledRow(op=name, result=classes.get((kernels, bool(externs)), "nothing"), externs=externs)


def _paragraphs(outcome: dict[str, dict[str, CompiledRow]]) -> Iterator[str]:
    yield page_text("compile_opinfo", torch=torch.__version__.partition("+")[0])
    rows = []
    for name, meaning in CLASSES.items():
        counts = [sum(row.result == name for row in outcome[dtype].values()) for dtype in DTYPES]
        rows.append((meaning, *counts))
    rows.append(("not tried yet", *(len(list_operators(dtype)) - len(outcome[dtype]) for dtype in DTYPES)))
    rows.append(("operators", *(len(list_operators(dtype)) for dtype in DTYPES)))
    yield tabulate(rows, headers=("", *DTYPES), tablefmt="github")
    for title, result in (
        ("What Inductor raised", "raised"),
        ("What failed for a reason of ours", "ours"),
        ("What failed before Inductor", "outside"),
        ("What ended the process", "ended"),
    ):
        table = sorted(
            (reason, dtype, ops) for dtype in DTYPES for reason, ops in group_reasons(outcome[dtype].values(), result)
        )
        if table:
            yield f"## {title}"
            yield tabulate(table, headers=("why", "dtype", "operators"), tablefmt="github")


if __name__ == "__main__":
    sys.exit(main())
