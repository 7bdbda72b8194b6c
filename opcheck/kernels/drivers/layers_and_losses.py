"""Calls the kernels of embeddings, softmax, norms, losses and fused optimizers.

The host functions are in Embedding.mm, SoftMax.mm, LayerNorm.mm, LossOps.mm, FusedOptimizerOps.mm and Amp.mm.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from opcheck.kernels.drivers.operator_calls import call_operator
from opcheck.kernels.judging import EPS, rounding
from opcheck.kernels.launch import LENGTHS, KernelCall, Launch, Launches, Result, family
from opcheck.kernels.pointwise import address, dtype_named
from opcheck.kernels.values import fill_untouched, pad_words, random

aten = torch.ops.aten

# Embeddings

_MODES = ("sum", "mean", "max")
_WEIGHTS, _FEATURES = 9, 6
#: Where each bag starts, and the indices of all bags.
_BAGS = (0, 3, 3, 7)
_INDICES = (1, 4, 8, 2, 2, 5, 0, 3, 8)


def _bags(call: KernelCall, mode: int, weighted: bool) -> Tensor:  # noqa: FBT001
    names = ("weight", "output", "max_indices", "weight_grad", "output_grad")
    strides = {f"{name}_strides": (_FEATURES, 1) for name in names}
    return call.fit("params", **strides, per_sample_weights_stride=1, per_sample_weights_grad_stride=1,
        num_indices=len(_INDICES), num_bags=len(_BAGS), feature_size=_FEATURES, num_weights=_WEIGHTS, mode=mode,
        padding_idx=-1, use_per_sample_weights=int(weighted))  # fmt: skip


def _reduce_bags(mode: int, weight: Tensor, weights: Tensor | None) -> Tensor:
    indices, bags = torch.tensor(_INDICES), torch.tensor(_BAGS)
    own = weights if mode == 0 else None
    return functional.embedding_bag(indices, weight, bags, mode=_MODES[mode], per_sample_weights=own)


@family(r"embedding_bag_{float}_{index}")
def _embedding_bag(call: KernelCall, dtype: torch.dtype, places: torch.dtype) -> Launches:
    """Call with a thread for each element of the result; a bag is empty."""
    weight, own = random((_WEIGHTS, _FEATURES), dtype, 1), random((len(_INDICES),), dtype, 2)
    for mode, weighted in ((0, False), (0, True), (1, False), (2, False)):
        value = _reduce_bags(mode, weight.double(), own.double() if weighted else None)
        count = len(_BAGS) * _FEATURES
        yield Launch({
            "weight": weight, "indices": torch.tensor(_INDICES, dtype=places),
            "offsets": torch.tensor(_BAGS, dtype=places), "per_sample_weights": own,
            "offset2bag": fill_untouched((len(_INDICES),), places), "bag_size": fill_untouched((len(_BAGS),), places),
            "max_indices": fill_untouched(value.shape, places), "params": _bags(call, mode, weighted)
        }, count, {"output": (weight, value, 16 * EPS + 4 * rounding(dtype) * value.abs())}, group=32)  # fmt: skip


@family(r"embedding_bag_(?P<own>per_sample_weights_)?backward_{float}_{index}")
def _embedding_bag_backward(call: KernelCall, dtype: torch.dtype, places: torch.dtype) -> Launches:
    """Call with a thread an index and feature."""
    weight, own = random((_WEIGHTS, _FEATURES), dtype, 1), random((len(_INDICES),), dtype, 2)
    upstream = random((len(_BAGS), _FEATURES), dtype, 3)
    modes = ((0, True),) if call["own"] else ((0, False), (0, True), (1, False), (2, False))
    for mode, weighted in modes:
        wide, wide_own = weight.double().requires_grad_(), own.double().requires_grad_()
        result = _reduce_bags(mode, wide, wide_own if weighted else None)
        sought = wide_own if call["own"] else wide
        (gradient,) = torch.autograd.grad(result, sought, upstream.double())
        _, bags, sizes, largest = aten._embedding_bag(
            weight.double(), torch.tensor(_INDICES), torch.tensor(_BAGS), mode=2
        )
        largest[sizes == 0] = -1
        value = pad_words(gradient)
        out = "per_sample_weights_grad" if call["own"] else "weight_grad"
        count = (len(_BAGS) if mode == 2 else len(_INDICES)) * _FEATURES
        slack = 16 * EPS + 16 * rounding(dtype) * (1 + value.abs())
        yield Launch({
            "output_grad": upstream, "weight": weight, "indices": torch.tensor(_INDICES, dtype=places),
            "offset2bag": bags.to(places), "bag_size": sizes.to(places), "max_indices": largest.to(places),
            "per_sample_weights": own, "params": _bags(call, mode, weighted), out: torch.zeros(len(value), dtype=dtype)
        }, count, {out: (weight, value, slack)}, group=32)  # fmt: skip


@family(r"embedding_dense_backward_(?P<count>count_)?(?:{float}_)?{index}_(?:32|64)")
def _embedding_backward(call: KernelCall) -> Launches:
    places = dtype_named(call["b"])
    counts = torch.bincount(torch.tensor(_INDICES), minlength=_WEIGHTS)
    for scaled in (0, 1):
        params = call.struct("params", outer_sizes=(len(_INDICES),), grad_outer_strides=(_FEATURES,),
            indices_strides=(1,), grad_feature_stride=1, outer_ndim=1, feature_size=_FEATURES, padding_idx=4,
            scale_grad_by_freq=scaled)  # fmt: skip
        if call["count"]:
            value = torch.where(torch.arange(_WEIGHTS) == 4, 0, counts)
            yield Launch({
                "indices": torch.tensor(_INDICES, dtype=places), "counts": torch.zeros(_WEIGHTS, dtype=torch.int32),
                "params": params
            }, len(_INDICES), {"counts": (value, value)}, group=32)  # fmt: skip
            continue
        dtype = dtype_named(call["a"])
        upstream = random((len(_INDICES), _FEATURES), dtype, 1)
        gradient = aten.embedding_dense_backward(upstream.double(), torch.tensor(_INDICES), _WEIGHTS, 4, bool(scaled))
        # The host casts the sums, which are float32.
        out = torch.zeros(_WEIGHTS, _FEATURES)
        yield Launch(
            {"grad": upstream, "indices": torch.tensor(_INDICES, dtype=places), "counts": counts.int(),
            "grad_weight": out, "params": params}, upstream.numel(),
            {"grad_weight": (upstream, gradient, 16 * EPS * (1 + gradient.abs()))}, group=32
        )  # fmt: skip


# Losses


@family(r"nllnd_loss_(?P<way>forward|backward)_{float}")
def _negative_log_likelihood(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with a thread a target; the last of them is ignored."""
    batch, classes, places = 3, 5, 4
    operand, weight = random((batch, classes, places, 1), dtype, 1), random((classes,), dtype, 2).abs()
    target = torch.randint(0, classes, (batch, places, 1), generator=torch.Generator().manual_seed(1))
    target[-1, -1, -1] = -100
    wide = operand.double()
    shared: dict[str, Any] = {"self": operand, "target": target, "weight": weight, "ignore_index": -100}
    kept = torch.where(target >= 0, weight.double()[target.clamp(min=0)], 0.0)
    if call["way"] == "forward":
        value = aten.nll_loss2d_forward(wide, target, weight.double(), 0, -100)[0]
        result: Result = operand, value, 8 * EPS
        launch = call_operator(call, "nll_loss2d_forward", result, None, **shared, reduction=0)
        expected = {**launch.expected, "sample_weights": (operand, kept)}
        yield msgspec.structs.replace(launch, expected=expected)
        return
    total = kept.sum().to(dtype)
    for reduction in (0, 1):
        upstream = random((1,) if reduction else target.shape, dtype, 3)
        of_loss = upstream.double().reshape(() if reduction else target.shape)
        gradient = aten.nll_loss2d_backward(of_loss, wide, target, weight.double(), reduction, -100, total.double())
        result = operand, gradient, gradient.abs() * (8 * EPS + 2 * rounding(dtype))
        shared |= {"grad_output": upstream, "total_weight": total, "reduction": reduction}
        yield call_operator(call, "nll_loss2d_backward", result, **shared)


@family(r"renorm_{float}")
def _renorm(_call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call with the norms: a factor for each, 1 where the norm is small enough."""
    norms = torch.linspace(0, 9, 37).to(dtype)
    value = torch.where(norms.double() > 2.5, 2.5 / (norms.double() + 1e-7), 1.0)
    yield Launch({"norm": norms, "maxnorm": 2.5}, 37, {"factor": (norms, value, 4 * EPS + 2 * rounding(dtype) * value)})


# Distances and CTC: operations/Distance.mm, operations/LossOps.mm


@family(r"cdist_backward_{float}_p(?P<p>[012])_tg(?P<t>32|128)")
def _distance_gradient(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for the norm of order 1, the largest difference, and another order, which is here 3."""
    threads = int(call["t"])
    order = (1.0, float("inf"), 3.0)[int(call["p"])]
    batch, rows, columns, size = 2, 5, 40, 7
    first, second = random((batch, rows, size), dtype, 1), random((batch, columns, size), dtype, 2)
    upstream, wide = random((batch, rows, columns), dtype, 3), first.double().requires_grad_()
    (value,) = torch.autograd.grad(torch.cdist(wide, second.double(), p=order), wide, upstream.double())
    params = call.struct("params", B=batch, P=rows, R=columns, D=size, p_minus_1=order - 1)
    # The largest difference is compared for equality with the kernel's own, in float32.
    slack = upstream.double().abs().sum(-1, keepdim=True).expand(value.shape) * (32 * EPS)
    yield Launch({
        "x1": first, "x2": second, "grad": upstream, "cdist": torch.cdist(first.float(), second.float(), p=order),
        "params": params
    }, (-(-size // threads) * threads, rows, batch), {"out": (first, value, slack)}, group=(threads, 1, 1))  # fmt: skip


_TIMES, _LABELS, _BLANK = 12, 6, 0
_TARGETS = ((1, 2, 2, 5), (3, 1, 0, 0), (4, 4, 4, 0))
_TARGET_LENGTHS, _INPUT_LENGTHS = (4, 2, 3), (12, 7, 9)


def _sum_paths(logs: Tensor, targets: Tensor) -> Tensor:
    """Return the logarithms of the sums over all paths that end at a time and a place of a target with blanks."""
    alpha: Tensor = aten._ctc_loss(logs.double(), targets, _INPUT_LENGTHS, _TARGET_LENGTHS, _BLANK)[1]
    times, places = torch.arange(alpha.shape[1])[:, None], torch.arange(alpha.shape[2])
    inputs, labels = (torch.tensor(each)[:, None, None] for each in (_INPUT_LENGTHS, _TARGET_LENGTHS))
    return alpha.where((times < inputs) & (places <= 2 * labels), -torch.inf)


def _turn(rows: Tensor, lengths: Iterable[int]) -> Tensor:
    """Return rows whose first places, so many of each, are in reverse order."""
    return torch.stack([torch.cat([row[:n].flip(0), row[n:]]) for row, n in zip(rows, lengths, strict=True)])


def _ctc(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return logarithms of probabilities (time, batch, label), and the sums from the front and from the back."""
    logs = random((_TIMES, len(_TARGETS), _LABELS), torch.float32, 1).log_softmax(-1).to(dtype)
    targets = torch.tensor(_TARGETS)
    back = _sum_paths(_turn(logs.transpose(0, 1), _INPUT_LENGTHS).transpose(0, 1), _turn(targets, _TARGET_LENGTHS))
    places = [2 * length + 1 for length in _TARGET_LENGTHS]
    back = _turn(_turn(back, _INPUT_LENGTHS).transpose(1, 2), places).transpose(1, 2)
    return logs, _sum_paths(logs, targets), back.contiguous()


@family(
    r"ctc_loss_(?P<step>backward_log_beta_|backward_collect_)?{float}"
    r"_(?:int|long)_(?:int32_t|int64_t)"
)
def _ctc_steps(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call a step of three: sums from the front and the loss, sums from the back, the gradient of them."""
    step = call["step"]
    logs, alpha, beta = _ctc(dtype)
    targets = torch.tensor(_TARGETS)
    batch, longest = targets.shape
    lengths = {"input": torch.tensor(_INPUT_LENGTHS), "target": torch.tensor(_TARGET_LENGTHS)}
    wide = logs.double().requires_grad_()
    loss = functional.ctc_loss(wide, targets, lengths["input"], lengths["target"], _BLANK, reduction="none")
    upstream = torch.tensor([1.0, 2.0, 0.5])
    (gradient,) = torch.autograd.grad(loss, wide, upstream.double())
    strides = {"tg_target_stride": 1, "grad_out_batch_stride": 1}
    for name, dims, steps in (
        *((name, ("time", "batch", "token"), logs.stride()) for name in ("log_probs", "grad")),
        *((name, ("batch", "time", "target"), alpha.stride()) for name in ("log_alpha", "log_alpha_beta")),
    ):
        strides |= {f"{name}_{dim}_stride": step for dim, step in zip(dims, steps, strict=True)}
    params = call.fit("params", BLANK=_BLANK, max_input_length=_TIMES, max_target_length=longest, batch_size=batch,
        num_labels=_LABELS, zero_infinity=0, **strides)  # fmt: skip
    bound = {
        "log_probs": logs, "targets": targets.to(call.dtype("targets")), "params": params,
        "target_batch_offsets": (torch.arange(batch) * longest).to(call.dtype("target_batch_offsets")),
        "loss": loss.detach().to(dtype), "log_alpha": alpha.to(dtype), "log_beta": beta.to(dtype),
        "grad_out": upstream.to(dtype),
        # The host fills the gradient's memory with the logarithm of zero.
        "grad": torch.full(logs.shape, -torch.inf, dtype=dtype),
    }  # fmt: skip
    for name, length in lengths.items():
        bound[f"{name}_lengths"] = length.to(call.dtype(f"{name}_lengths"))
    # Of a half each sum is rounded, once a time.
    off = 64 * EPS + (_TIMES * rounding(dtype) if dtype != torch.float32 else 0.0)
    expected: dict[str, Result]
    grid: tuple[int, ...] = (batch * 16,)
    group: tuple[int, ...] = (16,)
    if step == "backward_collect_":
        grid, group = (_TIMES, batch), (1, 1)
        scale = upstream[None, :, None].double() * (loss.detach()[None, :, None] + 8) * off
        expected = {"grad": (logs, gradient, scale.expand(gradient.shape))}
    elif step:
        bound["log_beta"] = fill_untouched(beta.shape, dtype)
        bound["log_beta"][1:, -1] = -torch.inf  # not written behind a short input, and never read there
        expected = {"log_beta": (logs, beta, beta.abs().nan_to_num(0, 0, 0) * off)}
    else:
        expected = {
            "log_alpha": (logs, alpha, alpha.abs().nan_to_num(0, 0, 0) * off),
            "loss": (logs, loss.detach(), loss.detach() * off),
        }
    yield Launch(bound, grid, expected, group=group)


# Softmax and norms are called by SoftMax.mm, LayerNorm.mm and RMSNorm.mm there.


@family(r"(?P<log>log_)?softmax_(?P<how>row_|strided_)?(?:(?P<step>partial|finalize)_)?{any}_(?:u32|u64)")
def _softmax(call: KernelCall, dtype: torch.dtype) -> Launches:
    """Call for the middle dimension, in one step or two: the largest value and the sum of each chunk, then the result.

    The strided forms have 8 columns and 32 threads a column in a threadgroup.
    """
    step, chunk = call["step"], 32
    strided = call["how"] == "strided_" or not (step or call["how"])
    rows, inner = (4 if call["how"] == "row_" else 3), (8 if strided else 1)
    for length in (32, 100, 1025) if step else LENGTHS:
        operand = random((rows, length, inner), dtype, length) * 3
        operand[0, 0] = -100.0
        each = chunk if step else length
        chunks = [part.double() for part in torch.split(operand, each, 1)]
        largest = torch.stack([part.amax(1) for part in chunks], -1)
        sums = torch.stack([(part - part.amax(1, keepdim=True)).exp().sum(1) for part in chunks], -1)
        partials = torch.stack([largest, sums], -1)  # of a row, a column and a chunk
        bound = {"input": operand, "partials": partials.float(), "params": call.struct("params", dim_size=length,
            num_rows=rows * inner, inner_size=inner, chunk_size=each, n_chunks=len(chunks), ndim=3, dim=1,
            sizes=operand.shape, strides=operand.stride())}  # fmt: skip
        value = (torch.log_softmax if call["log"] else torch.softmax)(operand.double(), 1)
        slack = (value.abs() + 1 if call["log"] else value) * (16 if step else 8) * EPS
        expected = {"output": (operand, value, slack)}
        if step == "partial":
            # The kernel writes pairs; a buffer of its type would be twice as long.
            bound["partials"] = fill_untouched(partials.shape, torch.float32)
            expected = {"partials": (operand, partials, partials.abs() * 16 * EPS)}
        lanes = 32 if step else min(256, -(-length // 32) * 32)
        grid: tuple[int, ...] = (len(chunks) * lanes, rows)
        group: tuple[int, ...] = (lanes, 1)
        if call["how"] == "row_":
            grid = (rows * lanes, 1)
        elif strided:
            grid, group = (inner, rows * 32, len(chunks)), (inner, 32, 1)
        yield Launch(bound, grid, expected, group=group)


@family(r"layer_norm_(?P<how>single_row|looped)(_i32|_i64)?_{any}")
def _layer_norm(call: KernelCall, dtype: torch.dtype) -> Launches:
    # A small variance with the eps of vision transformers (pytorch/pytorch#190491), and rows about 1 (#186367).
    scales = ((1.0, 0.0, 1e-5), (9.9e-4, 0.0, 1e-12), (1e-3, 1.0, 1e-7))
    lengths = (4100, 5000) if call["how"] == "looped" else (8, 33, 100, 1000)
    for length, (scale, shift, eps) in itertools.product(lengths, scales):
        operand = (random((3, length), torch.float32, length) * scale + shift).to(dtype)
        weight, bias = random((length,), dtype, 1), random((length,), dtype, 2)
        wide = operand.double()
        value, mean, rstd = aten.native_layer_norm(wide, (length,), weight.double(), bias.double(), eps)
        # The mean is off by a rounding, which a small variance magnifies.
        off = 64 * EPS * (1 + shift / scale)
        slack = off * (1 + weight.double().abs() * 4)
        yield call_operator(
            call, "native_layer_norm", (operand, value, slack), (operand, mean, 1e-6), (operand, rstd, rstd * off),
            dtypes=(dtype, call.dtype("meanOut"), call.dtype("rstdTensor")), input=operand, normalized_shape=(length,),
            weight=weight, bias=bias, eps=eps
        )  # fmt: skip


@family(r"rms_norm(?P<how>_looped)?_{float}")
def _rms_norm(call: KernelCall, dtype: torch.dtype) -> Launches:
    for length in (4100, 5000) if call["how"] else (8, 33, 100, 1000):
        operand, weight = random((3, length), dtype, length), random((length,), dtype, 1)
        wide = operand.double()
        value = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()
        result = operand, value, value.abs() * (rounding(dtype) + 16 * EPS)
        yield call_operator(
            call, "_fused_rms_norm", result, input=operand, weight=weight, normalized_shape=(length,), eps=1e-5
        )


@family(
    r"group_norm_(?:backward_(?P<of>x|affine)_)?(?P<a>[a-z0-9]+)_(?P<b>[a-z0-9]+)_(?P<gamma>[a-z0-9]+)"
    r"(?:_(?P<beta>(?!uint)[a-z0-9]+))?_uint(?:32|64)_t"
)
def _group_norm(call: KernelCall, dtype: torch.dtype, statistics: torch.dtype) -> Launches:
    batch, groups, per_group, extent = 2, 3, 4, 15
    channels = groups * per_group
    operand = random((batch, channels, extent), dtype, 1)
    upstream = random((batch, channels, extent), dtype, 2)
    gamma, beta = torch.ones(channels, dtype=dtype), torch.zeros(channels)
    if call["gamma"] != "void":
        gamma = random((channels,), dtype_named(call["gamma"]), 3)
    if call["beta"] not in {"", "void"}:
        beta = random((channels,), dtype_named(call["beta"]), 4)
    wide, scale, extents = operand.double(), gamma.double(), (batch, channels, extent, groups)
    value, mean, rstd = aten.native_group_norm(wide, scale, beta.double(), *extents, 1e-5)
    d_operand, d_gamma, d_beta = aten.native_group_norm_backward(
        upstream.double(), wide, mean, rstd, scale, *extents, [True] * 3
    )
    off = 1e-5 + rounding(statistics)
    slack = 1e-4 + 64 * (rounding(dtype) + rounding(statistics) + rounding(gamma.dtype))
    if call["of"] == "x":
        results: list[Result] = [(operand, d_operand, slack)]
    elif call["of"]:
        results = [(operand, d_gamma, slack), (operand, d_beta, slack)]
    else:
        results = [
            (operand, value, 4e-5 + 16 * rounding(dtype)),
            (operand, mean, 1e-6 + rounding(statistics)), (operand, rstd, rstd * off)
        ]  # fmt: skip
    name = "native_group_norm_backward" if call["of"] else "native_group_norm"
    dtypes = [dtype, *(statistics,) * (len(results) - 1)]
    affine = call["of"] == "affine"
    yield call_operator(
        call, name, *results, dtypes=dtypes, N=batch, C=channels, HxW=extent, group=groups, eps=1e-5, input=operand,
        grad_out=upstream, weight=None if call["gamma"] == "void" else gamma, mean=mean.to(statistics),
        bias=None if call["beta"] == "void" else beta, rstd=rstd.to(statistics),
        output_mask=(not affine, affine, affine)
    )  # fmt: skip


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
