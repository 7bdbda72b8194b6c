"""Runs a program once with real values, and measures how far one run is from another."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from opcheck.capture.child.modes import set_training
from opcheck.capture.child.run import seed
from opcheck.features.compile.records import ResultDifference
from opcheck.tracing.nested_tensors import tensors
from opcheck.tracing.torch_private.modules import apply_to_tensors
from opcheck.tracing.torch_private.trees import tree_map_only

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    args, kwargs = tree_map_only(
        torch.Tensor,
        lambda tensor: torch.cat([tensor, tensor[:1]]) if _has_batch(tensor) else tensor,
        (program.args, program.kwargs),
    )
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
    outputs = tensors(_plain(result))
    losses = [_mean_square(output) for output in outputs if output.requires_grad]
    if losses and training:
        sum(losses[1:], start=losses[0]).backward()
    gradients = [p.grad for p in program.module.parameters() if p.grad is not None]
    draws = not all(map(torch.equal, before, _generators(program)))
    return Results([output.detach() for output in outputs], gradients, draws)


def _generators(program: ProgramCall) -> list[torch.Tensor]:
    """Return the states of the default generators that the program may draw from."""
    given = (*program.module.parameters(), *tensors((program.args, program.kwargs)))
    kinds = {tensor.device.type for tensor in given} - {"cpu"}
    return [
        torch.get_rng_state(),
        *(torch.get_device_module(k).get_rng_state() for k in sorted(kinds)),
    ]


def _plain(result: Any) -> Any:
    """Return the output of a library's own class as a container that can be walked."""
    return dict(result) if hasattr(result, "keys") and not isinstance(result, dict) else result


def _mean_square(output: torch.Tensor) -> torch.Tensor:
    return _real(output).float().square().mean()


def difference(
    compiled: Sequence[torch.Tensor],
    eager: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    dtype: torch.dtype,
    *,
    draws: bool = False,
) -> ResultDifference | None:
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
        if (tensors[2].is_floating_point() or tensors[2].is_complex())
        and tensors[0].shape == tensors[2].shape
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
) -> ResultDifference:
    its = _distance(eager, exact)
    if draws and its > _DRAWS_OTHERS:
        allowed = min(_OF_EAGER[0] * unit, _OF_EAGER[1])
        return ResultDifference(compiled=_distance(compiled, eager), eager=0.0, allowed=allowed)
    allowed = max(_TIMES * its, _UNITS * unit)
    return ResultDifference(compiled=_distance(compiled, exact), eager=its, allowed=allowed)


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
