"""Read and run the Metal kernels of PyTorch's operator database, and count how near they come to eager.

    python -m scripts.run_kernels [--only PATTERN] [--report]

The first sample of every OpInfo in float32 is compiled for Metal; its kernels are checked by Clang
and run on the CPU in Metal's place, a few operators at a time in a fork with a time limit.  What is
found is kept in ``build/run_kernels.json``; operators that stand there are not tried again unless
``--only`` names them. ``--report`` writes ``reports/compile_kernels.md`` from it.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from tabulate import tabulate
from torch._inductor import config as inductor
from torch.utils._pytree import tree_leaves

from opcheck.features.compile.check.metal_check import NOT_PROVEN as NOT_CHECKED
from opcheck.features.compile.check.metal_check import check
from opcheck.features.compile.child.cpu_kernels import CpuKernel
from opcheck.features.compile.child.inductor_metal import SideCompiler, preload
from opcheck.features.compile.metal_runner import NOT_PROVEN as NOT_RUN
from opcheck.features.compile.metal_runner import prepare
from scripts.opinfo.ci import key
from scripts.opinfo.sweep import Row, Sweep, group_reasons, results_of, run_sweeps, section, shorten
from scripts.pages import ROOT, page_text

REPORT = ROOT / "reports" / "compile_kernels.md"

#: of the largest value that eager gives
ALLOWED = 1e-4

#: What they give is not defined.
UNDEFINED = re.compile(r"(new_)?empty(_like|_strided|_permuted)?$")


class KernelRow(Row, frozen=True, kw_only=True):
    """What came of one operator."""

    kernels: int = 0
    #: the largest difference over the largest value of eager; none where it is not a number
    error: float | None = 0.0
    #: that largest value
    largest: float = 0.0
    #: what Clang finds wrong
    refused: tuple[str, ...] = ()


def _try(op: Any) -> KernelRow:
    side = SideCompiler(run_metal=True)
    torch.compiler.reset()
    CpuKernel.called = 0
    torch.manual_seed(0)
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))

    def call(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    def values(function: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        with torch.no_grad():
            result = function(sample.input, *sample.args, **sample.kwargs)
        return [leaf.clone() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]

    result, reason, error, largest = "agrees", "", 0.0, 0.0
    try:
        eager = values(call)
        with inductor.patch(fallback_random=True):
            ran = values(torch.compile(call, backend=side))
        error, largest = max(map(_error, ran, eager), default=(0.0, 0.0))
    except Exception as raised:  # noqa: BLE001 - whatever the operator, Dynamo or a kernel raises
        result, reason = "raised", shorten(f"{type(raised).__name__}: {raised}")
    failures = [failure for graph in side.graphs for failure in graph.failures]
    if failures:
        result, reason = "not compiled", shorten(failures[0].message)
    elif result == "agrees" and not CpuKernel.called:
        result = "no kernel"
    elif result == "agrees" and UNDEFINED.match(key(op)):
        result = "undefined"
    elif result == "agrees" and not error <= ALLOWED:
        result = "differs"
    return KernelRow(
        op=key(op),
        result=result,
        reason=reason,
        kernels=sum(len(graph.kernels) for graph in side.graphs),
        error=error if math.isfinite(error) else None,
        largest=largest,
        refused=tuple(shorten(item.message) for graph in side.graphs for item in check(graph)),
    )


def _error(ran: torch.Tensor, eager: torch.Tensor) -> tuple[float, float]:
    """The largest difference over the largest value of eager, and that; what is not finite must be the same."""
    if ran.shape != eager.shape or ran.dtype != eager.dtype:
        return float("inf"), 0.0
    complex_too = torch.complex128 if eager.is_complex() else torch.float64
    tensor, other = ran.to(complex_too), eager.to(complex_too)
    finite = torch.isfinite(other)
    if not torch.equal(tensor[~finite].nan_to_num(0.5), other[~finite].nan_to_num(0.5)):
        return float("inf"), 0.0
    if not finite.any():
        return 0.0, 0.0
    scale = other[finite].abs().max().item()
    difference = (tensor - other)[finite].abs().max().item()
    if math.isnan(difference):
        return float("inf"), scale
    return (difference / scale if scale else difference), scale


SWEEP = Sweep(path=ROOT / "build" / "run_kernels.json", kind=KernelRow, dtype="float32", attempt=_try)


def _paragraphs() -> Iterator[str]:
    rows, results = list(SWEEP.rows().values()), results_of("kernels")
    ran = [row for row in rows if row.result in {"agrees", "differs", "undefined"}]
    yield page_text("compile_kernels", torch=torch.__version__.partition("+")[0])
    counts = Counter(row.result for row in rows)
    table = [(meaning.format(allowed=ALLOWED), counts[name]) for name, meaning in results["counted"].items()]
    yield tabulate([*table, ("operators", len(rows))], headers=("", "float32"), tablefmt="github")
    refused = [row for row in rows if row.refused]
    kernels = sum(row.kernels for row in rows)
    yield (
        f"{sum(row.kernels for row in ran)} kernels of {len(ran)} operators ran. "
        f"Of {kernels} kernels that Inductor wrote, Clang finds something wrong in those of {len(refused)} operators."
    )
    yield f"Not proven:\n\n- {NOT_CHECKED}\n- {NOT_RUN}"
    far = [(f"`{row.op}`", _by(row)) for row in rows if row.result == "differs"]
    yield from section("Farther from eager", ("operator", "by, of what"), far)
    texts = [(f"`{row.op}`", why.replace("|", "\\|")) for row in refused for why in row.refused]
    yield from section("What Clang refuses", ("operator", "why"), texts)
    for result, title in results["listed"].items():
        yield from section(title, ("why", "operators"), group_reasons(rows, result))


def _by(row: KernelRow) -> str:
    if row.error is None:
        return "another shape, or not finite where eager is"
    return f"{row.error:.0%} of {row.largest:.0e}"


if __name__ == "__main__":
    description = "OpInfo's Metal kernels, checked and run."
    sys.exit(run_sweeps(description, {"float32": SWEEP}, REPORT, _paragraphs, preload, prepare))
