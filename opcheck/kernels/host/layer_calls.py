"""Group norm, losses of classes, upsampling: GroupNorm.mm, LossOps.mm, UpSample.mm."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.host import pointwise_calls
from opcheck.kernels.host.host_call import (
    BoundCall,
    HostCall,
    HostLaunch,
    HostWork,
    UnboundError,
    empty_like,
    launch,
    metal_type,
    round_up,
)
from opcheck.kernels.host.release_kernels import ReleaseKernels

#: Elements of a block of group norm (GroupNorm.h, BLOCK_SIZE), lanes of a simdgroup, the most threads.
_BLOCK, _LANES, _MOST = 4, 32, 1024


def _group(elements: int) -> int:
    """Return the threads of a group: whole simdgroups, one thread a block."""
    return min(_MOST, round_up(-(-elements // _BLOCK), _LANES))


def _word(tensor: Tensor | None) -> str:
    return "void" if tensor is None else metal_type(tensor)


def bind_group_norm(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind native_group_norm (GroupNorm.mm, group_norm_forward): a threadgroup a group."""
    arguments = call.arguments
    source, gamma, beta = (arguments[name] for name in ("input", "weight", "bias"))
    out, mean, rstd = (torch.empty(output.shape, dtype=output.dtype) for output in call.outputs)
    groups, per_group = arguments["group"], arguments["C"] // arguments["group"]
    elements = per_group * arguments["HxW"]
    params = {
        "HxW": arguments["HxW"], "num_groups": groups, "channels_per_group": per_group,
        "elements_per_group": elements, "eps": arguments["eps"],
    }  # fmt: skip
    words = "_".join((metal_type(source), metal_type(mean), _word(gamma), _word(beta)))
    bound = {
        "X": source.contiguous(), "gamma": gamma, "beta": beta, "Y": out, "mean": mean, "rstd": rstd, "params": params
    }  # fmt: skip
    kernel, size = release.first(f"group_norm_{words}_uint32_t"), _group(elements)
    started = launch(kernel, bound, arguments["N"] * groups * size, size)
    return BoundCall((started,), (out, mean, rstd))


def bind_group_norm_backward(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind native_group_norm_backward (GroupNorm.mm, GroupNormBackwardKernelImpl): the operand, then the weights."""
    arguments = call.arguments
    gamma, mean = arguments["weight"], arguments["mean"].contiguous()
    upstream, source = arguments["grad_out"].contiguous(), arguments["input"].contiguous()
    channels, groups, extent = arguments["C"], arguments["group"], arguments["HxW"]
    per_group, wanted = channels // groups, arguments["output_mask"]
    like = gamma if gamma is not None else source
    d_source = torch.empty(source.shape, dtype=source.dtype)
    d_gamma, d_beta = (torch.empty(channels, dtype=like.dtype) for _ in range(2))
    params = {
        "HxW": extent, "num_groups": groups, "channels_per_group": per_group, "elements_per_group": per_group * extent,
        "C": channels, "N_times_HxW": arguments["N"] * extent,
    }  # fmt: skip
    bound = {
        "dY": upstream, "X": source, "mean": mean, "rstd": arguments["rstd"].contiguous(), "gamma": gamma,
        "dX": d_source, "dgamma": d_gamma, "dbeta": d_beta, "params": params,
    }  # fmt: skip
    words = f"{metal_type(upstream)}_{metal_type(mean)}"
    launches = []
    if wanted[0]:
        size = _group(per_group * extent)
        kernel = release.first(f"group_norm_backward_x_{words}_{_word(gamma)}_uint32_t")
        launches.append(launch(kernel, bound, arguments["N"] * groups * size, size))
    if wanted[1] or wanted[2]:
        size = _group(arguments["N"] * extent)
        kernel = release.first(f"group_norm_backward_affine_{words}_{metal_type(d_gamma)}_uint32_t")
        launches.append(launch(kernel, bound, channels * size, size))
    results = (d_source, d_gamma, d_beta)
    shown = (each for each, is_wanted in zip(results, wanted, strict=True) if is_wanted)
    return BoundCall(tuple(launches), tuple(shown))


def _classes(source: Tensor, call: HostCall) -> dict[str, Any]:
    """Return the fields of NLLLossForwardParams (LossOps.h)."""
    at = 0 if source.dim() == 1 else 1
    return {
        "n_classes": source.shape[at], "map_size": math.prod(source.shape[at + 1 :]),
        "batch_stride": source.stride(0) if at else 0, "class_stride": source.stride(at),
        "ignore_index": call.arguments["ignore_index"], "has_weight": call.arguments["weight"] is not None,
    }  # fmt: skip


def bind_class_loss(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind nll_loss_forward and nll_loss2d_forward without a reduction (LossOps.mm): a thread a target."""
    source, target = call.arguments["self"].contiguous(), call.arguments["target"].contiguous()
    if call.arguments["reduction"]:
        raise UnboundError("a loss with a reduction: its sums are not in the table")
    out = torch.empty(call.outputs[0].shape, dtype=source.dtype)
    bound = {
        "input": source, "target": target, "weight": call.arguments["weight"], "output": out,
        "sample_weights": torch.empty_like(out), "params": _classes(source, call),
    }  # fmt: skip
    kernel = release.first(f"nllnd_loss_forward_{metal_type(source)}")
    others = (None,) * (len(call.outputs) - 1)
    return BoundCall((launch(kernel, bound, target.numel()),), (out, *others))


def bind_class_loss_backward(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind nll_loss_backward and nll_loss2d_backward (LossOps.mm): a thread a target."""
    source, target = call.arguments["self"], call.arguments["target"].contiguous()
    out = torch.empty(source.shape, dtype=source.dtype)
    reduction = call.arguments["reduction"]
    params = _classes(out, call) | {"is_reduction": reduction > 0, "is_mean": reduction == 1}
    bound = {
        "grad_input": out, "grad_output": call.arguments["grad_output"].contiguous(), "target": target,
        "weight": call.arguments["weight"], "total_weight": call.arguments["total_weight"], "params": params,
    }  # fmt: skip
    kernel = release.first(f"nllnd_loss_backward_{metal_type(source)}")
    return BoundCall((HostWork(out.zero_), launch(kernel, bound, target.numel())), (out,))


def bind_gates(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind glu (GatedLinearUnit.mm) as the pointwise operator of two halves that it is."""
    halves = call.arguments["self"].chunk(2, call.arguments["dim"])
    return pointwise_calls.bind_functor("glu", call.outputs[0], halves, (), release)


#: What the kernels of upsampling call the operators.
UPSAMPLING = {
    "upsample_nearest3d": "nearest_3d", "_upsample_nearest_exact3d": "nearest_exact_3d",
    "_upsample_nearest_exact1d": "nearest_exact1d", "_upsample_nearest_exact2d": "nearest_exact2d",
    "upsample_trilinear3d": "trilinear", "_upsample_bilinear2d_aa": "bilinear2d_aa",
    "_upsample_bicubic2d_aa": "bicubic2d_aa",
    **{f"upsample_{mode}": mode for mode in ("nearest1d", "nearest2d", "linear1d", "bilinear2d", "bicubic2d")},
}  # fmt: skip
_SCALES = ("scales_w", "scales_h", "scales_d")


def _scale(size: int, target: int, *, corners: bool, factor: float | None) -> float:
    """Return the step of a result in its source (UpSample.h, area_pixel_compute_scale)."""
    if corners:
        return (size - 1) / (target - 1) if target > 1 else 0.0
    return 1 / factor if factor is not None and factor > 0 else size / target


def bind_upsampling(call: HostCall, release: ReleaseKernels) -> BoundCall:
    """Bind upsampling and its gradients (UpSample.mm): a thread a place of the result for all its channels."""
    arguments, name = call.arguments, call.name.removesuffix("_backward")
    backward = name != call.name
    source = arguments["grad_output" if backward else "self"]
    out = empty_like(call.outputs[0])
    small, large = (out, source) if backward else (source, out)
    corners, spatial = bool(arguments.get("align_corners")), source.dim() - 2
    if corners and name.endswith("_aa") and 1 in large.shape[2:]:
        # The CPU repeats the first place of the other dimension, too (torch 2.13): no reference.
        raise UnboundError(
            "nothing to compare with: one place, with aligned corners and antialiasing"
        )
    names = ("scales",) if spatial == 1 else _SCALES[:spatial]
    scales = [
        _scale(small.shape[-1 - at], large.shape[-1 - at], corners=corners, factor=arguments.get(name))
        for at, name in enumerate(names)
    ]  # fmt: skip
    fields = {
        "input_strides": small.stride(), "input_sizes": small.shape, "output_strides": large.stride(),
        "output_sizes": large.shape, "scales": scales, "align_corners": int(corners),
    }  # fmt: skip
    bound: dict[str, Any] = {"params": fields, **fields}
    word = metal_type(source)
    if not backward:
        kernel = release.first(f"upsample_{UPSAMPLING[name]}_{word}")
        bound |= {"inputData": small, "outputData": large}
        return BoundCall((launch(kernel, bound, math.prod(out.shape[2:])),), (out,))
    bound |= {"gradInputData": out, "gradOutputData": source}
    gathered = release.find(f"upsample_{UPSAMPLING[name]}_backward_{word}_u32")
    steps: list[HostLaunch | HostWork] = []
    if gathered:
        planes = out.shape[0] * out.shape[1]
        grid: tuple[int, ...] = (out.shape[-1], out.shape[-2], planes)
    else:
        steps, grid = [HostWork(out.zero_)], (math.prod(source.shape[2:]),)
    kernel = release.first(gathered or f"upsample_{UPSAMPLING[name]}_backward_{word}")
    steps.append(launch(kernel, bound, grid, (1,) * len(grid)))
    return BoundCall(tuple(steps), (out,))


BINDERS: dict[str, Callable[[HostCall, ReleaseKernels], BoundCall]] = {
    "glu": bind_gates,
    "native_group_norm": bind_group_norm,
    "native_group_norm_backward": bind_group_norm_backward,
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), bind_class_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), bind_class_loss_backward),
    **{f"{name}{way}": bind_upsampling for name in UPSAMPLING for way in ("", "_backward")},
}
