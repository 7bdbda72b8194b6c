"""Trying one variant of torch.compile on a real module: what Dynamo did, and how far the result is from eager.

Private: the counters, graph_break_reasons and compilation metrics of torch._dynamo.utils.  Tried on torch 2.13.0.
"""

from __future__ import annotations

import copy
import re
import time
import traceback
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from opcheck.capture.lines import display_path, innermost, is_user_code
from opcheck.compile.inductor_metal import SideCompiler
from opcheck.compile.records import (
    Difference,
    Failure,
    GraphBreak,
    Recompile,
    SideGraph,
    Tried,
    Variant,
)
from opcheck.model import SourceLocation

if TYPE_CHECKING:
    from collections.abc import Iterator

#: an error of the compiled program is allowed to be so many times the eager one's, both against float64.
_TIMES = 4.0
#: and so many units of the dtype's own precision, where eager happens to be nearer
_UNITS = 8.0

_GB = re.compile(r"gb(?P<number>\d{4})\.html")
_HINT = re.compile(r"^\s*Hint: (?P<hint>.+)$", re.MULTILINE)


class Program(NamedTuple):
    """What is compiled: a module on the CPU and the arguments of one call."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Run(NamedTuple):
    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]


def attempt(program: Program, variant: Variant, device: str = "cpu") -> Tried:
    """Compile and run one variant in this process, with real values.

    The program runs eagerly in the variant's dtype and in float64 first: their distance is the tolerance.
    """
    dtype = getattr(torch, variant.dtype)
    placed = _placed(program, dtype, device)
    exact = _run(_placed(program, torch.float64, device), variant.training)
    eager = _run(placed, variant.training)
    side = SideCompiler() if variant.metal else None
    _forget()
    module = copy.deepcopy(placed.module)
    found = Tried(variant=variant, outcome="fails")
    try:
        with torch._inductor.config.patch(fallback_random=True):
            compiled: Any = torch.compile(module, **_arguments(variant, side))
            start = time.perf_counter()
            result = _run(placed._replace(module=compiled), variant.training)
            first = time.perf_counter() - start
            start = time.perf_counter()
            _run(placed._replace(module=compiled), variant.training)
            seconds = max(0.0, first - (time.perf_counter() - start))
            larger = _larger(placed._replace(module=compiled))
            if larger is not None:
                _run(larger, variant.training)
    except Exception as error:  # noqa: BLE001 - whatever compiling user code raises
        return _told(found, failure=_failure(error), side=side)
    outputs = _difference(result.outputs, eager.outputs, exact.outputs, dtype)
    gradients = _difference(result.gradients, eager.gradients, exact.gradients, dtype)
    return _told(found, seconds=seconds, outputs=outputs, gradients=gradients, side=side)


def _arguments(variant: Variant, side: SideCompiler | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "backend": side or variant.backend,
        "fullgraph": variant.fullgraph,
        "dynamic": variant.dynamic,
    }
    return arguments | ({"mode": variant.mode} if variant.mode else {})


def _placed(program: Program, dtype: torch.dtype, device: str) -> Program:
    """A copy of the program in this dtype."""

    def place(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    module = copy.deepcopy(program.module).to(device=device)
    module = module.to(dtype=dtype)
    args, kwargs = tree_map_only(torch.Tensor, place, (program.args, program.kwargs))
    return Program(module, args, kwargs)


def _larger(program: Program) -> Program | None:
    """The same with one more in the first dimension, where all inputs share it: what a recompile is found by."""
    tensors = [leaf for leaf in tree_leaves((program.args, program.kwargs)) if _has_batch(leaf)]
    if not tensors or len({tensor.shape[0] for tensor in tensors}) != 1:
        return None
    args, kwargs = tree_map_only(
        torch.Tensor,
        lambda tensor: torch.cat([tensor, tensor[:1]]) if _has_batch(tensor) else tensor,
        (program.args, program.kwargs),
    )
    return program._replace(args=args, kwargs=kwargs)


def _has_batch(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 1


def _run(program: Program, training: bool) -> _Run:  # noqa: FBT001 - a variant's own field
    torch.manual_seed(0)
    program.module.train(training)
    program.module.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(training):
        result = program.module(*program.args, **program.kwargs)
    outputs = [leaf for leaf in tree_leaves(_plain(result)) if isinstance(leaf, torch.Tensor)]
    if not training:
        return _Run(outputs, [])
    losses = [_mean_square(output) for output in outputs if output.requires_grad]
    if losses:
        sum(losses[1:], start=losses[0]).backward()
    gradients = [p.grad for p in program.module.parameters() if p.grad is not None]
    return _Run([output.detach() for output in outputs], gradients)


def _plain(result: Any) -> Any:
    """The output of a library's own class as a container that can be walked."""
    return dict(result) if hasattr(result, "keys") and not isinstance(result, dict) else result


def _mean_square(output: torch.Tensor) -> torch.Tensor:
    value = torch.view_as_real(output) if output.is_complex() else output
    return value.float().square().mean()


def _difference(
    compiled: list[torch.Tensor],
    eager: list[torch.Tensor],
    exact: list[torch.Tensor],
    dtype: torch.dtype,
) -> Difference | None:
    """The largest over the tensors; None where there is none to compare."""
    worst = None
    for one, other, reference in zip(compiled, eager, exact, strict=False):
        if not reference.is_floating_point() or one.shape != reference.shape:
            continue
        mine, its = _distance(one, reference), _distance(other, reference)
        allowed = max(_TIMES * its, _UNITS * torch.finfo(dtype).eps)
        found = Difference(compiled=mine, eager=its, allowed=allowed)
        if worst is None or not mine / allowed <= worst.compiled / worst.allowed:
            worst = found
    return worst


def _distance(value: torch.Tensor, reference: torch.Tensor) -> float:
    both = torch.isfinite(reference)
    if not torch.equal(torch.isfinite(value), both):
        return float("nan")
    difference = (value.double() - reference.double())[both]
    scale = reference.double()[both].square().mean().sqrt().item() if both.any() else 0.0
    error = difference.square().mean().sqrt().item() if both.any() else 0.0
    return error / scale if scale else error


# -- what Dynamo says ---------------------------------------------------------------------------------------


def _forget() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.graph_break_reasons.clear()
    torch._dynamo.utils.clear_compilation_metrics()


def _told(found: Tried, *, side: SideCompiler | None, **fields: Any) -> Tried:
    """The record with what Dynamo counted."""
    utils = torch._dynamo.utils
    graphs = utils.counters["stats"]["unique_graphs"]
    frames = utils.counters["frames"]
    recompiles = Counter(_guard(metric) for metric in utils.get_compilation_metrics())
    recompiles.pop("", None)
    compiled: tuple[SideGraph, ...] = tuple(side.graphs) if side else ()
    tried = msgspec.structs.replace(
        found,
        graphs=graphs,
        breaks=tuple(_breaks()),
        recompiles=tuple(Recompile(guard=guard, count=n) for guard, n in recompiles.items()),
        skipped=max(0, frames["total"] - frames["ok"]),
        side=compiled,
        **fields,
    )
    return msgspec.structs.replace(tried, outcome=_outcome(tried))


def _outcome(tried: Tried) -> str:
    if tried.failure is not None or any(graph.failures for graph in tried.side):
        return "fails"
    if not tried.graphs:
        return "nothing compiled"
    differences = [one for one in (tried.outputs, tried.gradients) if one is not None]
    return "works" if all(one.agrees for one in differences) else "differs"


def _guard(metric: Any) -> str:
    reason = getattr(metric, "recompile_reason", None) or ""
    return str(reason).partition(": ")[2] or str(reason)


def _breaks() -> Iterator[GraphBreak]:
    counted: Counter[GraphBreak] = Counter()
    for reason in torch._dynamo.utils.graph_break_reasons:
        number = _GB.search(reason.reason)
        counted[
            GraphBreak(
                reason=reason.reason.splitlines()[0].strip(),
                id=f"GB{number['number']}" if number else "",
                hints=tuple(match["hint"] for match in _HINT.finditer(reason.reason)),
                location=_user_line(reason.user_stack),
            )
        ] += 1
    for found, count in counted.items():
        yield msgspec.structs.replace(found, count=count)


def _user_line(stack: Any) -> SourceLocation | None:
    for frame in reversed(list(stack)):
        if is_user_code(frame.filename):
            return SourceLocation(
                file=display_path(frame.filename),
                line=frame.lineno or 0,
                function=frame.name,
                text=(frame.line or "").strip(),
            )
    return None


def _failure(error: Exception) -> Failure:
    text = str(error)
    name = type(error).__name__
    kinds = {"InvalidBackend": "backend", "Unsupported": "graph_break", "UserError": "graph_break"}
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return Failure(
        kind=kinds.get(name, "compile"),
        message=f"{name}: {first}"[:500],
        location=innermost(text) or _traced(error),
    )


def _traced(error: BaseException) -> SourceLocation | None:
    return _user_line(traceback.extract_tb(error.__traceback__))
