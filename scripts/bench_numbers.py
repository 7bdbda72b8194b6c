"""What a call by the release's own kernels costs beside torch's CPU on one thread, on this machine.

``kernel`` is the launch alone, in full, ``check`` what a call of a program pays on top of it: comparison and plan, of a
sample where the call is large.  With ``--loop`` also a training loop of a small network, run emulated without and with
kernels.  Times are of the processor, the best of five.

    python -m scripts.bench_numbers [GROUP ...] [--torch 2.15.0] [--elements 1000000] [--loop]
"""

import argparse
import time
import timeit
from collections.abc import Callable
from typing import Any

import torch
from tabulate import tabulate

import opcheck
from opcheck.data import targets
from opcheck.data.registrations import load
from opcheck.data.wheels.archive import default_cache
from opcheck.kernels import values
from opcheck.kernels.host import bindings, release_kernels
from opcheck.kernels.host.host_call import HostCall
from opcheck.kernels.kernel_machine import KernelMachine
from opcheck.numerics.child.float64 import Float64Call
from opcheck.numerics.kernels.child.kernel_check import KernelCheck

aten = torch.ops.aten
REPEATS = 5
#: The most times torch's single core that a group may take.
LIMITS = {"pointwise": 5, "rows": 30, "indexing": 20}


def packet(name: str) -> Any:
    """Return the default overload of an operator."""
    return getattr(aten, name).default


def calls(count: int) -> dict[str, dict[str, tuple[Any, tuple[Any, ...]]]]:
    """Return the calls of each group, of about so many elements."""
    rows = max(1, count // 1000)
    x, y = (torch.rand(count, generator=values.generator(salt)) + 0.5 for salt in (1, 2))
    table = torch.randn(rows, 1000, generator=values.generator(3))
    weight = torch.rand(1000)
    places = torch.randint(rows, (rows,), generator=values.generator(4))
    columns = torch.randint(1000, (rows, 1000), generator=values.generator(5))
    return {
        "pointwise": {
            "mul": (aten.mul.Tensor, (x, y)),
            "add, 2-d": (aten.add.Tensor, (table, table.clone())),
            "mul by a number": (aten.mul.Tensor, (x, 2.5)),
            **{name: (packet(name), (x,)) for name in ("exp", "log", "tanh", "sigmoid", "silu", "gelu", "sqrt", "sin")},
            "every second": (aten.exp.default, (table[:, ::2],)),
            "where": (aten.where.self, (x > 1, x, y)),
        },
        "rows": {
            "softmax": (packet("_softmax"), (table, -1, False)),
            "log_softmax": (packet("_log_softmax"), (table, -1, False)),
            "layer_norm": (aten.native_layer_norm.default, (table, [1000], weight, weight, 1e-5)),
            "rms_norm": (packet("_fused_rms_norm"), (table, [1000], weight, 1e-5)),
            "sum of rows": (aten.sum.dim_IntList, (table, [1])),
            "var": (aten.var.correction, (table, [1])),
            "cumsum": (aten.cumsum.default, (table, 1)),
        },
        "indexing": {
            "index_select": (packet("index_select"), (table, 0, places)),
            "embedding": (packet("embedding"), (table, places)),
            "gather": (packet("gather"), (table, 1, columns)),
            "scatter_add": (packet("scatter_add"), (table, 1, columns, table)),
            "index": (aten.index.Tensor, (table, [places])),
            "index_put": (packet("index_put"), (table, [places], table, True)),
            "masked_fill": (aten.masked_fill.Scalar, (table, table > 0, 0.5)),
            "cat": (packet("cat"), ([table, table], 1)),
        },
    }


def best(work: Callable[[], object]) -> float:
    """Return the least milliseconds of the processor that work took."""
    work()
    return min(timeit.repeat(work, timer=time.process_time, number=1, repeat=REPEATS)) * 1e3


def measure(
    func: Any, args: tuple[Any, ...], released: release_kernels.ReleaseKernels, check: KernelCheck
) -> tuple[float, float, float]:
    """Return the milliseconds of torch, of the kernels in full, and of what a check adds to torch."""
    call = Float64Call(func, args, {})
    result = func(*args)
    name = func.name().partition("::")[2].partition(".")[0]
    host = HostCall(func, name, call.arguments(), tuple(call.result_tensors(result)))
    bound = bindings.bind(host, released)

    def checked() -> None:
        prepared = check.prepare(func.name(), func, args, {})
        assert prepared is not None
        check.compare_result(prepared, result)

    return best(lambda: func(*args)), best(bound.run), best(checked)


def print_table(groups: list[str], release: str, count: int) -> bool:
    """Print a row for each call; return whether each ratio is within the limit of its group."""
    lists = load()
    machine = KernelMachine(default_cache().parent / "kernels", optimized=True)
    released = release_kernels.of_release(release, machine)
    check = KernelCheck(targets.target(release, None, lists), lists, released)
    rows, within = [], True
    for group, of_group in calls(count).items():
        for name, (func, args) in of_group.items() if not groups or group in groups else ():
            plain, kernel, checked = measure(func, args, released, check)
            ratio = kernel / max(plain, 1e-3)
            within &= ratio <= LIMITS[group]
            rows.append((group, name, plain, kernel, f"x{ratio:.1f}", f"x{LIMITS[group]}", checked))
    headers = ("group", "call", "torch ms", "kernel ms", "ratio", "limit", "check ms")
    print(f"torch {release}, {count:,} elements, one thread")
    print(tabulate(rows, headers, floatfmt=".2f"))
    return within


def step_time(kernels: Any, release: str) -> float:
    """Return the milliseconds of a step of a small network's training on the emulated Mac."""
    torch.manual_seed(0)
    with opcheck.emulate(torch=release, kernels=kernels):
        net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 10)).to("mps")
        optimizer = torch.optim.AdamW(net.parameters())
        x = torch.randn(128, 64, device="mps")

        def step() -> None:
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for _ in range(5):
            step()

        def steps() -> None:
            for _ in range(10):
                step()

        return best(steps) / 10


def main() -> int:
    """Print the ratios; exit with 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("groups", nargs="*", choices=[*LIMITS, []])
    parser.add_argument("--torch", default="2.15.0", help="release of the kernels")
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--loop", action="store_true", help="a training loop, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    within = print_table(options.groups, options.torch, options.elements)
    if options.loop:
        line = ".".join(options.torch.split(".")[:2])
        alone, shadow = step_time("", line), step_time("shadow", line)
        print(f"training step: {alone:.1f} ms alone, {shadow:.1f} ms in shadow, x{shadow / alone:.1f}")
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
