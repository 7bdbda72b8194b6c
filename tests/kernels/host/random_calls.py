"""Random calls of the operators that the host side binds: shapes, layouts, dtypes and arguments are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opcheck.kernels.host.host_call import HostCall
from opcheck.numerics.child.float64 import Float64Call

aten = torch.ops.aten
Drawn = tuple[Any, tuple[Any, ...]] | tuple[Any, tuple[Any, ...], dict[str, Any]]
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
MOVED = (*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64)


class Draw(random.Random):
    """Draws the parts of a call."""

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.randrange(1 << 30))

    def shape(self, dims: int, most: int = 9) -> list[int]:
        return [self.randint(1, most) for _ in range(dims)]

    def tensor(self, shape: list[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor that is contiguous, transposed, or has every second column of another."""
        seeded = self.generator()
        layout = self.choice(("plain", "plain", "turned", "second")) if len(shape) > 1 else "plain"
        wide = list(shape)
        if layout == "turned":
            wide[-1], wide[-2] = wide[-2], wide[-1]
        elif layout == "second":
            wide[-1] *= 2
        if dtype.is_floating_point or dtype.is_complex:
            drawn = torch.complex64 if dtype.is_complex else torch.float32
            whole = torch.randn(wide, generator=seeded, dtype=drawn).to(dtype)
        else:
            whole = torch.randint(0, 9, wide, generator=seeded).to(dtype)
        if layout == "turned":
            return whole.transpose(-1, -2)
        return whole[..., ::2] if layout == "second" else whole

    def places(self, shape: list[int], size: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.randint(0, size, shape, generator=self.generator()).to(dtype)


def _along(draw: Draw) -> tuple[list[int], int, list[int]]:
    """A shape, one of its dimensions, and a shape of indices that is no larger elsewhere."""
    shape = draw.shape(draw.randint(1, 4))
    dim = draw.randrange(len(shape))
    index = [draw.randint(1, size) if draw.random() < 0.3 else size for size in shape]
    index[dim] = draw.randint(1, 9)
    return shape, dim, index


def gather(draw: Draw) -> Drawn:
    shape, dim, index = _along(draw)
    x = draw.tensor(shape, draw.choice(MOVED))
    return aten.gather.default, (x, dim, draw.places(index, shape[dim]))


def _distinct(draw: Draw, index: list[int], dim: int, size: int) -> Tensor:
    """Indices without duplicates along a dimension, so that the order of writes is nothing."""
    order = torch.rand([*index[:dim], size, *index[dim + 1 :]], generator=draw.generator())
    return order.argsort(dim).narrow(dim, 0, index[dim])


def scatter(draw: Draw) -> Drawn:
    shape, dim, index = _along(draw)
    index[dim] = draw.randint(1, shape[dim])
    dtype = draw.choice(MOVED)
    places = _distinct(draw, index, dim, shape[dim])
    x = draw.tensor(shape, dtype)
    if draw.random() < 0.5:
        return aten.scatter.value, (x, dim, places, 1)
    return aten.scatter.src, (x, dim, places, draw.tensor(index, dtype))


def scatter_add(draw: Draw) -> Drawn:
    shape, dim, index = _along(draw)
    x = draw.tensor(shape)
    return aten.scatter_add.default, (x, dim, draw.places(index, shape[dim]), draw.tensor(index, x.dtype))


def scatter_reduce(draw: Draw) -> Drawn:
    shape, dim, index = _along(draw)
    dtype = draw.choice((torch.float32, torch.int64, torch.int32))
    x, source = draw.tensor(shape, dtype), draw.tensor(index, dtype)
    reduce = draw.choice(("sum", "prod", "amax", "amin"))
    return aten.scatter_reduce.two, (x, dim, draw.places(index, shape[dim]), source, reduce)


def index(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 4))
    x, common = draw.tensor(shape, draw.choice(MOVED)), draw.shape(draw.randint(1, 2), 5)
    indices: list[Tensor | None] = []
    for size in shape[: draw.randint(1, len(shape))]:
        kind = draw.random()
        indices.append(None if kind < 0.3 else draw.places(common, size) - size * (kind > 0.8))
    if all(each is None for each in indices):
        indices[-1] = draw.places(common, shape[len(indices) - 1])
    if draw.random() < 0.2:
        return aten.index.Tensor, (x, [draw.tensor(shape) > 0])
    return aten.index.Tensor, (x, indices)


def index_put(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    accumulate = draw.random() < 0.5
    x = draw.tensor(shape, torch.float32 if accumulate else draw.choice(MOVED))
    dim = draw.randrange(len(shape))
    count = draw.randint(1, 6 if accumulate else shape[dim])
    places = draw.places([count], shape[dim]) if accumulate else _distinct(draw, [count], 0, shape[dim])  # fmt: skip
    value = draw.tensor([count, *shape[dim + 1 :]], x.dtype)
    return aten.index_put.default, (x, [None] * dim + [places], value, accumulate)


def index_select(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 4))
    dim = draw.randrange(len(shape))
    places = draw.places(draw.shape(1), shape[dim], draw.choice((torch.int64, torch.int32)))
    return aten.index_select.default, (draw.tensor(shape, draw.choice(MOVED)), dim, places)


def embedding(draw: Draw) -> Drawn:
    weight = draw.tensor([draw.randint(1, 30), draw.randint(1, 40)], draw.choice(FLOATS))
    return aten.embedding.default, (weight, draw.places(draw.shape(draw.randint(1, 3)), len(weight)))


def embedding_dense_backward(draw: Draw) -> Drawn:
    shape, count = draw.shape(draw.randint(1, 3)), draw.randint(1, 12)
    upstream = draw.tensor([*shape, draw.randint(1, 20)], draw.choice(FLOATS))
    padding = draw.choice((-1, 0))
    places = draw.places(shape, count)
    return aten.embedding_dense_backward.default, (upstream, places, count, padding, draw.random() < 0.5)  # fmt: skip


def index_add(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    dim, count = draw.randrange(len(shape)), draw.choice((3, 40))
    x = draw.tensor(shape, draw.choice((torch.float32, torch.int64, torch.int32)))
    source = draw.tensor([*shape[:dim], count, *shape[dim + 1 :]], x.dtype)
    places = draw.places([count], shape[dim])
    return aten.index_add.default, (x, dim, places, source), {"alpha": draw.choice((1, 2))}


def index_copy(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    dim = draw.randrange(len(shape))
    count = draw.randint(1, shape[dim])
    x = draw.tensor(shape, draw.choice(FLOATS))
    source = draw.tensor([*shape[:dim], count, *shape[dim + 1 :]], x.dtype)
    return aten.index_copy.default, (x, dim, _distinct(draw, [count], 0, shape[dim]), source)


def index_fill(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3), 40)
    dim = draw.randrange(len(shape))
    x = draw.tensor(shape, draw.choice(MOVED[:-1]))
    return aten.index_fill.int_Scalar, (x, dim, draw.places([draw.randint(1, 3)], shape[dim]), 1)


def masked_fill(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    x = draw.tensor(shape, draw.choice(MOVED))
    own = shape[draw.randrange(len(shape)) :] if draw.random() < 0.4 else shape
    own = [1 if draw.random() < 0.2 else size for size in own]
    return aten.masked_fill.Scalar, (x, draw.tensor(own) > 0, 1)


def cat(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    dim, dtype = draw.randrange(len(shape)), draw.choice(MOVED)
    parts = [draw.tensor([*shape[:dim], draw.randint(1, 5), *shape[dim + 1 :]], dtype) for _ in range(3)]
    return aten.cat.default, (parts, dim)


def stack(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    return aten.stack.default, ([draw.tensor(shape) for _ in range(3)], draw.randrange(len(shape) + 1))  # fmt: skip


def constant_pad_nd(draw: Draw) -> Drawn:
    shape = [size + 3 for size in draw.shape(draw.randint(1, 4))]
    pads = [draw.randint(-1, 3) for _ in range(2 * draw.randint(1, len(shape)))]
    pads[0] = 2
    return aten.constant_pad_nd.default, (draw.tensor(shape, draw.choice(FLOATS)), pads, 0.5)


def _padded(draw: Draw, dims: int, backward: bool) -> tuple[list[Tensor], list[int]]:
    shape = [*draw.shape(2, 4), *(size + 4 for size in draw.shape(dims, 6))]
    pads = [draw.randint(0, 3) for _ in range(2 * dims)]
    x = draw.tensor(shape, torch.float32 if backward else draw.choice(FLOATS))
    if not backward:
        return [x], pads
    large = shape[:2] + [
        shape[-1 - at] + pads[2 * at] + pads[2 * at + 1] for at in range(dims)
    ][::-1]  # fmt: skip
    return [draw.tensor(large, x.dtype), x], pads


def _pads(name: str, dims: int, *, backward: bool = False) -> Callable[[Draw], Drawn]:
    def drawn(draw: Draw) -> Drawn:
        tensors, pads = _padded(draw, dims, backward)
        return getattr(aten, name).default, (*tensors, pads)

    return drawn


def tril(draw: Draw) -> Drawn:
    x = draw.tensor(draw.shape(draw.randint(2, 4)), draw.choice(MOVED))
    return draw.choice((aten.tril, aten.triu)).default, (x, draw.randint(-3, 3))


def fill(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    return aten.fill.Scalar, (draw.tensor(shape, draw.choice((*FLOATS, torch.int64))), 3)


def arange(draw: Draw) -> Drawn:
    start, step = draw.randint(-5, 5), draw.choice((1, 2, 0.5))
    return aten.arange.start_step, (start, start + 9, step)


def glu(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    dim = draw.randrange(len(shape))
    shape[dim] *= 2
    return aten.glu.default, (draw.tensor(shape), dim)


def norm(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3), 60)
    p = draw.choice((None, 1, 2, 3))
    return aten.norm.ScalarOpt_dim, (draw.tensor(shape), p, [draw.randrange(len(shape))])


def native_group_norm(draw: Draw) -> Drawn:
    batch, groups, each = draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 5)
    shape = [batch, groups * each, *draw.shape(2, 12)]
    dtype = draw.choice(FLOATS)
    x = draw.tensor(shape, dtype).contiguous()
    weight = draw.choice((None, draw.tensor([shape[1]], dtype)))
    return aten.native_group_norm.default, (
        x, weight, weight, batch, shape[1], shape[2] * shape[3], groups, 1e-5
    )  # fmt: skip


def native_group_norm_backward(draw: Draw) -> Drawn:
    _, (x, weight, _, *sizes, eps) = native_group_norm(draw)[:2]
    x = x.float()
    weight = None if weight is None else weight.float()
    _, mean, rstd = aten.native_group_norm.default(x, weight, weight, *sizes, eps)
    mask = [True, weight is not None, weight is not None]
    upstream = draw.tensor(list(x.shape)).contiguous()
    return aten.native_group_norm_backward.default, (upstream, x, mean, rstd, weight, *sizes, mask)


def nll_loss_forward(draw: Draw) -> Drawn:
    rows, classes = draw.randint(1, 9), draw.randint(2, 9)
    weight = draw.choice((None, draw.tensor([classes]).abs()))
    target = draw.places([rows], classes)
    return aten.nll_loss_forward.default, (draw.tensor([rows, classes]), target, weight, 0, -100)


def nll_loss_backward(draw: Draw) -> Drawn:
    _, (x, target, weight, _, ignored) = nll_loss_forward(draw)[:2]
    x, reduction = x.contiguous(), draw.choice((0, 1, 2))
    _, total = aten.nll_loss_forward.default(x, target, weight, reduction or 1, ignored)
    upstream = draw.tensor([] if reduction else list(target.shape))
    return aten.nll_loss_backward.default, (
        upstream, x, target, weight, reduction, ignored, total
    )  # fmt: skip


def _pool(name: str, dims: int) -> Callable[[Draw], Drawn]:
    def drawn(draw: Draw) -> Drawn:
        shape = [*draw.shape(2, 3), *(draw.randint(4, 9) for _ in range(dims))]
        size, step = ([draw.randint(2, 3) for _ in range(dims)] for _ in range(2))
        padding = [draw.randint(0, 1) for _ in range(dims)]
        dilation = [draw.choice((1, 1, 2)) if each > 7 else 1 for each in shape[2:]]
        x = draw.tensor(shape if draw.random() < 0.7 else shape[1:], draw.choice(FLOATS))
        ceil = draw.random() < 0.3
        return getattr(aten, name).default, (x, size, step, padding, dilation, ceil)

    return drawn


def max_pool3d_with_indices_backward(draw: Draw) -> Drawn:
    _, (x, *window) = _pool("max_pool3d_with_indices", 3)(draw)[:2]
    x = x.float().contiguous()
    out, places = aten.max_pool3d_with_indices.default(x, *window)
    upstream = draw.tensor(list(out.shape)).contiguous()
    return aten.max_pool3d_with_indices_backward.default, (upstream, x, *window, places)


def native_dropout_backward(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3))
    upstream, kept = draw.tensor(shape, draw.choice(FLOATS)), draw.tensor(shape) > 0
    return aten.native_dropout_backward.default, (upstream, kept, 1.25)


def flip(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 4))
    dims = [dim for dim in range(len(shape)) if draw.random() < 0.5]
    return aten.flip.default, (draw.tensor(shape, draw.choice(MOVED)), dims)


def _safe_softmax(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 3), 40)
    x = draw.tensor(shape, draw.choice(FLOATS))
    x = x.masked_fill(x.select(-1, 0).unsqueeze(-1) > 0.5, -torch.inf)
    return aten._safe_softmax.default, (x, draw.randrange(len(shape)))


def max_dim(draw: Draw) -> Drawn:
    shape = draw.shape(draw.randint(1, 4), 40)
    func, dim = draw.choice((aten.max, aten.min)).dim, draw.randrange(len(shape))
    return func, (draw.tensor(shape, draw.choice((*FLOATS, torch.int64))), dim, draw.random() < 0.5)


def _upsampled(name: str, dims: int, *, corners: bool, backward: bool = False) -> Callable[[Draw], Drawn]:
    def drawn(draw: Draw) -> Drawn:
        shape, target = [*draw.shape(2, 3), *draw.shape(dims)], draw.shape(dims, 15)
        flags = (draw.random() < 0.5,) if corners else ()
        dtype = torch.float32 if backward or name.endswith("_aa") else draw.choice(FLOATS)
        if backward:
            upstream = draw.tensor([*shape[:2], *target], dtype).contiguous()
            return getattr(aten, f"{name}_backward").default, (upstream, target, shape, *flags)
        return getattr(aten, name).default, (draw.tensor(shape, dtype).contiguous(), target, *flags)

    return drawn


def _sorted(draw: Draw, dtypes: tuple[torch.dtype, ...]) -> tuple[Tensor, int]:
    shape = draw.shape(draw.randint(1, 3))
    dim = draw.randrange(len(shape))
    shape[dim] = draw.choice((2, 5, 33, 130, 700))
    return draw.tensor(shape, draw.choice(dtypes)), dim


def sort(draw: Draw) -> Drawn:
    x, dim = _sorted(draw, (*FLOATS, torch.int64, torch.int32))
    flags = {"stable": draw.choice((None, True)), "dim": dim, "descending": draw.random() < 0.5}
    return aten.sort.stable, (x,), flags


def sort_long(draw: Draw) -> Drawn:
    x = draw.tensor([draw.choice((1, 3, 300)), draw.choice((3000, 5000))])
    return aten.sort.stable, (x,), {"stable": draw.random() < 0.5, "descending": draw.random() < 0.5}  # fmt: skip


def topk(draw: Draw) -> Drawn:
    x, dim = _sorted(draw, (*FLOATS, torch.int64))
    return aten.topk.default, (x, draw.randint(1, x.shape[dim]), dim, draw.random() < 0.5, True)


def kthvalue(draw: Draw) -> Drawn:
    x, dim = _sorted(draw, FLOATS)
    return aten.kthvalue.default, (x, draw.randint(1, x.shape[dim]), dim)


CALLS: dict[str, Callable[[Draw], Drawn]] = {
    each.__name__: each
    for each in (
        gather, scatter, scatter_add, scatter_reduce, index, index_put, index_select, embedding,
        embedding_dense_backward, index_add, index_copy, index_fill, masked_fill, cat, stack, constant_pad_nd, tril,
        fill, arange, glu, norm, native_group_norm, native_group_norm_backward, nll_loss_forward, nll_loss_backward,
        sort, sort_long, topk, kthvalue, max_pool3d_with_indices_backward, native_dropout_backward, flip, _safe_softmax,
        max_dim,
    )
}  # fmt: skip
for _name, _dims in (("max_pool2d", 2), ("max_pool2d_with_indices", 2), ("max_pool3d_with_indices", 3)):
    CALLS[_name] = _pool(_name, _dims)
for _dims in (1, 2, 3):
    for _mode in ("reflection", "replication"):
        _name = f"{_mode}_pad{_dims}d"
        CALLS[_name] = _pads(_name, _dims)
        CALLS[f"{_name}_backward"] = _pads(f"{_name}_backward", _dims, backward=True)
for _name, _dims, _corners in (
    ("upsample_nearest1d", 1, False), ("upsample_nearest2d", 2, False), ("upsample_nearest3d", 3, False),
    ("_upsample_nearest_exact2d", 2, False), ("upsample_linear1d", 1, True), ("upsample_bilinear2d", 2, True),
    ("upsample_bicubic2d", 2, True), ("upsample_trilinear3d", 3, True), ("_upsample_bilinear2d_aa", 2, True),
):  # fmt: skip
    CALLS[_name] = _upsampled(_name, _dims, corners=_corners)
    if _dims > 1:
        CALLS[f"{_name}_backward"] = _upsampled(_name, _dims, corners=_corners, backward=True)


def drawn_call(name: str, seed: int) -> HostCall:
    """A call of an operator with the CPU's results; the same for a seed."""
    func, args, *named = CALLS[name](Draw(f"{name} {seed}"))
    call = Float64Call(func, args, named[0] if named else {})
    outputs = tuple(call.result_tensors(func(*args, **call.kwargs)))
    return HostCall(func, func._schema.name.split("::")[1], call.arguments(), outputs)
