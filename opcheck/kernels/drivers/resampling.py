"""Calls the kernels of sampling by a grid, and the gradients of sampling and of upsampling.

The host functions are in GridSampler.mm and UpSample.mm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (PyTorch's own abbreviation)
from torch import Tensor

from opcheck.kernels.drivers.products import rounding, taken
from opcheck.kernels.launch import Launch, dtype_named, family, random, struct, untouched
from opcheck.kernels.machine import Kernel
from opcheck.kernels.pointwise import numbers

#: Images and grids, without batch and channels, by the number of dimensions.
_SHAPES = {2: ((5, 6), (4, 7)), 3: ((5, 6, 4), (3, 2, 7))}
#: As GridSamplerUtils.h numbers them.
_PADDINGS = ("zeros", "border", "reflection")
_INTERPOLATIONS = ("bilinear", "nearest", "bicubic")


def _sampled(dims: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return an image, and a grid of which some places lie outside."""
    image, places = _SHAPES[dims]
    return random((2, 3, *image), dtype, 1), random((2, *places, dims), dtype, 2)


def _params(given: Tensor, grid: Tensor, value: Tensor, *, corners: bool) -> dict[str, Any]:
    """Return the fields of GridSamplerParams (GridSampler.h)."""
    return {
        "sampler_dims": grid.shape[-1], "output_sizes": value.shape, "output_strides": value.stride(),
        "input_sizes": given.shape, "input_strides": given.stride(), "grid_sizes": grid.shape,
        "grid_strides": grid.stride(), "align_corners": int(corners),
    }  # fmt: skip


def _slack(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what coordinates in float32 may change, and rounding each of a few terms to the dtype."""
    return value.abs().amax() * (1e-4 if dtype == torch.float32 else 64 * rounding(dtype))


@family(
    r"grid_sampler_(?P<dims>[23])d_(?P<mode>bilinear|nearest|bicubic)_(?P<pad>zeros|border|reflection)"
    r"_i(?:32|64)_(?P<a>float|half|bfloat)"
)
def _grid_sampler(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dims, dtype = int(match["dims"]), dtype_named(match["a"])
    for corners in (False, True):
        given, grid = _sampled(dims, dtype)
        value = F.grid_sample(
            given.double(), grid.double(), match["mode"], match["pad"], align_corners=corners
        )
        params = struct(kernel, "params", **_params(given, grid, value, corners=corners))
        threads = value.numel() // (value.shape[1] if dims == 2 else 1)
        yield Launch(
            {"output": untouched(value.shape, dtype), "input": given, "grid": grid, "params": params},
            (threads,), (32,), {"output": (given, value, _slack(value, dtype))},
        )  # fmt: skip


@family(
    r"grid_sampler_(?P<dims>[23])d_backward(?:_(?P<mode>bilinear|nearest|bicubic)_(?P<of>input|grid))?"
    r"(?:_(?P<pad>zeros|border|reflection))?_i(?:32|64)_(?P<a>float|half|bfloat)"
)
def _grid_sampler_backward(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    """Call with the modes that the name leaves open; what the nearest place does not change stays zero."""
    dims, dtype = int(match["dims"]), dtype_named(match["a"])
    modes = [match["mode"]] if match["mode"] else _INTERPOLATIONS[:2]
    paddings = [match["pad"]] if match["pad"] else _PADDINGS
    for mode, padding, corners in (
        (mode, padding, corners)
        for mode in modes
        for padding in paddings
        for corners in (False, True)
    ):
        given, grid = _sampled(dims, dtype)
        wide, places = given.double().requires_grad_(), grid.double().requires_grad_()
        result = F.grid_sample(wide, places, mode, padding, align_corners=corners)
        upstream = random(result.shape, dtype, 3)
        image, moved = torch.autograd.grad(result, (wide, places), upstream.double())
        params = struct(
            kernel, "params", **_params(given, grid, result, corners=corners),
            grad_output_strides=upstream.stride(), grad_input_strides=given.stride(),
            grad_grid_strides=grid.stride(), padding_mode=_PADDINGS.index(padding),
            interpolation_mode=_INTERPOLATIONS.index(mode), compute_grad_input=1, compute_grad_grid=1,
        )  # fmt: skip
        # Atomics of small dtypes take whole words, beyond the end of an odd tensor.
        bound = {
            "grad_input": torch.zeros(given.numel() + 8, dtype=dtype), "grad_output": upstream, "params": params,
            "grad_grid": torch.zeros(grid.shape, dtype=dtype), "input": given, "grid": grid,
        }  # fmt: skip
        bound = taken(kernel, bound)
        expected: dict[str, Any] = {}
        if "grad_input" in bound:
            image = torch.cat([image.flatten(), torch.zeros(8, dtype=torch.float64)])
            expected["grad_input"] = (upstream, image, _slack(image, dtype))
        if "grad_grid" in bound:
            expected["grad_grid"] = (upstream, moved, _slack(moved, dtype))
        depth, rows, columns = (1, *grid.shape[1:-1])[-3:]
        threads = (2 * rows * columns,) if dims == 2 else (columns, rows * depth, 2)
        yield Launch(bound, threads, (1,), expected)


# Upsampling's gradients.  Gathered: a thread for each place of the image, and a few for its channels.
# Scattered: a thread for each place of the result, which adds to zeros.

#: The mode of F.interpolate and the dimensions, by the name.
_MODES = {
    "nearest2d": ("nearest", 2), "nearest_exact2d": ("nearest-exact", 2), "nearest_3d": ("nearest", 3),
    "nearest_exact_3d": ("nearest-exact", 3), "bilinear2d": ("bilinear", 2), "bicubic2d": ("bicubic", 2),
    "trilinear": ("trilinear", 3), "bilinear2d_aa": ("bilinear", 2), "bicubic2d_aa": ("bicubic", 2),
}  # fmt: skip


@family(
    rf"upsample_(?P<mode>{'|'.join(_MODES)})_backward_(?P<a>float|half|bfloat)(?P<gathered>_u(?:32|64))?"
)
def _upsampling_backward(match: re.Match[str], kernel: Kernel) -> Iterator[Launch]:
    dtype, (mode, dims) = dtype_named(match["a"]), _MODES[match["mode"]]
    for shape, target, corners in (
        ((5, 4, 3)[:dims], (7, 9, 5)[:dims], False),
        ((6, 7, 4)[:dims], (3, 12, 4)[:dims], True),
    ):
        corners = corners and not mode.startswith("nearest")  # noqa: PLW2901  (nearest knows none)
        wide = torch.zeros((2, 3, *shape), dtype=torch.float64, requires_grad=True)
        flags: dict[str, Any] = {} if mode.startswith("nearest") else {"align_corners": corners}
        if match["mode"].endswith("_aa"):
            flags["antialias"] = True
        result = F.interpolate(wide, target, mode=mode, **flags)
        upstream = random(result.shape, dtype, 1)
        value = torch.autograd.grad(result, wide, upstream.double())[0]
        scales = [
            (s - 1) / (t - 1) if corners else s / t for s, t in zip(shape, target, strict=True)
        ]
        gradient = torch.zeros(wide.numel() + 8, dtype=dtype)
        bound = {"gradInputData": gradient, "gradOutputData": upstream}
        fields = {
            "input_strides": wide.stride(), "input_sizes": wide.shape, "output_strides": result.stride(),
            "output_sizes": result.shape,
        }  # fmt: skip
        if any(argument.name == "params" for argument in kernel.buffers):
            bound["params"] = struct(
                kernel,
                "params",
                **fields,
                scales=list(reversed(scales)),
                align_corners=(int(corners),),
            )
        else:  # up to 2.13, each a buffer of its own
            bound |= {name: numbers(*values, size=8) for name, values in fields.items()}
            bound["scales"] = torch.tensor(list(reversed(scales)), dtype=torch.float32)
            bound["align_corners"] = torch.tensor([corners])
        threads = (shape[1], shape[0], 4) if match["gathered"] else (result[0, 0].numel(),)
        value = torch.cat([value.flatten(), torch.zeros(8, dtype=torch.float64)])
        yield Launch(
            bound, threads, (1,), {"gradInputData": (upstream, value, 1e-5 + 32 * rounding(dtype))}
        )
