"""Time ``opcheck scan`` on three sizes, in seconds of the processor and lines a second, and on files that repeat lines.

The sizes: files that name nothing of CUDA; transformers, diffusers and torch as they are installed; 10,000 findings.
Times are those of this process and its children, so that other programs on the machine count little.  For a repeated
line the last column compares 100,000 lines with 10,000: near 1, the time grows as the file does.

    python scripts/bench_scan.py [NAME ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
import time
from pathlib import Path

from opcheck.common.versions import Target, Version
from opcheck.source.engine import scan

TARGET = Target(torch=Version(2, 13), macos=Version(26))
FEW, MANY, BYTES = 10_000, 100_000, 1_900_000
LIBRARIES = ("transformers", "diffusers", "torch")
#: A file of the size that names nothing of CUDA, and how many there are.
PLAIN, FILES = "def f{0}(x, y):\n    z = x * y + {0}\n    return [z, x.mean(), 'text']\n\n\n", 300
#: a line, or two lines that repeat, by name
SHAPES = {
    "calls": "x.cuda()\n",
    "names": "x = x.to(x)\n",
    "comments": "x.cuda()  # opcheck: ignore[OC201] here\n",
    "functions": "def _f(): x.cuda()\n_f()\n",
    "guards": "if not torch.cuda.is_available(): x = 1\nx.cuda()\n",
    "imports": "import triton\n",
    "plain": "y = f(x) + 1\n",
}


def measure(paths: list[str]) -> tuple[float, int, int]:
    """Scan paths; return the seconds of the processor, the lines and the findings."""
    start = os.times()
    report = scan(paths, TARGET)
    end = os.times()
    seconds = sum(end[:4]) - sum(start[:4])
    return seconds, report.read["lines"], len(report.findings)


def measure_text(text: str, count: int = 1) -> tuple[float, int, int]:
    """Measure so many files with a text."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            Path(folder, f"a{number}.py").write_text(f"import torch\n{text}", encoding="utf-8")
        return measure([folder])


def installed() -> list[str]:
    """Return the folders of the installed libraries."""
    specs = map(importlib.util.find_spec, LIBRARIES)
    return [folder for spec in specs if spec for folder in spec.submodule_search_locations or ()]


def compare(line: str) -> str:
    """Compare a repeated line in a small and a large file."""
    repeated = line.count("\n")
    most = min(MANY, BYTES // len(line) * repeated)
    few, many = (measure_text(line * (count // repeated))[0] for count in (FEW, most))
    return (
        f"{FEW:,}: {few:.2f} s  {most:,}: {many:.2f} s  per line: x{many / most / (few / FEW):.2f}"
    )


SIZES = {
    "nothing": lambda: measure_text("".join(map(PLAIN.format, range(200))), FILES),
    "libraries": lambda: measure(installed()),
    "findings": lambda: measure_text(SHAPES["calls"] * 100, 100),
}


def main() -> None:
    """Print a line for each size and shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [*SIZES, *SHAPES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; or all")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such size or shape: {unknown[0]}")
    measure_text("")  # what is read once
    for name in names or known:
        if name in SHAPES:
            print(f"{name:10} {compare(SHAPES[name])}")
            continue
        begin = time.perf_counter()
        seconds, lines, findings = SIZES[name]()
        elapsed = time.perf_counter() - begin
        print(
            f"{name:10} {lines:,} lines, {findings:,} findings: {seconds:.1f} s of CPU, {elapsed:.1f} s elapsed, "
            f"{lines / seconds:,.0f} lines/s"
        )


if __name__ == "__main__":
    main()
