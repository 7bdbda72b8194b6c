"""Two programs for each known defect of Inductor's Metal backend: one that meets it, and a near one that does not.

``python -m tests.features.compile.defect_programs 2.10`` compiles the programs of that release with its own backend,
and prints the defects that ``opcheck compile`` names for each.  A backend is replaced once in a process.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from opcheck.common.versions import Target, Version
from opcheck.data.registrations import OpLists, load
from opcheck.data.wheels.inductor import BACKEND
from opcheck.features.compile.compile_process import backend
from opcheck.features.compile.compile_records import CompiledVariants, SideGraph, TriedVariant, Variant
from opcheck.features.compile.target_outcomes import report
from opcheck.tracing.torch_private import compilation

Program = Callable[[], list[SideGraph]]


class Pair(NamedTuple):
    """A defect, the release whose backend writes both programs, and the programs."""

    defect: str
    torch: str
    meets: Program
    does_not: Program
    #: the release of the second program, where it is another
    other_torch: str = ""


def compiled(
    program: Callable[..., object], *shapes: tuple[int, ...] | Tensor, train: bool = False, dynamic: bool | None = None
) -> Program:
    """Return what compiles a program for inputs of these shapes."""

    def run() -> list[SideGraph]:
        from tests.features.compile.side import side

        torch.manual_seed(0)
        inputs = [shape if isinstance(shape, Tensor) else torch.randn(shape, requires_grad=train) for shape in shapes]
        return side(program, *inputs, train=train, dynamic=dynamic)

    return run


def flipped(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y], 1).view(4)[:3].flip(0)


def by_head(heads: int) -> Callable[[Tensor], Tensor]:
    """Return a program that brings attention's heads to the front."""
    return lambda x: x.view(2, 1024, heads, 64).transpose(1, 2).contiguous().view(-1) + 1


def normed(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def exchanged(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    x, y = a.clone(), b.clone()
    x[:, :4] = b[:, :4]
    y[:, :4] = a[:, :4]
    return a * b, x, y


def added(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    x, y = a.clone(), b.clone()
    x[:, :4] += b[:, :4]
    y[:, :4] -= a[:, :4]
    return a * b, x, y


def branched(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))


def one_branch(x: Tensor) -> Tensor:
    return (x.sin() + 1) * (x.sum() > 0)


def summed(*tensors: Tensor) -> Tensor:
    total = tensors[0].sin()
    for tensor in tensors[1:]:
        total = total + tensor.sin()
    return total


def distances(a: Tensor, b: Tensor) -> Tensor:
    return (a[:, None] - b[None, :]).sum()


def nested_pads(x: Tensor) -> Tensor:
    return functional.pad(torch.cat([functional.pad(x, (1, 1)), x + 1], dim=1), (2, 2))


def flexible(x: Tensor) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    result = flex_attention(x, x, x)
    assert isinstance(result, Tensor)
    return result


def attention(query: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, query, value)


def indexed(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x[torch.arange(8) * 2], y])


def sized(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x[torch.arange(x.shape[0] // 2) * 2], y])


def with_largest_size(x: Tensor) -> Tensor:
    return x + torch.sym_max(torch.sym_max(x.shape[0], x.shape[1]), x.shape[2])


class Multiplies(nn.Module):
    """A module with a number of Python that changes between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 0.5

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


INTEGERS = torch.arange(64 * 64).reshape(64, 64)
IMAGES = torch.randn(2, 16, 8, 8).to(memory_format=torch.channels_last)


def in_last_order(layer: nn.Module) -> nn.Module:
    """Return a layer whose weights are in channels-last order, as ``Module.to`` makes them."""
    for parameter in layer.parameters():
        if parameter.dim() == IMAGES.dim():
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return layer


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(16, 8, 3), nn.Conv2d(8, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        result = self.layers(x)
        assert isinstance(result, Tensor)
        return result


def pooled(x: Tensor) -> Tensor:
    """Inductor chooses between 0 and the step of the windows, a float."""
    return functional.fractional_max_pool2d(x, 2, output_size=(5, 5))


PAIRS = (
    Pair("prototype", "2.7", compiled(torch.sin, (8,)), compiled(torch.sin, (8,)), "2.8"),
    Pair("welford-multi-stage", "2.7", compiled(normed, (4, 4096)), compiled(normed, (4, 64))),
    Pair("welford-barrier", "2.12", compiled(normed, (4, 64)), compiled(torch.sum, (4, 64))),
    Pair(
        "welford-dynamic", "2.12", compiled(normed, (4, 640), dynamic=True), compiled(normed, (4, 640), dynamic=False)
    ),
    Pair(
        "two-loops",
        "2.12",
        compiled(nn.BatchNorm2d(8).train(), (4, 8, 32, 32)),
        compiled(nn.BatchNorm2d(8).train(), (4, 8, 4, 4)),
    ),
    Pair(
        "loop-variable-scope",
        "2.7",
        compiled(lambda x: x.softmax(-1), (4, 4096)),
        compiled(lambda x: x.softmax(-1), (4, 64)),
    ),
    Pair("nested-loops", "2.10", compiled(distances, (32,), (64,)), compiled(distances, (8,), (8,))),
    Pair("masked-bounds", "2.10", compiled(indexed, (16,), (24,)), compiled(indexed, (64,), (24,))),
    Pair(
        "masked-bounds-perhaps",
        "2.10",
        compiled(sized, (16,), (24,), dynamic=True),
        compiled(indexed, (64,), (24,), dynamic=False),
    ),
    Pair(
        "masked-loads",
        "2.10",
        compiled(lambda x: functional.pad(x, (1, 1)), (4, 8)),
        compiled(lambda x: functional.pad(x, (0, 1)), (4, 8)),
    ),
    Pair("modulo-65536", "2.10", compiled(by_head(6), (2, 1024, 384)), compiled(by_head(8), (2, 1024, 512))),
    Pair("negative-floor-division", "2.7", compiled(flipped, (2, 1), (2, 1)), compiled(lambda x: x.flip(0), (4,))),
    Pair(
        "where-is-no-function",
        "2.9",
        compiled(lambda x: functional.pad(x, (2, 2), mode="reflect"), (1, 4, 16), dynamic=True),
        compiled(lambda x: functional.pad(x, (2, 2), mode="reflect"), (1, 4, 16), dynamic=False),
    ),
    Pair(
        "dynamic-reduction",
        "2.8",
        compiled(lambda x: x.sum(-1), (4, 640), dynamic=True),
        compiled(lambda x: x.sum(-1), (4, 640), dynamic=False),
    ),
    Pair(
        "min-max-of-three",
        "2.12",
        compiled(with_largest_size, (7, 5, 6), dynamic=True),
        compiled(with_largest_size, (7, 5, 6), dynamic=False),
    ),
    Pair(
        "infinite-extremes", "2.12", compiled(lambda x: x.amax(-1), (4, 4096)), compiled(lambda x: x.amax(-1), (4, 64))
    ),
    Pair("nested-masks", "2.11", compiled(nested_pads, (4, 8)), compiled(exchanged, (4, 8), (4, 8))),
    Pair("masked-blocks-share-a-value", "2.13", compiled(exchanged, (3, 8), (3, 8)), compiled(added, (3, 8), (3, 8))),
    Pair("branches-share-names", "2.13", compiled(branched, (4, 8)), compiled(one_branch, (4, 8))),
    Pair("missing-math", "2.13", compiled(torch.sinh, (4, 8)), compiled(torch.sin, (4, 8))),
    Pair("round-half", "2.8", compiled(torch.round, (4, 8)), compiled(torch.floor, (4, 8))),
    Pair(
        "python-floats", "2.7", compiled(Multiplies(), (8,), dynamic=True), compiled(Multiplies(), (8,), dynamic=False)
    ),
    Pair(
        "unsigned",
        "2.13",
        compiled(lambda x: x.t().contiguous(), INTEGERS.to(torch.uint32)),
        compiled(lambda x: x.t().contiguous(), INTEGERS.to(torch.uint8)),
    ),
    Pair(
        "int64-extremes",
        "2.13",
        compiled(lambda x: x.amax(-1), INTEGERS),
        compiled(lambda x: x.amax(-1), INTEGERS.int()),
    ),
    Pair("int64-product", "2.13", compiled(lambda x: x.prod(-1), INTEGERS), compiled(lambda x: x.sum(-1), INTEGERS)),
    Pair(
        "bfloat16-argmax",
        "2.13",
        compiled(lambda x: x.argmax(-1), torch.randn(4, 64).bfloat16()),
        compiled(lambda x: x.argmax(-1), torch.randn(4, 64)),
    ),
    Pair(
        "argmax-of-dimensions",
        "2.13",
        compiled(torch.argmax, torch.randn(8, 40).t()),
        compiled(torch.argmax, torch.randn(40, 8)),
    ),
    Pair(
        "where-casts-to-the-first",
        "2.13",
        compiled(pooled, (1, 2, 12, 12)),
        compiled(lambda x: functional.max_pool2d(x, 2), (1, 2, 12, 12)),
    ),
    Pair(
        "flex-attention",
        "2.12",
        compiled(flexible, (1, 2, 128, 32)),
        compiled(attention, (1, 2, 128, 32), (1, 2, 128, 32)),
    ),
    Pair(
        "attention-value-dimension",
        "2.11",
        compiled(attention, (1, 16, 32), (1, 16, 24)),
        compiled(attention, (1, 16, 32), (1, 16, 32)),
    ),
    Pair(
        "transposed-convolution-layout",
        "2.7",
        compiled(in_last_order(nn.ConvTranspose2d(16, 4, 3)), IMAGES),
        compiled(in_last_order(nn.Conv2d(16, 4, 3)), IMAGES),
    ),
    Pair(
        "convolution-backward-layout",
        "2.10",
        compiled(in_last_order(Convolution()), IMAGES, train=True),
        compiled(Convolution(), IMAGES.contiguous(), train=True),
    ),
    Pair("buffers", "2.13", compiled(summed, *[(4, 8)] * 40), compiled(summed, *[(4, 8)] * 20)),
)


def named_defects(graphs: list[SideGraph], torch_release: str, lists: OpLists) -> list[str]:
    """Return the defects that a report names for compiled graphs."""
    tried = TriedVariant(
        variant=Variant(backend="inductor", metal=True), outcome="works", graphs=len(graphs), side=tuple(graphs)
    )
    judged = report(
        CompiledVariants(
            model="m", installed_torch=str(torch.__version__), metal_backend=torch_release, device="cpu", tried=(tried,)
        ),
        Target(torch=Version.parse(torch_release), macos=Version(26)),
        lists,
        "",
    )
    named = {group.defect for group in judged.failures}
    return sorted(filter(None, named | {advisory.id for advisory in judged.advisories}))


def main(release: str) -> None:
    """Compile the programs of a release, and print what is named for each, by defect."""
    warnings.simplefilter("ignore")
    lists = load()
    own = backend(lists.release(release))
    assert not own.problem, own.problem
    if own.folder:
        compilation.use_metal_backend(Path(own.folder) / BACKEND)
    named: dict[str, dict[str, list[str]]] = {}
    for pair in PAIRS:
        programs = {"meets": (pair.torch, pair.meets), "does not": (pair.other_torch or pair.torch, pair.does_not)}
        for name, (torch_release, program) in programs.items():
            if torch_release == release:
                graphs = program()
                named.setdefault(pair.defect, {})[name] = named_defects(graphs, release, lists)
    sys.stdout.write(json.dumps(named) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
