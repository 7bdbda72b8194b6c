"""Norms, softmax, reductions and scans: LayerNorm.mm, RMSNorm.mm, SoftMax.mm, ReduceOps.mm, ScanKernel.mm."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.common.versions import Version
from opcheck.kernels.host.host_call import CallArguments, HostCall, UnboundError, empty_like, metal_type, round_up
from opcheck.kernels.host.release_kernels import Binder, ReleaseKernels

_LANES = 32
#: A thread reads so many elements; rows of more have a kernel that reads them in a loop (LayerNorm.mm, RMSNorm.mm).
_READS, _SINGLE = 4, 4096
_MOST = 1024
#: The first release that computes the places of a dimension's largest by a kernel.
_PLACES = Version.parse("2.14")


def lanes(length: int, reads: int = _READS) -> int:
    """Return the threads that read a row, whole simdgroups."""
    return min(_MOST, round_up(-(-length // reads), _LANES))


def bind_layer_norm(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind native_layer_norm (LayerNorm.mm, layer_norm_mps): a threadgroup a row."""
    source, shape = call.arguments["input"].contiguous(), call.arguments["normalized_shape"]
    weight, bias = call.arguments["weight"], call.arguments["bias"]
    length = math.prod(shape)
    rows = source.numel() // max(length, 1)
    out, mean, rstd = (empty_like(output) for output in call.outputs)
    how = "single_row" if length <= _SINGLE else "looped"
    word = metal_type(source)
    names = [f"layer_norm_{how}_{end}" for end in (f"i32_{word}", word)]
    group = lanes(length) if how == "single_row" else _MOST
    bound = {
        "input": source, "output": out, "meanOut": mean, "rstdTensor": rstd, "axis_size": length,
        "epsilon": call.arguments["eps"], "use_weight": int(weight is not None), "use_bias": int(bias is not None),
        "weight": None if weight is None else weight.contiguous(),
        "bias": None if bias is None else bias.contiguous(),
    }  # fmt: skip
    return release.bind(names, bound, rows * group, out, mean, rstd, group=group)


def bind_rms_norm(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind _fused_rms_norm (RMSNorm.mm, _fused_rms_norm_mps): a threadgroup a row."""
    source, weight = call.arguments["input"], call.arguments["weight"]
    shape, eps = call.arguments.get("normalized_shape"), call.arguments.get("eps")
    if weight is None or shape is None:
        raise UnboundError("an RMS norm without weight")
    length = math.prod(shape)
    out = empty_like(call.outputs[0])
    name = "rms_norm" if length <= _SINGLE else "rms_norm_looped"
    group = lanes(length) if length <= _SINGLE else _MOST
    bound = {
        "x": source.contiguous(), "w": weight.contiguous(), "out": out, "axis_size": length,
        "eps": torch.finfo(torch.float32).eps if eps is None else eps, "w_stride": 1,
    }  # fmt: skip
    rows = source.numel() // max(length, 1)
    others = (None,) * (len(call.outputs) - 1)
    return release.bind(f"{name}_{metal_type(source)}", bound, rows * group, out, *others, group=group)


def bind_softmax(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind _softmax and _log_softmax (SoftMax.mm, 2.15): a threadgroup a row, or 8 columns of 32 threads."""
    source = call.arguments["self"].contiguous()
    source = source.view(1) if not source.dim() else source
    dim = call.arguments["dim"] % source.dim()
    out = torch.empty_like(source)
    length = source.shape[dim]
    inner = math.prod(source.shape[dim + 1 :])
    outer = source.numel() // max(length * inner, 1)
    log = "log_" if call.name.startswith("_log") else ""
    name = f"{log}softmax_row" if inner == 1 else f"{log}softmax"
    params = {
        "dim_size": length, "num_rows": outer * inner, "inner_size": inner, "chunk_size": length, "n_chunks": 1,
        "ndim": source.dim(), "dim": dim, "sizes": source.shape, "strides": source.stride(),
    }  # fmt: skip
    group: tuple[int, ...] = (min(256, round_up(length, _LANES)),)
    threads: tuple[int, ...] = (outer * group[0],)
    if inner > 1:
        columns = min(inner, 8)
        group, threads = (columns, _LANES, 1), (round_up(inner, columns), outer * _LANES, 1)
    bound = {"input": source, "output": out, "params": params}
    result = out.view(call.outputs[0].shape)
    return release.bind(f"{name}_{metal_type(source)}_u32", bound, threads, result, group=group)


#: The first names of the kernels of reductions, by operator.
_REDUCTIONS = {
    **{name: name for name in ("sum", "nansum", "prod", "max", "min", "argmax", "argmin", "any", "all")},
    **{name: name for name in ("count_nonzero", "var", "std", "norm")},
    "mean": "sum", "amax": "max", "amin": "min", "linalg_vector_norm": "norm",
}  # fmt: skip
_NORMS = {0.0: "norm_l0", 1.0: "norm_l1", 2.0: "norm_l2", math.inf: "norm_inf", -math.inf: "norm_neginf"}


def _parameter(call: HostCall, count: int) -> float:
    """Return the parameter of a reduction of so many elements."""
    arguments = call.arguments
    if call.name in {"norm", "linalg_vector_norm"}:
        order = arguments["p" if call.name == "norm" else "ord"]
        return 2.0 if order is None else float(order)
    if call.name in {"var", "std"}:
        correction = arguments.get("correction")
        return float(arguments.get("unbiased") is not False if correction is None else correction)
    return float(count) if call.name == "mean" else 1.0


def bind_reduction(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind a reduction to the kernel for any strides (ReduceOps.mm): a threadgroup an element of the result."""
    source, output = call.arguments["self"], call.outputs[0]
    if call.name in {"max", "min"} and len(call.outputs) > 1:
        return _bind_places(call, release)
    dims = _dims(call, source)
    count = math.prod(source.shape[dim] for dim in dims)
    if not count:
        raise UnboundError("a reduction of nothing fills its result")
    name, value = _REDUCTIONS[call.name], _parameter(call, count)
    if name == "norm":
        name = _NORMS.get(value, "norm")
    fast = _last_dim(call, release, name, value, source, dims)
    if fast is not None:
        return fast
    kept = tuple(1 if dim in dims else size for dim, size in enumerate(source.shape))
    out = empty_like(output)
    word = metal_type(source)
    names = [f"{name}_reduction_{word}_{to}" for to in _written_types(name, out)]
    if name.startswith("norm"):
        names.append(f"norm_{word}_{metal_type(out)}")
    written = out.view(torch.uint8) if out.dtype == torch.bool else out
    params = {
        "p": value, "reduction_size": count, "ndim": max(source.dim(), 1), "input_sizes": source.shape or (1,),
        "input_strides": source.stride() or (1,), "output_sizes": kept or (1,),
        "output_strides": _kept_strides(out, dims, source.dim()),
    }  # fmt: skip
    group = min(_MOST, round_up(count, _LANES))
    bound = {"input": source, "output": written, "params": params}
    return release.bind(names, bound, out.numel() * group, out, group=group)


def _bind_places(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind max and min of a dimension of 2.14 and newer: a reduction to the values, one to their places."""
    if release.torch < _PLACES:
        raise UnboundError("MPSGraph computes values and places of a dimension")
    each = [
        bind_reduction(call._replace(name=name, outputs=(output,)), release)
        for name, output in zip((f"a{call.name}", f"arg{call.name}"), call.outputs, strict=True)
    ]
    launches = tuple(launch for bound in each for launch in bound.launches)
    return CallArguments(launches, tuple(bound.results[0] for bound in each))


def _last_dim(
    call: HostCall, release: ReleaseKernels, name: str, value: float, source: Tensor, dims: tuple[int, ...]
) -> CallArguments | None:
    """Return the launch of the kernel for contiguous rows, a simdgroup a row, where the release has one."""
    if name.startswith("arg") or dims != (source.dim() - 1,) or not source.is_contiguous() or source.shape[-1] < _LANES:
        return None
    out = empty_like(call.outputs[0])
    kinds = f"{metal_type(source)}_{next(_written_types(name, out))}"
    # 2.14 wrote `inner`, later releases `innermost`.
    names = (f"{name}_reduction_{form}_{kinds}" for form in ("innermost", "inner"))
    kernel_name = next(filter(None, map(release.find, names)), "")
    if not kernel_name:
        return None
    if name.startswith("norm"):  # what the squares are divided by
        value = 1.0
    rows, length = out.numel(), source.shape[-1]
    bound = {
        "input": source, "output": out, "sizes": (rows, length, 1, length), "params": (rows, length, 1, length),
        "param": value, "divisor": value,
    }  # fmt: skip
    return release.bind(kernel_name, bound, rows * _LANES, out, group=_LANES)


def _written_types(name: str, out: Tensor) -> Iterator[str]:
    yield metal_type(out)
    if out.dtype == torch.bool and name in {"any", "all"}:
        yield "uchar"


def reduced_dims(call: HostCall, source: Tensor) -> tuple[int, ...]:
    """Return the dimensions of the operand along which results depend on each other."""
    if "normalized_shape" in call.arguments:
        count = len(call.arguments["normalized_shape"])
        return tuple(range(source.dim() - count, source.dim()))
    return _dims(call, source)


def _dims(call: HostCall, source: Tensor) -> tuple[int, ...]:
    dim = call.arguments.get("dim")
    if dim is None or dim == [] or not source.dim():
        return tuple(range(source.dim()))
    each = dim if isinstance(dim, Sequence) else (dim,)
    return tuple(sorted(number % source.dim() for number in each))


def _kept_strides(out: Tensor, dims: tuple[int, ...], count: int) -> tuple[int, ...]:
    if out.dim() == count:
        return out.stride() or (1,)
    own = iter(out.stride())
    return tuple(0 if dim in dims else next(own) for dim in range(count)) or (1,)


def bind_scan(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind a scan (ScanKernel.mm): a threadgroup a row, or a block of 32 columns."""
    source = call.arguments["self"]
    name = call.name.strip("_").removesuffix("_helper")
    if not source.dim():
        raise UnboundError("a scan of one number")
    wanted = call.outputs[0].dtype
    if source.dtype != wanted:
        source = source.to(wanted)
    source, dim = source.contiguous(), call.arguments["dim"] % source.dim()
    results = tuple(torch.empty(output.shape, dtype=output.dtype) for output in call.outputs)
    length = source.shape[dim]
    inner = math.prod(source.shape[dim + 1 :])
    outer = source.numel() // max(length * inner, 1)
    reads = 4 if source.element_size() <= 4 else 2
    where = "innermost" if inner == 1 else "outer"
    bound: dict[str, Any] = {"in": source, "axis_size": length, "stride": inner}
    if len(results) > 1:
        bound |= {"out_values": results[0], "out_indices": results[1]}
    else:
        bound["out"] = results[0]
    if inner == 1:
        group = _MOST
        if length <= reads * 1024:
            group = round_up(-(-length // reads), _LANES)
        elif length <= reads * 2048:
            group = round_up(-(-(length // 2) // reads), _LANES)
        grid = (group, outer, 1)
    else:
        blocks = -(-inner // _LANES)
        group, bound["stride_blocks"] = _LANES // reads * _LANES, blocks
        grid = (group, outer * blocks, 1)
    others = (None,) * (len(results) - 1)
    return release.bind(f"{name}_{where}_{metal_type(source)}", bound, grid, results[0], *others, group=(group, 1, 1))


BINDERS: dict[str, Binder] = {
    "native_layer_norm": bind_layer_norm,
    **dict.fromkeys(("_fused_rms_norm", "rms_norm"), bind_rms_norm),
    **dict.fromkeys(("_softmax", "_log_softmax"), bind_softmax),
    **dict.fromkeys(_REDUCTIONS, bind_reduction),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "_cummax_helper", "_cummin_helper"), bind_scan),
}
