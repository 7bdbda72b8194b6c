"""Which number a training step minimizes: the model's own loss, or one made from what it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

import torch

OWN = "the model's own loss"
RETURNED = "the number that the model returned"
GENERIC = "the mean square of the floating outputs"


class NothingToTrainError(RuntimeError):
    """Backward would have nothing to do."""


class Loss(NamedTuple):
    """The number, and how the report names it."""

    value: torch.Tensor
    said: str


def loss_of(output: Any) -> Loss:
    """The loss in or of a model's output.

    In this order: its ``loss``; the sum of a dict of numbers, as torchvision's detection models return in training;
    the single number that it is; the mean square of every floating tensor in it that has a graph.

    Raises:
        NothingToTrainError: no floating tensor of the output has a graph.
    """
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if _is_number(own) and own.requires_grad:
        return Loss(own, OWN)
    if isinstance(output, Mapping) and output and all(map(_is_number, output.values())):
        values = list(output.values())
        total = sum(values[1:], values[0])
        if total.requires_grad:
            return Loss(total, f"the sum of {', '.join(map(str, output))}")
    if _is_number(output) and output.requires_grad:
        return Loss(output, RETURNED)
    squares = [_mean_square(tensor) for tensor in _tensors(output) if _trains(tensor)]
    if not squares:
        raise NothingToTrainError(
            "no output of the model depends on a parameter by a differentiable way: there is "
            "nothing to call backward on"
        )
    return Loss(sum(squares[1:], squares[0]), GENERIC)


def _is_number(value: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and not value.dim() and value.is_floating_point()


def _trains(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex())


def _mean_square(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.float().square().mean()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in the output, however it is nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))
