"""Time the side-compile for Metal beside CPU Inductor's own compilation of the same programs.

    python scripts/bench_compile.py [NAME ...]

Each program of ``examples/models/compiled.py`` is compiled in inference by both, in a fork of one process that has
Inductor imported and prepared, with Inductor's caches off; the first call minus a second is the time of compiling.
The side-compile includes the eager run of the graph, as a user's does.
"""

import argparse
import sys
import warnings
from pathlib import Path

import torch

from opcheck.features.compile.child.inductor_metal import preload
from opcheck.features.compile.child.variants import ProgramCall, attempt
from opcheck.features.compile.compile_records import TriedVariant, Variant
from opcheck.worker.worker import run_forked

sys.path.insert(0, str(Path(__file__).parents[1]))

from examples.models.compiled import PROGRAMS

#: Those that both compile; the others show a refusal, or that nothing is compiled.
NAMES = ("images", "attention", "graph_break", "sorting", "many")


def main() -> int:
    """Print a line a program, then the whole."""
    parser = argparse.ArgumentParser(description="The side-compile beside CPU Inductor.")
    parser.add_argument("names", nargs="*", default=NAMES)
    names = parser.parse_args().names
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    preload()
    metal_total = cpu_total = 0.0
    for name in names:
        metal = _seconds(name, Variant(backend="inductor", metal=True))
        cpu = _seconds(name, Variant(backend="inductor"))
        metal_total, cpu_total = metal_total + metal, cpu_total + cpu
        print(f"{name}: Metal {metal:.2f} s, CPU {cpu:.2f} s, ratio {metal / cpu:.2f}", flush=True)
    print(f"whole: Metal {metal_total:.2f} s, CPU {cpu_total:.2f} s, ratio {metal_total / cpu_total:.2f}")
    return int(metal_total > cpu_total)


def _seconds(name: str, variant: Variant) -> float:
    module, inputs = PROGRAMS[name]()

    def work() -> TriedVariant:
        with torch._inductor.config.patch(force_disable_caches=True):  # noqa: SLF001 - torch has no other switch
            return attempt(ProgramCall(module, (), inputs), variant)

    tried = run_forked(work, TriedVariant, 600.0)
    if tried.outcome not in {"works", "one shape only", "fails"} or not tried.seconds:
        print(f"{name}: {variant}: {tried.outcome}: {tried.failure}", file=sys.stderr)
    return tried.seconds


if __name__ == "__main__":
    sys.exit(main())
