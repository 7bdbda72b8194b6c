"""Compile every operator of PyTorch's operator database for Metal beside the CPU, and count what came of it.

    python -m scripts.opinfo_compile [--dtype DTYPE ...] [--only PATTERN] [--report]

The first sample of every OpInfo that takes the dtype on the CPU goes through the side-compile of
``opcheck compile``, a few at a time in a fork with a time limit.  What is found is kept in
``build/opinfo_compile/DTYPE.json``; operators that stand there are not tried again unless
``--only`` names them.  ``--report`` writes ``reports/compile_opinfo.md`` from it.
"""

import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tabulate import tabulate

from opcheck.features.compile.child.inductor_metal import SideCompiler, preload
from opcheck.features.compile.compile_records import SideGraph
from scripts.opinfo.ci import key
from scripts.opinfo.sweep import Row, Sweep, group_reasons, results_of, run_sweeps, section, shorten
from scripts.pages import ROOT, page_text

REPORT = ROOT / "reports" / "compile_opinfo.md"
DTYPES = ("float32", "int64", "complex64")


class CompiledRow(Row, frozen=True, kw_only=True):
    """What came of one operator in one dtype."""

    #: kind and operator of what failed
    kind: str = ""
    blamed: str = ""
    externs: tuple[str, ...] = ()


def _try(op: Any, dtype: str) -> CompiledRow:
    name = key(op)
    side = SideCompiler()
    torch.compiler.reset()
    try:
        torch.manual_seed(0)
        sample = next(iter(op.sample_inputs("cpu", getattr(torch, dtype))))
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


SWEEPS = {
    dtype: Sweep(
        path=ROOT / "build" / "opinfo_compile" / f"{dtype}.json",
        kind=CompiledRow,
        dtype=dtype,
        attempt=functools.partial(_try, dtype=dtype),
    )
    for dtype in DTYPES
}


def _paragraphs() -> Iterator[str]:
    yield page_text("compile_opinfo", torch=torch.__version__.partition("+")[0])
    results = results_of("compile")
    outcome = {dtype: sweep.rows() for dtype, sweep in SWEEPS.items()}
    rows = []
    for name, meaning in results["counted"].items():
        counts = [sum(row.result == name for row in outcome[dtype].values()) for dtype in DTYPES]
        rows.append((meaning, *counts))
    numbers = {dtype: len(sweep.operators()) for dtype, sweep in SWEEPS.items()}
    rows.append(("not tried yet", *(numbers[dtype] - len(outcome[dtype]) for dtype in DTYPES)))
    rows.append(("operators", *numbers.values()))
    yield tabulate(rows, headers=("", *DTYPES), tablefmt="github")
    for result, title in results["listed"].items():
        table = sorted(
            (reason, dtype, ops) for dtype in DTYPES for reason, ops in group_reasons(outcome[dtype].values(), result)
        )
        yield from section(title, ("why", "dtype", "operators"), table)


if __name__ == "__main__":
    sys.exit(run_sweeps("OpInfo through Inductor's Metal backend.", SWEEPS, REPORT, _paragraphs, preload))
