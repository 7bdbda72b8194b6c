"""Tries one variant of torch.compile on a real module: whether it compiles, and how far it is from eager."""

from __future__ import annotations

import contextlib
import copy
import time
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from opcheck.compiler import dynamo
from opcheck.compiler.inductor_metal import SideCompiler
from opcheck.compiler.numerics import Program, Results, difference, larger, once, placed
from opcheck.compiler.records import Failure, Tried, Variant
from opcheck.tracing.torch_private import compilation

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Program", "attempt"]


def attempt(program: Program, variant: Variant, device: str = "cpu") -> Tried:
    """Compile and run one variant in this process, with real values.

    Twice with the inputs as they are, then with a larger batch, where the program takes one.  It runs eagerly in
    the variant's dtype and in float64 first: their distance is the tolerance.
    """
    # A fork has none of the threads that OpenMP believes to have.
    torch.set_num_threads(1)
    tried = Tried(variant=variant, outcome="fails")
    there = placed(program, getattr(torch, variant.dtype), device)
    # A program may change itself: a training step does.
    fresh = copy.deepcopy(there.module)
    with _as_on_mps(variant) if variant.metal else contextlib.nullcontext():
        try:
            eager = once(there, training=variant.training)
        except Exception as error:  # noqa: BLE001 - user code
            # Of the CPU's kernels, which may lack a dtype that those of MPS have.
            outcome = "could not tell" if variant.metal else "fails"
            return msgspec.structs.replace(tried, outcome=outcome, failure=_of_the_program(error))
        more = larger(there)
        if more is not None and not _runs(more, variant):
            more = None
        exact = None if variant.metal else _exactly(program, variant, device)
        return _compiled(tried, there._replace(module=fresh), more, eager, exact)


def _of_the_program(error: Exception) -> Failure:
    failure = dynamo.failure(error, "model")
    message = f"without torch.compile, too, in this dtype and on this machine: {failure.message}"
    return msgspec.structs.replace(failure, kind="model", message=message)


def _compiled(
    tried: Tried, there: Program, more: Program | None, eager: Results, exact: Results | None
) -> Tried:
    variant = tried.variant
    # What is random is drawn as eager draws it, so that it can be compared; Metal's kernels draw their own way.
    config = {} if variant.metal else {"fallback_random": True}
    side = SideCompiler(run_metal=variant.run_metal) if variant.metal else None
    dynamo.forget()
    result = failure = again = None
    seconds = 0.0
    with compilation.inductor_config(config):
        try:
            module: Any = torch.compile(there.module, **_arguments(variant, side))
            compiled = there._replace(module=module)
            result, first = _timed(compiled, variant)
            _, second = _timed(compiled, variant)
            seconds = max(0.0, first - second)
        except Exception as error:  # noqa: BLE001 - whatever compiling user code raises
            failure = dynamo.failure(error)
        graphs, own = dynamo.graphs(), len(side.graphs) if side else 0
        try:
            if more is not None and failure is None:
                once(more._replace(module=module), training=variant.training)
        except Exception as error:  # noqa: BLE001 - as above
            again = dynamo.failure(error)
    finished = msgspec.structs.replace(
        tried,
        graphs=graphs,
        breaks=dynamo.breaks(),
        recompiles=dynamo.recompiles(),
        skipped=dynamo.skipped(),
        seconds=seconds,
        failure=failure or again,
        side=tuple(side.graphs[:own]) if side else (),
        side_again=tuple(side.graphs[own:]) if side else (),
    )
    if result is not None and exact is not None:
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


def _outcome(tried: Tried, *, first_calls: bool) -> str:
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


def _runs(program: Program, variant: Variant) -> bool:
    try:
        once(program, training=variant.training)
    except Exception:  # noqa: BLE001 - a program may take one batch size alone
        return False
    return True


def _exactly(program: Program, variant: Variant, device: str) -> Results | None:
    """Return the run in float64; none where the program does not run in it."""
    try:
        return once(placed(program, torch.float64, device), training=variant.training)
    except Exception:  # noqa: BLE001 - user code; what is missing is the comparison alone
        return None


def _timed(program: Program, variant: Variant) -> tuple[Results, float]:
    start = time.perf_counter()
    results = once(program, training=variant.training)
    return results, time.perf_counter() - start


def _arguments(variant: Variant, side: SideCompiler | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "backend": side or variant.backend,
        "fullgraph": variant.fullgraph,
        "dynamic": variant.dynamic,
    }
    return arguments | ({"mode": variant.mode} if variant.mode else {})
