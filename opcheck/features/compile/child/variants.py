"""Tries one variant of torch.compile on a real module: whether it compiles, and how far it is from eager."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from opcheck.features.compile.child import dynamo
from opcheck.features.compile.child.inductor_metal import SideCompiler
from opcheck.features.compile.child.numerics import (
    ProgramCall,
    Results,
    difference,
    larger,
    once,
    place_program,
)
from opcheck.features.compile.plan import AOTINDUCTOR
from opcheck.features.compile.records import CompileFailure, TriedVariant, Variant
from opcheck.tracing.torch_private import compilation

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Program", "attempt"]


def attempt(program: ProgramCall, variant: Variant, device: str = "cpu") -> TriedVariant:
    """Compile and run one variant in this process, with real values.

    Twice with the inputs as they are, then with a larger batch, where the program takes one.  Where results are
    compared, it runs eagerly in the variant's dtype and in float64 first: their distance is the tolerance.  Metal's
    kernels do not run here, so that it runs eagerly only where compiling raised, to see whether it does as well.
    """
    # A fork has none of the threads that OpenMP believes to have.
    torch.set_num_threads(1)
    tried = TriedVariant(variant=variant, outcome="fails")
    there = place_program(program, getattr(torch, variant.dtype), device)
    # A program may change itself: a training step does.
    fresh = there._replace(module=copy.deepcopy(there.module))
    if not variant.metal:
        eager, problem = _eager(there, variant)
        if eager is None:
            return TriedVariant(variant=variant, outcome="could not tell", failure=problem)
        exact = _exactly(program, variant, device)
        tried = _compile_and_run(tried, fresh, eager, exact)
        if tried.outcome == "differs" and "numpy" in sys.modules:
            # Dynamo draws the numbers of numpy.random from torch's generator, which gives others: hold it against
            # eager with NumPy's own, at the price of a graph break that is not the program's.
            with compilation.numpy_draws():
                other = _compile_and_run(
                    tried,
                    place_program(program, getattr(torch, variant.dtype), device),
                    eager,
                    exact,
                )
            if other.outcome in {"works", "one shape only"}:
                tried = msgspec.structs.replace(
                    tried, outcome=other.outcome, outputs=other.outputs, gradients=other.gradients
                )
        return tried
    with _as_on_mps(variant):
        tried = _compile_and_run(tried, fresh, None, None)
        problem = None if tried.failure is None else _eager(there, variant)[1]
        if problem is None or tried.outcome != "fails":
            return tried
        # Of the CPU's kernels, which may lack a dtype that those of MPS have.
        return TriedVariant(variant=variant, outcome="could not tell", failure=problem)


def _eager(program: ProgramCall, variant: Variant) -> tuple[Results | None, CompileFailure | None]:
    """Run without torch.compile; return the results, or what was raised."""
    try:
        return once(program, training=variant.training), None
    except Exception as error:  # noqa: BLE001 - user code
        return None, _of_the_program(error)


def _of_the_program(error: Exception) -> CompileFailure:
    failure = dynamo.failure(error, "model")
    message = f"without torch.compile, too, in this dtype and on this machine: {failure.message}"
    return msgspec.structs.replace(failure, kind="model", message=message)


def _compile_and_run(
    tried: TriedVariant, there: ProgramCall, eager: Results | None, exact: Results | None
) -> TriedVariant:
    variant = tried.variant
    # What is random is drawn as eager draws it, so that it can be compared; Metal's kernels draw their own way.
    config = {} if variant.metal else {"fallback_random": True}
    side = side_compiler(variant) if variant.metal else None
    dynamo.forget()
    result = failure = again = None
    seconds = 0.0
    with compilation.inductor_config(config):
        try:
            module: Any = torch.compile(there.module, **_arguments(variant, side))
            compiled = there._replace(module=module)
            result, first = _time_once(compiled, variant)
            _, second = _time_once(compiled, variant)
            seconds = max(0.0, first - second)
        except Exception as error:  # noqa: BLE001 - whatever compiling user code raises
            failure = dynamo.failure(error)
        graphs, own = dynamo.graphs(), len(side.graphs) if side else 0
        recompiles = dynamo.recompiles()
        # AOTInductor compiles once.
        once_only = failure is not None or variant.backend == AOTINDUCTOR
        more = None if once_only else larger(there)
        if more is not None:
            try:
                once(more._replace(module=module), training=variant.training)
                recompiles = dynamo.recompiles()
            except Exception as error:  # noqa: BLE001 - as above
                # A program may take one batch size alone.
                if _eager(more, variant)[0] is not None:
                    again, recompiles = dynamo.failure(error), dynamo.recompiles()
                elif side:
                    del side.graphs[own:]
    finished = msgspec.structs.replace(
        tried,
        graphs=graphs,
        breaks=dynamo.breaks(),
        recompiles=recompiles,
        skipped=dynamo.count_skipped(),
        seconds=seconds,
        failure=failure or again,
        side=tuple(side.graphs[:own]) if side else (),
        side_again=tuple(side.graphs[own:]) if side else (),
    )
    if result is not None and eager is not None and exact is not None:
        dtype = getattr(torch, variant.dtype)
        finished = msgspec.structs.replace(
            finished,
            outputs=difference(
                result.outputs, eager.outputs, exact.outputs, dtype, draws=eager.draws
            ),
            gradients=difference(
                result.gradients, eager.gradients, exact.gradients, dtype, draws=eager.draws
            ),
        )
    return msgspec.structs.replace(
        finished, outcome=_outcome(finished, first_calls=failure is None)
    )


def _outcome(tried: TriedVariant, *, first_calls: bool) -> str:
    """Return the outcome of a variant in one word; ``first_calls``: the first calls raised nothing."""
    failures = [failure for graph in tried.side for failure in graph.failures]
    if not first_calls or any(not failure.ours for failure in failures):
        return "fails"
    if failures:
        return "could not tell"
    if not tried.graphs:
        return "nothing compiled"
    differences = [
        difference for difference in (tried.outputs, tried.gradients) if difference is not None
    ]
    if not all(difference.agrees for difference in differences):
        return "differs"
    if tried.failure is not None or any(graph.failures for graph in tried.side_again):
        return "one shape only"
    return "works"


@contextlib.contextmanager
def _as_on_mps(variant: Variant) -> Iterator[None]:
    """Trace what a Mac takes: no fast path of the CPU's attention, and in training its plain formula."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # The one kernel of MPS for attention has no derivative (native/transformers/attention.cpp).
        with sdpa_kernel(SDPBackend.MATH) if variant.training else contextlib.nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _exactly(program: ProgramCall, variant: Variant, device: str) -> Results | None:
    """Return the run in float64; none where the program does not run in it."""
    try:
        return once(place_program(program, torch.float64, device), training=variant.training)
    except Exception:  # noqa: BLE001 - user code; what is missing is the comparison alone
        return None


def _time_once(program: ProgramCall, variant: Variant) -> tuple[Results, float]:
    start = time.perf_counter()
    results = once(program, training=variant.training)
    return results, time.perf_counter() - start


def side_compiler(variant: Variant) -> SideCompiler:
    """Return the backend that compiles the variant's graphs for Metal."""
    return SideCompiler(
        run_metal=variant.run_metal, mode=variant.mode, ahead=variant.backend == AOTINDUCTOR
    )


def _arguments(variant: Variant, side: SideCompiler | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "backend": side or variant.backend,
        # AOTInductor takes a program of torch.export, which has no breaks.
        "fullgraph": variant.fullgraph or variant.backend == AOTINDUCTOR,
        "dynamic": variant.dynamic,
    }
    # The settings of a mode are the side compiler's own.
    return arguments | ({"mode": variant.mode} if variant.mode and side is None else {})
