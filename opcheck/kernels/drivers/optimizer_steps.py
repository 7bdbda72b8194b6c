"""Calls the kernels of fused optimizers and of gradient scaling: FusedOptimizerOps.mm, Amp.mm."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.judging import EPS, rounding
from opcheck.kernels.launch import KernelCall, Launch, Launches, Result, family
from opcheck.kernels.pointwise import address, dtype_named
from opcheck.kernels.values import random

# Optimizers

#: FusedOptimizerOps.metal: tensors a launch, and elements a threadgroup.
_TENSORS, _CHUNK = 32, 65536
_EXTENTS = (100, 70000)
_RATES = {
    "lr": 0.125, "beta1": 0.875, "beta2": 0.9375, "weight_decay": 0.0625, "eps": 0.0078125, "momentum": 0.75,
    "dampening": 0.125, "grad_scale": 1.0, "found_inf": 0.0
}  # fmt: skip
_STEPS = 3.0


def _metadata(call: KernelCall, name: str) -> tuple[Tensor, int]:
    """Return which tensor and which part of it each threadgroup has, and their number."""
    groups = [(place, chunk) for place, extent in enumerate(_EXTENTS) for chunk in range(-(-extent // _CHUNK))]
    memory = call.struct(name, numels=_EXTENTS, threadgroup_to_tensor=[tensor for tensor, _ in groups],
        threadgroup_to_chunk=[chunk for _, chunk in groups])  # fmt: skip
    return memory, len(groups)


def _pointers(lists: list[list[Tensor]]) -> Tensor:
    """Return the arguments' struct: 32 addresses for each list of tensors."""
    table = torch.zeros(len(lists), _TENSORS, dtype=torch.int64)
    for row, tensors in enumerate(lists):
        table[row, : len(tensors)] = torch.tensor([address(tensor) for tensor in tensors])
    return table


#: The numbers that the CPU's operators take.
_SHARED = ("lr", "weight_decay", "maximize")
_NUMBERS = {
    "sgd": (*_SHARED, "momentum", "dampening", "nesterov", "is_first_step"),
    "adam": (*_SHARED, "beta1", "beta2", "eps"),
    "adamw": (*_SHARED, "beta1", "beta2", "eps"),
}


def _compute_step(lists: Mapping[str, Tensor], rates: Mapping[str, float], kind: str) -> dict[str, Tensor]:
    """Return the lists after one step of the CPU's own fused optimizer, in double."""
    name, _, variant = kind.partition("_")
    wide = [[tensor.double()] for tensor in lists.values()] + ([] if variant else [[]])
    numbers = {key: rates[key] for key in _NUMBERS[name]}
    if name == "sgd":
        numbers["momentum"] *= bool(variant)
    else:
        wide.append([torch.tensor(_STEPS)])
        numbers["amsgrad"] = bool(variant)
    getattr(torch.ops.aten, f"_fused_{name}_")(*wide, **numbers)
    return {key: tensors[0] for key, tensors in zip(lists, wide, strict=False) if key != "grads"}


@family(r"fused_(?P<kind>adamw?(?:_amsgrad)?|sgd(?:_momentum)?)_{float}(?:_(?P<b>float|half|bfloat))?")
def _optimizers(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with two tensors; the second has two parts."""
    fields = call.fields("args")
    metadata, groups = _metadata(call, "metadata_args")
    for turned in (False, True):
        rates = _RATES | {"maximize": turned, "nesterov": turned, "is_first_step": False}
        bound: dict[str, Any] = rates | {"metadata_args": metadata}
        expected: dict[str, Result] = {}
        names = [field.name for field in fields if field.name != "state_steps"]
        every = [
            {name: random((extent,), dtype, place + at) for at, name in enumerate(names)}
            for place, extent in enumerate(_EXTENTS)
        ]
        for place, lists in enumerate(every):
            for name in lists:
                if name.endswith("sqs"):
                    lists[name] = lists[name].abs() + 0.25
            for name, value in _compute_step(lists, rates, call["kind"]).items():
                key = f"{name} {place}"
                bound[key] = lists[name]
                slack = (1 + value.abs()) * (16 * EPS + 16 * rounding(dtype))
                expected[key] = (value, value, slack)
        tables = [[lists[name] for lists in every] for name in names]
        if any(field.name == "state_steps" for field in fields):
            steps = torch.tensor([_STEPS], dtype=dtype_named(call["b"]))
            bound["steps"] = steps
            tables.append([steps, steps])
        yield Launch(bound | {"args": _pointers(tables)}, groups * 1024, expected, group=1024)


@family(r"ampNonFiniteCheckAndUnscale(?P<single>Single)?_{float}")
def _unscale(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with finite gradients, and with an infinite gradient."""
    for bad in (False, True):
        tensors = [random((extent,), dtype, extent) for extent in _EXTENTS]
        if bad:
            tensors[0][5] = torch.inf
        values = [tensor.double() * 0.25 for tensor in tensors]
        overflow = torch.tensor([float(bad)], dtype=torch.float64)
        if call["single"]:
            expected = {"data": (values[0], values[0]), "foundInf": (overflow, overflow)}
            yield Launch({"data": tensors[0], "foundInf": 0.0, "invScale": 0.25}, _EXTENTS[0], expected, group=32)
            continue
        metadata, groups = _metadata(call, "metadata")
        yield Launch(
            {"pointerArgs": _pointers([tensors]), "metadata": metadata, "foundInf": 0.0, "invScale": 0.25,
            "first": tensors[0], "second": tensors[1]}, groups * 1024,
            {"first": (values[0], values[0]), "second": (values[1], values[1]), "foundInf": (overflow, overflow)},
            group=1024
        )  # fmt: skip


@family(r"ampUpdateScale_{float}")
def _update_scale(_call: KernelCall) -> Launches:
    for overflow, tracked, scale, tracker in ((0, 3, 8.0, 4), (0, 4, 16.0, 0), (1, 3, 4.0, 0)):
        value, count = torch.tensor([scale]).double(), torch.tensor([tracker])
        yield Launch({
            "scale": 8.0, "growth_tracker": tracked, "foundInf": overflow, "scaleGrowthFactor": 2.0,
            "scaleBackoffFactor": 0.5, "growthInterval": 5
        }, 1, {"scale": (value, value), "growth_tracker": (count, count)})  # fmt: skip
