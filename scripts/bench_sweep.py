"""How much faster two processes sweep than one, and what a model costs: run it on a quiet machine.

python scripts/bench_sweep.py [MODELS ...]
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from opcheck.features.sweep.sweep_folder import read

MODELS = ("transformers:Bert*", "transformers:GPT2*", "transformers:ViT*", "timm:vit_tiny*")


def seconds(models: list[str], jobs: int, folder: Path) -> float:
    """What the sweep takes, imports and all."""
    flags = ["--macos", "14", "--macos", "15", "--macos", "26", "--folder", str(folder), "-q"]
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "opcheck", "sweep", *models, *flags, "--jobs", str(jobs)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - start


def main() -> int:
    """Print the times and their ratio."""
    models = sys.argv[1:] or list(MODELS)
    with tempfile.TemporaryDirectory() as name:
        taken = {jobs: seconds(models, jobs, Path(name) / str(jobs)) for jobs in (1, 2)}
        about, results = read(Path(name) / "1")
        each = [result.seconds for result in results]
    for jobs, wall in taken.items():
        print(f"{jobs} process(es): {wall:.1f} s for {len(each) // len(about.modes)} models, imports included")
    print(f"one process takes {taken[1] / taken[2]:.2f} times as long as two")
    print(
        f"{len(about.targets)} targets: {sum(each) / len(each):.2f} s for a model and mode, "
        f"{1000 * sum(each) / len(each) / len(about.targets):.1f} ms for each of its targets"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
