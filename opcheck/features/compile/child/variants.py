"""Tries one variant of torch.compile on a real module: whether it compiles, and how far it is from eager."""

import contextlib
import copy
import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch.nn.attention import SDPBackend, sdpa_kernel

from opcheck.capture.child.loading.fixed_programs import set_training
from opcheck.capture.child.run import seed
from opcheck.features.compile import compile_records as records
from opcheck.features.compile.child import dynamo
from opcheck.features.compile.child.inductor_metal import SideCompiler
from opcheck.tracing.torch_private import compilation
from opcheck.tracing.torch_private.modules import apply_to_tensors
from opcheck.tracing.torch_private.trees import tensors, tree_map_only

#: An error of the compiled program is allowed to be so many times the eager one's, both against float64.
_TIMES = 4.0
#: and so many units of the dtype's own precision, where eager happens to be nearer
_UNITS = 8.0
#: Where eager itself is this far from float64 and the program draws random numbers (dropout), the
#: two drew others: then the compiled program, which draws as eager does, is held against eager,
#: within so many units.
_DRAWS_OTHERS = 0.05
_OF_EAGER = (512.0, 0.1)


class ProgramCall(NamedTuple):
    """A program to compile: a module and the arguments of one call."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Results(NamedTuple):
    """The tensors that one run came to."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]
    #: random numbers were drawn
    draws: bool = False


def place_program(program: ProgramCall, dtype: torch.dtype, device: str) -> ProgramCall:
    """Return a copy of the program in this dtype; complex numbers stay complex."""

    def place(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(device, torch.complex128 if dtype == torch.float64 else tensor.dtype)
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    module = copy.deepcopy(program.module)
    # Not Module.to(dtype): it makes complex weights real.
    apply_to_tensors(module, place)
    args, kwargs = tree_map_only(torch.Tensor, place, (program.args, program.kwargs))
    return ProgramCall(module, args, kwargs)


def larger(program: ProgramCall) -> ProgramCall | None:
    """Return the program with a first dimension larger by 1, where all inputs share it: it shows recompiles."""
    batched = [leaf for leaf in tensors((program.args, program.kwargs)) if _has_batch(leaf)]
    if not batched or len({tensor.shape[0] for tensor in batched}) != 1:
        return None

    def grow(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor, tensor[:1]]) if _has_batch(tensor) else tensor

    args, kwargs = tree_map_only(torch.Tensor, grow, (program.args, program.kwargs))
    return program._replace(args=args, kwargs=kwargs)


def _has_batch(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 1


def once(program: ProgramCall, *, training: bool) -> Results:
    """Run forward and, in training, backward of the mean square of the outputs."""
    seed()
    set_training(program.module, type(program.module).__name__, training=training)
    program.module.zero_grad(set_to_none=True)
    before = _generators(program)
    with torch.set_grad_enabled(training):
        result = program.module(*program.args, **program.kwargs)
    # The output of a library's own class is walked as a dictionary.
    outputs = tensors(dict(result) if hasattr(result, "keys") and not isinstance(result, dict) else result)
    losses = [_real(output).float().square().mean() for output in outputs if output.requires_grad]
    if losses and training:
        sum(losses[1:], start=losses[0]).backward()
    gradients = [p.grad for p in program.module.parameters() if p.grad is not None]
    draws = not all(map(torch.equal, before, _generators(program)))
    return Results([output.detach() for output in outputs], gradients, draws)


def _generators(program: ProgramCall) -> list[torch.Tensor]:
    """Return the states of the default generators that the program may draw from."""
    given = (*program.module.parameters(), *tensors((program.args, program.kwargs)))
    kinds = {tensor.device.type for tensor in given} - {"cpu"}
    return [torch.get_rng_state(), *(torch.get_device_module(k).get_rng_state() for k in sorted(kinds))]


def difference(
    compiled: Sequence[torch.Tensor],
    eager: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    dtype: torch.dtype,
    *,
    draws: bool = False,
) -> records.ResultDifference | None:
    """Return the largest difference over the tensors; None where there is none to compare.

    Args:
        compiled: what the compiled program came to.
        eager: what it comes to without torch.compile.
        exact: the same in float64.
        dtype: of the first two.
        draws: the program draws random numbers, which are others in float64.
    """
    worst = None
    unit = torch.finfo(dtype).eps
    comparable = [
        tensors
        for tensors in zip(compiled, eager, exact, strict=False)
        if (tensors[2].is_floating_point() or tensors[2].is_complex()) and tensors[0].shape == tensors[2].shape
    ]
    sizes = (_size(reference) for *_, reference in comparable)
    vanishing = unit * max(filter(math.isfinite, sizes), default=0.0)
    for tensor, baseline, reference in comparable:
        # The gradient of a bias of attention's keys is 0 but for rounding, which no two ways share.
        noise = max(_TIMES * _size(baseline), _UNITS * vanishing)
        if _size(reference) < vanishing and _size(tensor) <= noise:
            continue
        candidate = _tensor_difference(tensor, baseline, reference, unit, draws=draws)
        if worst is None or not candidate.share <= worst.share:
            worst = candidate
    return worst


def _tensor_difference(
    compiled: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, unit: float, *, draws: bool
) -> records.ResultDifference:
    its = _distance(eager, exact)
    if draws and its > _DRAWS_OTHERS:
        allowed = min(_OF_EAGER[0] * unit, _OF_EAGER[1])
        return records.ResultDifference(compiled=_distance(compiled, eager), eager=0.0, allowed=allowed)
    allowed = max(_TIMES * its, _UNITS * unit)
    return records.ResultDifference(compiled=_distance(compiled, exact), eager=its, allowed=allowed)


def _size(value: torch.Tensor) -> float:
    """Return the root mean square; NaN where an element is not finite, which compares as not small."""
    return _real(value).double().square().mean().sqrt().item() if value.numel() else 0.0


def _distance(value: torch.Tensor, reference: torch.Tensor) -> float:
    value, reference = _real(value).double(), _real(reference).double()
    finite = torch.isfinite(reference)
    if not torch.equal(torch.isfinite(value), finite):
        return float("nan")
    if not finite.any():
        return 0.0
    scale = reference[finite].square().mean().sqrt().item()
    error = (value - reference)[finite].square().mean().sqrt().item()
    return error / scale if scale else error


def _real(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def attempt(program: ProgramCall, variant: records.Variant, device: str = "cpu") -> records.TriedVariant:
    """Compile and run one variant in this process, with real values.

    Twice with the inputs as they are, then with a larger batch, if the program accepts it.  Where results are
    compared, it runs eagerly in the variant's dtype and in float64 first: their distance is the tolerance.  Metal's
    kernels do not run here, so that it runs eagerly only where compiling raised, to see whether it does as well.
    """
    # A fork has none of the threads that OpenMP believes to have.
    torch.set_num_threads(1)
    there = place_program(program, getattr(torch, variant.dtype), device)
    # A program may change itself: a training step does.
    fresh = there._replace(module=copy.deepcopy(there.module))
    if not variant.metal:
        eager, problem = _eager(there, variant)
        if eager is None:
            return records.TriedVariant(variant=variant, outcome="could not tell", failure=problem)
        exact = None
        # What a program that does not run in float64 lacks is the comparison alone.
        with contextlib.suppress(Exception):
            exact = once(place_program(program, torch.float64, device), training=variant.training)
        tried = _compile_and_run(variant, fresh, eager, exact)
        if tried.outcome == "differs" and "numpy" in sys.modules:
            # Dynamo draws the numbers of numpy.random from torch's generator, which gives others: compare it with
            # eager with NumPy's own, at the price of a graph break that is not the program's.
            with compilation.numpy_draws():
                again = place_program(program, getattr(torch, variant.dtype), device)
                other = _compile_and_run(variant, again, eager, exact)
            if other.outcome in {"works", "one shape only"}:
                tried = replace(tried, outcome=other.outcome, outputs=other.outputs, gradients=other.gradients)
        return tried
    with _as_on_mps(variant):
        tried = _compile_and_run(variant, fresh, None, None)
        problem = None if tried.failure is None else _eager(there, variant)[1]
        if problem is None or tried.outcome != "fails":
            return tried
        # Of the CPU's kernels, which may lack a dtype that those of MPS have.
        return records.TriedVariant(variant=variant, outcome="could not tell", failure=problem)


def _eager(program: ProgramCall, variant: records.Variant) -> tuple[Results | None, records.CompileFailure | None]:
    """Run without torch.compile; return the results, or what was raised."""
    try:
        return once(program, training=variant.training), None
    except Exception as error:  # user code
        failure = dynamo.failure(error)
        message = f"without torch.compile, too, in this dtype and on this machine: {failure.message}"
        return None, replace(failure, kind="model", message=message)


def _compile_and_run(
    variant: records.Variant, there: ProgramCall, eager: Results | None, exact: Results | None
) -> records.TriedVariant:
    # What is random is drawn as eager draws it, so that it can be compared; Metal's kernels draw their own way.
    config = {} if variant.metal else {"fallback_random": True}
    side = None
    if variant.metal:
        ahead = variant.backend == records.AOTINDUCTOR
        side = SideCompiler(run_metal=variant.run_metal, mode=variant.mode, ahead=ahead)
    compilation.reset_dynamo()
    result = failure = again = None
    seconds = 0.0
    with compilation.inductor_config(config):
        try:
            module: Any = torch.compile(there.module, **_arguments(variant, side))
            compiled = there._replace(module=module)
            result, first = _time_once(compiled, variant)
            _, second = _time_once(compiled, variant)
            seconds = max(0.0, first - second)
        except Exception as error:  # whatever compiling user code raises
            failure = dynamo.failure(error)
        graphs, own = int(compilation.counters()["stats"]["unique_graphs"]), len(side.graphs) if side else 0
        recompiles = dynamo.recompiles()
        # AOTInductor compiles once.
        more = None if failure is not None or variant.backend == records.AOTINDUCTOR else larger(there)
        if more is not None:
            try:
                once(more._replace(module=module), training=variant.training)
                recompiles = dynamo.recompiles()
            except Exception as error:
                # A program may take one batch size alone.
                if _eager(more, variant)[0] is not None:
                    again, recompiles = dynamo.failure(error), dynamo.recompiles()
                elif side:
                    del side.graphs[own:]
    finished = records.TriedVariant(
        variant=variant,
        outcome="",
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
        dtype, draws = getattr(torch, variant.dtype), eager.draws
        outputs = difference(result.outputs, eager.outputs, exact.outputs, dtype, draws=draws)
        gradients = difference(result.gradients, eager.gradients, exact.gradients, dtype, draws=draws)
        finished = replace(finished, outputs=outputs, gradients=gradients)
    return replace(finished, outcome=_outcome(finished, first_calls=failure is None))


def _outcome(tried: records.TriedVariant, *, first_calls: bool) -> str:
    """Return the outcome of a variant in one word; ``first_calls``: the first calls raised nothing."""
    failures = [failure for graph in tried.side for failure in graph.failures]
    if not first_calls or any(not failure.ours for failure in failures):
        return "fails"
    if failures:
        return "could not tell"
    if not tried.graphs:
        return "nothing compiled"
    if not all(each is None or each.agrees for each in (tried.outputs, tried.gradients)):
        return "differs"
    if tried.failure is not None or any(graph.failures for graph in tried.side_again):
        return "one shape only"
    return "works"


@contextlib.contextmanager
def _as_on_mps(variant: records.Variant) -> Iterator[None]:
    """Trace what a Mac takes: no fast path of the CPU's attention, and in training its plain formula."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # The one kernel of MPS for attention has no derivative (native/transformers/attention.cpp).
        with sdpa_kernel(SDPBackend.MATH) if variant.training else contextlib.nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _time_once(program: ProgramCall, variant: records.Variant) -> tuple[Results, float]:
    start = time.perf_counter()
    return once(program, training=variant.training), time.perf_counter() - start


def _arguments(variant: records.Variant, side: SideCompiler | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "backend": side or variant.backend,
        # AOTInductor takes a program of torch.export, which has no breaks.
        "fullgraph": variant.fullgraph or variant.backend == records.AOTINDUCTOR,
        "dynamic": variant.dynamic,
    }
    # The settings of a mode are the side compiler's own.
    return arguments | ({"mode": variant.mode} if variant.mode and side is None else {})
