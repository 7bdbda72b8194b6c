"""Fills, pads, triangles, joins and ranges: ConstantOps.mm, Pad.mm, TriangularOps.mm, Shape.mm, RangeFactories.mm."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.host.host_call import CallArguments, HostCall, HostLaunch, UnboundError, empty_like, metal_type
from opcheck.kernels.host.release_kernels import Binder, ReleaseKernels

#: Elements that a thread of a pad writes (c10/metal/common.h, ILP_PER_THREAD), bytes that a thread of a copy moves.
_EACH, _CHUNK = 4, 16
#: The value of each operator that fills, by its argument.
_FILLS = {
    "fill": "value", "full": "fill_value", "new_full": "fill_value", "full_like": "fill_value", "scalar_tensor": "s",
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros", "zero"), 0),
}  # fmt: skip


def bind_fill(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind what fills memory with a number (ConstantOps.mm, fill_mps_kernel)."""
    filler_of = _FILLS[call.name]
    value = call.arguments[filler_of] if isinstance(filler_of, str) else filler_of
    out = empty_like(call.outputs[0])
    filler = torch.as_tensor(value).to(out.dtype).reshape(1)
    if not bool(filler.any()) or out.element_size() == 1:
        raise UnboundError("a blit fills memory with one byte: no kernel")
    word, dims = metal_type(out), max(out.dim(), 1)
    if out.is_contiguous():
        bound = {"out": out, "fill_val": filler, "numel": out.numel()}
        return release.bind(f"fill_scalar_dense_{word}", bound, out.numel(), out)
    bound = {"out": out, "fill_val": filler, "sizes": out.shape, "strides": out.stride(), "ndim": dims}
    grid = (out.numel() // out.shape[0], out.shape[0])
    return release.bind(f"fill_scalar_strided_{word}", bound, grid, out)


def bind_triangle(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind tril and triu (TriangularOps.mm): a thread an element."""
    source, out = call.arguments["self"], empty_like(call.outputs[0])
    turned = [tuple(reversed(each)) for each in (out.shape, out.stride(), source.stride())]  # innermost first
    bound = {
        "inp": source, "out": out, "sizes": turned[0], "out_strides": turned[1], "inp_strides": turned[2],
        "k_ndim": (call.arguments["diagonal"], out.dim()),
    }  # fmt: skip
    grid = (out.shape[-1], out.shape[-2], math.prod(out.shape[:-2]))
    return release.bind(f"{call.name}_int_{metal_type(out)}", bound, grid, out)


def bind_cat(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind cat and stack (Shape.mm, cat_out_mps): a launch an operand, by bytes where all is contiguous."""
    joined, dim = call.arguments["tensors"], call.arguments["dim"]
    out = empty_like(call.outputs[0])
    dim %= out.dim()
    if call.name == "stack":
        joined = [each.unsqueeze(dim) for each in joined]
    width, offset = out.element_size(), 0
    step = out.stride(dim) * width
    whole = release.find("inner_contiguous_scatter_u32") if out.is_contiguous() else ""
    launches: list[HostLaunch] = []
    for each in joined:
        if not each.numel():
            continue
        if whole and each.is_contiguous() and each.dtype == out.dtype:
            params = {
                "slice_bytes": each.shape[dim] * step, "out_stride_bytes": out.shape[dim] * step,
                "off_bytes": offset * step, "nbytes": each.numel() * width,
            }  # fmt: skip
            bound: dict[str, Any] = {"input": each, "output": out, "params": params}
            launches.append(release.launch(whole, bound, -(-each.numel() * width // _CHUNK)))
        else:
            shared = {"ndim": out.dim(), "cat_dim": dim, "output_strides": out.stride(), "output_sizes": out.shape}
            own = {"cat_dim_offset": offset, "input_strides": each.stride(), "input_sizes": each.shape}
            bound = {"input": each, "output": out, "shared_params": shared, "input_params": own}
            launches.append(release.launch(f"cat_int32_t_{metal_type(each)}_{metal_type(out)}", bound, each.numel()))
        offset += each.shape[dim]
    return CallArguments(tuple(launches), (out,))


def bind_constant_pad(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind constant_pad_nd (Pad.mm, constant_pad_nd_mps): negative pads are cut off first."""
    source, pads = call.arguments["self"], call.arguments["pad"]
    count = len(pads) // 2
    for place, by in enumerate(pads):
        dim = source.dim() - 1 - place // 2
        if by < 0:
            source = source.narrow(dim, -by if place % 2 == 0 else 0, source.shape[dim] + by)
    out = empty_like(call.outputs[0])
    if (max(pads) <= 0 and source.is_contiguous()) or not source.numel():
        raise UnboundError("a copy or a fill: nothing is padded")
    before = [max(pads[2 * place], 0) if place < count else 0 for place in range(out.dim())]
    filler = torch.tensor([0 if max(pads) <= 0 else call.arguments["value"]]).to(out.dtype)
    word = metal_type(source)
    bound: dict[str, Any] = {"input": source, "output": out, "fill_value": filler}
    if count <= 3 and source.is_contiguous() and out.is_contiguous():
        padded = [_extents(each, count) for each in (source, out)]
        bound["params"] = {"input_sizes": padded[0], "output_sizes": padded[1], "left_pad": before[:count]}
        width, height, _ = padded[1]
        grid: tuple[int, ...] = (-(-width // _EACH), height, out.numel() // (width * height))
        return release.bind(f"constant_pad_nd_dense_{word}", bound, grid, out)
    order = sorted(range(out.dim()), key=out.stride)
    bound["params"] = {
        "output_sizes": [out.shape[dim] for dim in order], "input_sizes": [source.shape[dim] for dim in order],
        "input_strides": [source.stride(dim) for dim in order], "output_strides": [out.stride(dim) for dim in order],
        "left_pad": [before[out.dim() - 1 - dim] for dim in order], "ndim": out.dim(),
    }  # fmt: skip
    inner = out.shape[order[0]]
    grid = (-(-inner // _EACH), out.numel() // inner)
    return release.bind(f"constant_pad_nd_{word}_u32", bound, grid, out)


def _extents(tensor: Tensor, count: int) -> list[int]:
    """Return the sizes of the padded dimensions, the innermost first, and ones."""
    return [tensor.shape[-1 - place] if place < count else 1 for place in range(3)]


def _strides(tensor: Tensor, count: int) -> list[int]:
    """Return the strides of the padded dimensions, the innermost first, of the channels and of the batch."""
    spatial = [tensor.stride(-1 - place) if place < count else 0 for place in range(3)]
    return [*spatial, tensor.stride(-1 - count), tensor.stride(0) if tensor.dim() == count + 2 else 0]


def bind_pad(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind pads by reflection and replication and their gradients (Pad.mm, pad_out_template)."""
    backward = call.name.endswith("_backward")
    padding: Sequence[int] = call.arguments["padding"]
    count = len(padding) // 2
    mode = call.name.partition("_")[0]
    source = call.arguments["grad_output" if backward else next(iter(call.arguments))]
    out = empty_like(call.outputs[0])
    way = "backward" if backward else "forward"
    word, target = metal_type(source), "grad_input" if backward else "output"
    of_rows = mode == "replication" and count == 1
    if of_rows:
        source, out = source.contiguous(), torch.empty(out.shape, dtype=out.dtype)
    small, large = (out, source) if backward else (source, out)
    bound: dict[str, Any] = {"grad_output" if backward else "input": source, target: out}
    if of_rows:
        bound["sizes_pad"] = (small.shape[-1], large.shape[-1], *padding)
        return release.bind(f"replication_pad1d_{way}_{word}", bound, (1, *out.shape)[-3:][::-1], out)
    bound["params"] = {
        "input_sizes": _extents(small, count), "output_sizes": _extents(large, count), "left_pad": padding[::2],
        "input_strides": _strides(small, count), "output_strides": _strides(large, count),
        "channels": small.shape[-1 - count],
    }  # fmt: skip
    width, height = out.shape[-1], out.shape[-2] if count > 1 else 1
    grid = (-(-width // _EACH), height, out.numel() // (width * height))
    return release.bind(f"{mode}_pad{count}d_{way}_{word}_i32", bound, grid, out)


def bind_arange(call: HostCall, release: ReleaseKernels) -> CallArguments:
    """Bind arange (RangeFactories.mm, arange_mps_out): a thread a number."""
    start, step = call.arguments.get("start", 0), call.arguments.get("step", 1)
    out = empty_like(call.outputs[0])
    bound = {"out": out, "se": (start, step), "p": (1, 0), "stride": 1}
    return release.bind(f"arange_{metal_type(out)}_i32", bound, out.numel(), out)


BINDERS: dict[str, Binder] = {
    **dict.fromkeys(_FILLS, bind_fill),
    **dict.fromkeys(("tril", "triu"), bind_triangle),
    **dict.fromkeys(("cat", "stack"), bind_cat),
    "constant_pad_nd": bind_constant_pad,
    **{
        f"{mode}_pad{dims}d{way}": bind_pad
        for mode in ("reflection", "replication")
        for dims in (1, 2, 3)
        for way in ("", "_backward")
    },
    "arange": bind_arange,
}
