"""Calls the kernels of embeddings, losses and optimizers: Embedding.mm, LossOps.mm, FusedOptimizerOps.mm."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor

from opcheck.kernels.launch import (
    EPS,
    Launch,
    bound_to,
    dtype_named,
    family,
    random,
    struct,
    untouched,
)
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import address

_Results = dict[str, tuple[Tensor, Tensor, Tensor | float]]


def _step(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


# Embeddings

_MODES = ("sum", "mean", "max")
_WEIGHTS, _FEATURES = 9, 6
#: Where each bag starts, the indices of all bags, the bag of each index, and how many each bag has.
_BAGS = (0, 3, 3, 7)
_INDICES = (1, 4, 8, 2, 2, 5, 0, 3, 8)
_WHICH_BAG = tuple(bisect.bisect_right(_BAGS, place) - 1 for place in range(len(_INDICES)))
_SIZES = tuple(map(_WHICH_BAG.count, range(len(_BAGS))))


def _bags(kernel: Kernel, mode: int, weighted: bool, **more: Any) -> Tensor:  # noqa: FBT001
    fields = {
        field.name
        for argument in kernel.buffers
        if argument.name == "params"
        for field in argument.fields
    }
    given = {
        "weight_strides": (_FEATURES, 1), "output_strides": (_FEATURES, 1), "max_indices_strides": (_FEATURES, 1),
        "weight_grad_strides": (_FEATURES, 1), "output_grad_strides": (_FEATURES, 1),
        "per_sample_weights_stride": 1, "per_sample_weights_grad_stride": 1, "num_indices": len(_INDICES),
        "num_bags": len(_BAGS), "feature_size": _FEATURES, "num_weights": _WEIGHTS, "mode": mode,
        "padding_idx": -1, "use_per_sample_weights": int(weighted), **more,
    }  # fmt: skip
    return struct(
        kernel, "params", **{name: value for name, value in given.items() if name in fields}
    )


def _bagged(mode: int, weight: Tensor, weights: Tensor | None) -> Tensor:
    indices, bags = torch.tensor(_INDICES), torch.tensor(_BAGS)
    own = weights if mode == 0 else None
    return F.embedding_bag(indices, weight, bags, mode=_MODES[mode], per_sample_weights=own)


@family(r"embedding_bag_(?P<a>float|half|bfloat)_(?P<b>int|long)")
def _embedding_bag(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a thread an element of the result; one of the bags is empty."""
    dtype, places = dtype_named(match["a"]), dtype_named(match["b"])
    weight, own = random((_WEIGHTS, _FEATURES), dtype, 1), random((len(_INDICES),), dtype, 2)
    for mode, weighted in ((0, False), (0, True), (1, False), (2, False)):
        value = _bagged(mode, weight.double(), own.double() if weighted else None)
        count = len(_BAGS) * _FEATURES
        yield Launch(
            {
                "weight": weight, "indices": torch.tensor(_INDICES, dtype=places),
                "offsets": torch.tensor(_BAGS, dtype=places),
                "per_sample_weights": own, "output": untouched(value.shape, dtype),
                "offset2bag": untouched((len(_INDICES),), places), "bag_size": untouched((len(_BAGS),), places),
                "max_indices": untouched(value.shape, places), "params": _bags(kernel, mode, weighted),
            },
            (count,), (32,), {"output": (weight, value, 16 * EPS + 4 * _step(dtype) * value.abs())},
        )  # fmt: skip


@family(
    r"embedding_bag_(?P<own>per_sample_weights_)?backward_(?P<a>float|half|bfloat)_(?P<b>int|long)"
)
def _embedding_bag_backward(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a thread an index and feature."""
    dtype, places = dtype_named(match["a"]), dtype_named(match["b"])
    weight, own = random((_WEIGHTS, _FEATURES), dtype, 1), random((len(_INDICES),), dtype, 2)
    upstream = random((len(_BAGS), _FEATURES), dtype, 3)
    modes = ((0, True),) if match["own"] else ((0, False), (0, True), (1, False), (2, False))
    for mode, weighted in modes:
        wide, wide_own = weight.double().requires_grad_(), own.double().requires_grad_()
        result = _bagged(mode, wide, wide_own if weighted else None)
        sought = wide_own if match["own"] else wide
        (gradient,) = torch.autograd.grad(result, sought, upstream.double())
        largest = torch.zeros(len(_BAGS), _FEATURES, dtype=torch.int64)
        for bag in range(len(_BAGS)):
            inside = [i for i, own_bag in zip(_INDICES, _WHICH_BAG, strict=True) if own_bag == bag]
            if inside:
                largest[bag] = torch.tensor(inside)[weight.double()[inside].argmax(0)]
            else:
                largest[bag] = -1
        value = torch.cat([gradient.flatten(), torch.zeros(8, dtype=torch.float64)])
        out = "per_sample_weights_grad" if match["own"] else "weight_grad"
        bound = {
            "output_grad": upstream, "weight": weight, "indices": torch.tensor(_INDICES, dtype=places),
            "offset2bag": torch.tensor(_WHICH_BAG, dtype=places),
            "bag_size": torch.tensor(_SIZES, dtype=places), "max_indices": largest.to(places),
            "per_sample_weights": own, "params": _bags(kernel, mode, weighted),
            out: torch.zeros(len(value), dtype=dtype),
        }  # fmt: skip
        count = (len(_BAGS) if mode == 2 else len(_INDICES)) * _FEATURES
        slack = 16 * EPS + 16 * _step(dtype) * (1 + value.abs())
        yield Launch(bound_to(kernel, bound), (count,), (32,), {out: (weight, value, slack)})


@family(
    r"embedding_dense_backward_(?P<count>count_)?(?:(?P<a>float|half|bfloat)_)?(?P<b>int|long)_(?:32|64)"
)
def _embedding_backward(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    places = dtype_named(match["b"])
    counts = torch.bincount(torch.tensor(_INDICES), minlength=_WEIGHTS)
    for scaled in (0, 1):
        params = struct(
            kernel, "params", outer_sizes=(len(_INDICES),), grad_outer_strides=(_FEATURES,), indices_strides=(1,),
            grad_feature_stride=1, outer_ndim=1, feature_size=_FEATURES, padding_idx=4, scale_grad_by_freq=scaled,
        )  # fmt: skip
        if match["count"]:
            value = torch.where(torch.arange(_WEIGHTS) == 4, 0, counts)
            bound = {
                "indices": torch.tensor(_INDICES, dtype=places),
                "counts": torch.zeros(_WEIGHTS, dtype=torch.int32),
                "params": params,
            }
            yield Launch(bound, (len(_INDICES),), (32,), {"counts": (value, value, 0.0)})
            continue
        dtype = dtype_named(match["a"])
        upstream = random((len(_INDICES), _FEATURES), dtype, 1)
        gradient = torch.ops.aten.embedding_dense_backward(
            upstream.double(), torch.tensor(_INDICES), _WEIGHTS, 4, bool(scaled)
        )
        # The host casts the sums, which are float32.
        out = torch.zeros(_WEIGHTS, _FEATURES)
        yield Launch(
            {
                "grad": upstream, "indices": torch.tensor(_INDICES, dtype=places),
                "counts": counts.int(), "grad_weight": out,
                "params": params,
            },
            (upstream.numel(),), (32,),
            {"grad_weight": (upstream, gradient, 16 * EPS * (1 + gradient.abs()))},
        )  # fmt: skip


# Losses


@family(r"nllnd_loss_(?P<way>forward|backward)_(?P<a>float|half|bfloat)")
def _negative_log_likelihood(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with a thread a target; the last of them is ignored."""
    dtype, batch, classes, places = dtype_named(match["a"]), 3, 5, 4
    given, weight = random((batch, classes, places), dtype, 1), random((classes,), dtype, 2).abs()
    target = torch.randint(0, classes, (batch, places), generator=torch.Generator().manual_seed(1))
    target[-1, -1] = -100
    forward = {
        "n_classes": classes, "map_size": places, "batch_stride": classes * places, "class_stride": places,
        "ignore_index": -100, "has_weight": 1,
    }  # fmt: skip
    wide = given.double().requires_grad_()
    value = F.nll_loss(wide, target, weight.double(), reduction="none")
    kept = torch.where(target >= 0, weight.double()[target.clamp(min=0)], 0.0)
    bound = {
        "input": given, "target": target, "weight": weight, "output": untouched(target.shape, dtype),
        "sample_weights": untouched(target.shape, dtype), "grad_input": torch.zeros(given.shape, dtype=dtype),
        "total_weight": kept.sum().to(dtype),
    }  # fmt: skip
    if match["way"] == "forward":
        bound["params"] = struct(kernel, "params", **forward)
        yield Launch(
            bound_to(kernel, bound), (target.numel(),), (32,),
            {"output": (given, value.detach(), 8 * EPS), "sample_weights": (given, kept, 0.0)},
        )  # fmt: skip
        return
    for reduction in (0, 1):
        upstream = random((1,) if reduction else target.shape, dtype, 3)
        params = struct(kernel, "params", is_reduction=reduction, is_mean=reduction)
        inner = struct_bytes(forward)
        params[: len(inner)] = inner
        loss = value if not reduction else value.sum() / bound["total_weight"].double()
        gradient = torch.autograd.grad(
            loss, wide, upstream.double().view(loss.shape), retain_graph=True
        )[0]
        yield Launch(
            bound_to(kernel, bound | {
                "params": params, "grad_output": upstream, "grad_input": torch.zeros(given.shape, dtype=dtype)
            }),
            (target.numel(),), (32,),
            {"grad_input": (given, gradient, gradient.abs() * (8 * EPS + 2 * _step(dtype)))},
        )  # fmt: skip


def struct_bytes(forward: Mapping[str, int]) -> Tensor:
    """Return NLLLossForwardParams in memory: six 64-bit integers and a flag (LossOps.h)."""
    order = ("n_classes", "map_size", "batch_stride", "class_stride", "ignore_index", "tid_offset")
    words = torch.tensor([*(forward.get(name, 0) for name in order), forward["has_weight"]])
    return words.view(torch.uint8)


# Optimizers

#: FusedOptimizerOps.metal: tensors a launch, and elements a threadgroup.
_TENSORS, _CHUNK = 32, 65536
_EXTENTS = (100, 70000)
_RATES = {
    "lr": 0.125,
    "beta1": 0.875,
    "beta2": 0.9375,
    "weight_decay": 0.0625,
    "eps": 0.0078125,
    "momentum": 0.75,
}
_STEPS = 3.0


def _metadata(kernel: Kernel, name: str) -> tuple[Tensor, int]:
    """Return which tensor and which part of it each threadgroup has, and their number."""
    groups = [
        (place, chunk)
        for place, extent in enumerate(_EXTENTS)
        for chunk in range(-(-extent // _CHUNK))
    ]
    memory = struct(
        kernel, name, numels=_EXTENTS, threadgroup_to_tensor=[tensor for tensor, _ in groups],
        threadgroup_to_chunk=[chunk for _, chunk in groups],
    )  # fmt: skip
    return memory, len(groups)


def _pointers(lists: list[list[Tensor]]) -> Tensor:
    """Return the arguments' struct: 32 addresses for each list of tensors."""
    table = torch.zeros(len(lists), _TENSORS, dtype=torch.int64)
    for row, tensors in enumerate(lists):
        table[row, : len(tensors)] = torch.tensor([address(tensor) for tensor in tensors])
    return table


def _scalars(kernel: Kernel, given: Mapping[str, float]) -> dict[str, Tensor]:
    """Return the numbers that the kernel takes, in their types."""
    kinds = {"float": torch.float32, "uchar": torch.uint8}
    return {
        argument.name: torch.tensor([given[argument.name]]).to(kinds[argument.type])
        for argument in kernel.buffers
        if argument.name in given
    }


def _adam(lists: Mapping[str, Tensor], flags: Mapping[str, float], kind: str) -> dict[str, Tensor]:
    """Return one step of Adam, in double."""
    rate, wide = _RATES, {name: tensor.double() for name, tensor in lists.items()}
    gradient = -wide["grads"] if flags["maximize"] else wide["grads"]
    param = wide["params"]
    if kind.startswith("adamw"):
        param = param * (1 - rate["lr"] * rate["weight_decay"])
    else:
        gradient = gradient + param * rate["weight_decay"]
    mean = rate["beta1"] * wide["exp_avgs"] + (1 - rate["beta1"]) * gradient
    square = rate["beta2"] * wide["exp_avg_sqs"] + (1 - rate["beta2"]) * gradient.square()
    results = {"exp_avgs": mean, "exp_avg_sqs": square}
    if kind.endswith("amsgrad"):
        square = torch.maximum(wide["max_exp_avg_sqs"], square)
        results["max_exp_avg_sqs"] = square
    first, second = 1 - rate["beta1"] ** _STEPS, 1 - rate["beta2"] ** _STEPS
    denominator = square.sqrt() / second**0.5 + rate["eps"]
    results["params"] = param - rate["lr"] / first * mean / denominator
    return results


def _momentum(lists: Mapping[str, Tensor], flags: Mapping[str, float]) -> dict[str, Tensor]:
    """Return one step of SGD, in double."""
    rate, wide = _RATES, {name: tensor.double() for name, tensor in lists.items()}
    gradient = -wide["grads"] if flags["maximize"] else wide["grads"]
    gradient = gradient + rate["weight_decay"] * wide["params"]
    results = {}
    if "momentum_buffer_list" in lists:
        buffer = (
            rate["momentum"] * wide["momentum_buffer_list"] + (1 - flags["dampening"]) * gradient
        )
        buffer = gradient if flags["is_first_step"] else buffer
        results["momentum_buffer_list"] = buffer
        gradient = gradient + rate["momentum"] * buffer if flags["nesterov"] else buffer
    results["params"] = wide["params"] - rate["lr"] * gradient
    return results


@family(
    r"fused_(?P<kind>adamw?(?:_amsgrad)?|sgd(?:_momentum)?)_(?P<a>float|half|bfloat)(?:_(?P<b>float|half|bfloat))?"
)
def _optimizers(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with two tensors, one of them in two parts."""
    dtype, kind = dtype_named(match["a"]), match["kind"]
    fields = next(argument.fields for argument in kernel.buffers if argument.name == "args")
    metadata, groups = _metadata(kernel, "metadata_args")
    for turned in (0, 1):
        flags = {
            "maximize": turned, "nesterov": turned, "dampening": 0.125, "is_first_step": 0, "grad_scale": 1.0,
            "found_inf": 0.0,
        }  # fmt: skip
        bound = _scalars(kernel, _RATES | flags) | {"metadata_args": metadata}
        expected: _Results = {}
        tables: list[list[Tensor]] = []
        names = [field.name for field in fields if field.name != "state_steps"]
        every = [
            {name: random((extent,), dtype, place + at) for at, name in enumerate(names)}
            for place, extent in enumerate(_EXTENTS)
        ]
        for place, lists in enumerate(every):
            for name in lists:
                if name.endswith("sqs"):
                    lists[name] = lists[name].abs() + 0.25
            results = (
                _momentum(lists, flags) if kind.startswith("sgd") else _adam(lists, flags, kind)
            )
            for name, value in results.items():
                key = f"{name} {place}"
                bound[key] = lists[name]
                slack = (1 + value.abs()) * (16 * EPS + 16 * _step(dtype))
                expected[key] = (value, value, slack)
        tables = [[lists[name] for lists in every] for name in names]
        if any(field.name == "state_steps" for field in fields):
            steps = torch.tensor([_STEPS], dtype=dtype_named(match["b"]))
            bound["steps"] = steps
            tables.append([steps, steps])
        yield Launch(bound | {"args": _pointers(tables)}, (groups * 1024,), (1024,), expected)


@family(r"ampNonFiniteCheckAndUnscale(?P<single>Single)?_(?P<a>float|half|bfloat)")
def _unscaled(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with finite gradients, and with one that is not."""
    dtype = dtype_named(match["a"])
    kinds = {argument.name: argument.type for argument in kernel.buffers}
    for bad in (False, True):
        tensors = [random((extent,), dtype, extent) for extent in _EXTENTS]
        if bad:
            tensors[0][5] = torch.inf
        flag = torch.zeros(1, dtype=dtype_named(kinds["foundInf"]))
        scale = torch.tensor([0.25], dtype=dtype_named(kinds["invScale"]))
        values = [tensor.double() * 0.25 for tensor in tensors]
        overflow = torch.tensor([float(bad)], dtype=torch.float64)
        if match["single"]:
            yield Launch(
                {"data": tensors[0], "foundInf": flag, "invScale": scale}, (_EXTENTS[0],), (32,),
                {"data": (values[0], values[0], 0.0), "foundInf": (overflow, overflow, 0.0)},
            )  # fmt: skip
            continue
        metadata, groups = _metadata(kernel, "metadata")
        yield Launch(
            {
                "pointerArgs": _pointers([tensors]), "metadata": metadata, "foundInf": flag, "invScale": scale,
                "first": tensors[0], "second": tensors[1],
            },
            (groups * 1024,), (1024,),
            {
                "first": (values[0], values[0], 0.0), "second": (values[1], values[1], 0.0),
                "foundInf": (overflow, overflow, 0.0),
            },
        )  # fmt: skip


@family(r"ampUpdateScale_(?P<a>float|half|bfloat)")
def _scale_updated(_match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    kinds = {argument.name: argument.type for argument in kernel.buffers}
    for overflow, tracked, scale, tracker in ((0, 3, 8.0, 4), (0, 4, 16.0, 0), (1, 3, 4.0, 0)):
        value, count = torch.tensor([scale]).double(), torch.tensor([tracker])
        bound = {
            "scale": torch.tensor([8.0]).to(dtype_named(kinds["scale"])),
            "growth_tracker": torch.tensor([tracked], dtype=torch.int32),
            "foundInf": torch.tensor([float(overflow)]).to(dtype_named(kinds["foundInf"])),
            "scaleGrowthFactor": torch.tensor([2.0]).to(dtype_named(kinds["scaleGrowthFactor"])),
            "scaleBackoffFactor": torch.tensor([0.5]).to(dtype_named(kinds["scaleBackoffFactor"])),
            "growthInterval": torch.tensor([5], dtype=torch.int32),
        }  # fmt: skip
        yield Launch(
            bound, (1,), (1,), {"scale": (value, value, 0.0), "growth_tracker": (count, count, 0.0)}
        )


@family(r"renorm_(?P<a>float|half|bfloat)")
def _renorm(match: re.Match[str], _kernel: Kernel) -> Iterator[Launch]:
    """Call with the norms: a factor for each, 1 where the norm is small enough."""
    dtype = dtype_named(match["a"])
    norms = torch.linspace(0, 9, 37).to(dtype)
    value = torch.where(norms.double() > 2.5, 2.5 / (norms.double() + 1e-7), 1.0)
    yield Launch(
        {"norm": norms, "factor": untouched((37,), dtype), "maxnorm": torch.tensor(2.5)},
        (37,), (1,), {"factor": (norms, value, 4 * EPS + 2 * _step(dtype) * value)},
    )  # fmt: skip


# Distances and CTC: operations/Distance.mm, operations/LossOps.mm


@family(r"cdist_backward_(?P<a>float|half|bfloat)_p(?P<p>[012])_tg(?P<t>32|128)")
def _distance_gradient(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call for the norm of order 1, the largest difference, and another order, which is here 3."""
    dtype, threads = dtype_named(match["a"]), int(match["t"])
    order = (1.0, float("inf"), 3.0)[int(match["p"])]
    batch, rows, columns, size = 2, 5, 40, 7
    first, second = random((batch, rows, size), dtype, 1), random((batch, columns, size), dtype, 2)
    wide = first.double().requires_grad_()
    distance = torch.cdist(wide, second.double(), p=order)
    upstream = random((batch, rows, columns), dtype, 3)
    (value,) = torch.autograd.grad(distance, wide, upstream.double())
    params = struct(kernel, "params", B=batch, P=rows, R=columns, D=size, p_minus_1=order - 1)
    # The largest difference is compared for equality with the kernel's own, in float32.
    bound = {
        "x1": first, "x2": second, "grad": upstream, "cdist": torch.cdist(first.float(), second.float(), p=order),
        "out": untouched(first.shape, dtype), "params": params,
    }  # fmt: skip
    slack = upstream.double().abs().sum(-1, keepdim=True).expand(value.shape) * (32 * EPS)
    yield Launch(
        bound_to(kernel, bound), (-(-size // threads) * threads, rows, batch), (threads, 1, 1),
        {"out": (first, value, slack)},
    )  # fmt: skip


_TIMES, _LABELS, _BLANK = 12, 6, 0
_TARGETS = ((1, 2, 2, 5), (3, 1, 0, 0), (4, 4, 4, 0))
_TARGET_LENGTHS, _INPUT_LENGTHS = (4, 2, 3), (12, 7, 9)


def _log_sums(logs: Tensor, target: list[int], time: int) -> Tensor:
    """Return the logarithms of the sums over all paths that end at a time and a place of a target with blanks."""
    labels = [_BLANK, *(label for each in target for label in (each, _BLANK))]
    alpha = torch.full((_TIMES, 2 * len(_TARGETS[0]) + 1), -torch.inf, dtype=torch.float64)
    alpha[0, 0], alpha[0, 1] = logs[0, _BLANK], logs[0, labels[1]]
    for at in range(1, time):
        for place, label in enumerate(labels):
            skips = place > 1 and label != labels[place - 2]
            before = alpha[at - 1, max(place - (2 if skips else 1), 0) : place + 1]
            alpha[at, place] = before.logsumexp(0) + logs[at, label]
    return alpha


def _ctc(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return logarithms of probabilities (time, batch, label), and the sums from the front and from the back."""
    logs = random((_TIMES, len(_TARGETS), _LABELS), torch.float32, 1).log_softmax(-1).to(dtype)
    forward, backward = [], []
    for at, (length, time) in enumerate(zip(_TARGET_LENGTHS, _INPUT_LENGTHS, strict=True)):
        wide, target = logs[:, at].double(), list(_TARGETS[at][:length])
        forward.append(_log_sums(wide, target, time))
        turned = _log_sums(wide[:time].flip(0), target[::-1], time)
        back = torch.full_like(turned, -torch.inf)
        back[:time, : 2 * length + 1] = turned[:time, : 2 * length + 1].flip(0, 1)
        backward.append(back)
    return logs, torch.stack(forward), torch.stack(backward)


@family(
    r"ctc_loss_(?P<step>backward_log_beta_|backward_collect_)?(?P<a>float|half|bfloat)"
    r"_(?:int|long)_(?:int32_t|int64_t)"
)
def _ctc_steps(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call one of three steps: sums from the front and the loss, sums from the back, the gradient of them."""
    dtype, step = dtype_named(match["a"]), match["step"] or ""
    logs, alpha, beta = _ctc(dtype)
    targets = torch.tensor(_TARGETS)
    batch, longest = targets.shape
    lengths = {
        name: torch.tensor(given)
        for name, given in (("input", _INPUT_LENGTHS), ("target", _TARGET_LENGTHS))
    }
    wide = logs.double().requires_grad_()
    loss = F.ctc_loss(wide, targets, lengths["input"], lengths["target"], _BLANK, reduction="none")
    upstream = torch.tensor([1.0, 2.0, 0.5])
    (gradient,) = torch.autograd.grad(loss, wide, upstream.double())
    sums = alpha.shape[1] * alpha.shape[2]
    given = {
        "BLANK": _BLANK, "max_input_length": _TIMES, "max_target_length": longest, "batch_size": batch,
        "num_labels": _LABELS, "tg_target_stride": 1, "log_probs_time_stride": batch * _LABELS,
        "log_probs_batch_stride": _LABELS, "log_probs_token_stride": 1, "log_alpha_batch_stride": sums,
        "log_alpha_time_stride": alpha.shape[2], "log_alpha_target_stride": 1, "log_alpha_beta_batch_stride": sums,
        "log_alpha_beta_time_stride": alpha.shape[2], "log_alpha_beta_target_stride": 1,
        "grad_time_stride": batch * _LABELS, "grad_batch_stride": _LABELS, "grad_token_stride": 1,
        "grad_out_batch_stride": 1, "zero_infinity": 0,
    }  # fmt: skip
    argument = next(argument for argument in kernel.buffers if argument.name == "params")
    fields = {field.name for field in argument.fields}
    types = {argument.name: argument.type for argument in kernel.buffers}
    whole = {"int": torch.int32, "long": torch.int64}
    bound = {
        "log_probs": logs, "targets": targets.to(whole[types["targets"]]),
        "target_batch_offsets": (torch.arange(batch) * longest).to(whole[types["target_batch_offsets"]]),
        "params": struct(kernel, "params", **{name: value for name, value in given.items() if name in fields}),
        "loss": loss.detach().to(dtype), "log_alpha": alpha.to(dtype), "log_beta": beta.to(dtype),
        "grad_out": upstream.to(dtype),
        # The host fills the gradient's memory with the logarithm of zero.
        "grad": torch.full(logs.shape, -torch.inf, dtype=dtype),
    }  # fmt: skip
    for name, length in lengths.items():
        bound[f"{name}_lengths"] = length.to(whole[types[f"{name}_lengths"]])
    # Of a half each sum is rounded, once a time.
    off = 64 * EPS + (_TIMES * _step(dtype) if dtype != torch.float32 else 0.0)
    expected: _Results
    grid: tuple[int, ...] = (batch * 16,)
    group: tuple[int, ...] = (16,)
    if step == "backward_collect_":
        grid, group = (_TIMES, batch), (1, 1)
        scale = upstream[None, :, None].double() * (loss.detach()[None, :, None] + 8) * off
        expected = {"grad": (logs, gradient, scale.expand(gradient.shape))}
    elif step:
        bound["log_beta"] = untouched(beta.shape, dtype)
        bound["log_beta"][
            1:, -1
        ] = -torch.inf  # not written behind a short input, and never read there
        expected = {"log_beta": (logs, beta, beta.abs().nan_to_num(0, 0, 0) * off)}
    else:
        bound |= {"log_alpha": untouched(alpha.shape, dtype), "loss": untouched((batch,), dtype)}
        expected = {
            "log_alpha": (logs, alpha, alpha.abs().nan_to_num(0, 0, 0) * off),
            "loss": (logs, loss.detach(), loss.detach() * off),
        }
    yield Launch(bound_to(kernel, bound), grid, group, expected)
