"""Time ``opcheck scan`` on files of 10,000 and of 100,000 lines, and print what a line takes in each.

A ratio near 1 says that the time grows as the file does.  Times are those of the processor, so that other programs on
the machine count little.  Where 100,000 lines are more than a scan reads, it gets as many as it reads.

    python scripts/bench_scan.py [SHAPE ...]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from opcheck.common.versions import Target, Version
from opcheck.source.engine import scan

TARGET = Target(torch=Version(2, 13), macos=Version(26))
FEW, MANY, BYTES = 10_000, 100_000, 1_900_000
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


def seconds(text: str) -> float:
    """How long a scan of a file with this text takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.py")
        path.write_text(f"import torch\n{text}", encoding="utf-8")
        start = time.process_time()
        scan([str(path)], TARGET)
        return time.process_time() - start


def main() -> None:
    """Print a line for each shape: both times, and the ratio of the times per line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(SHAPES)}; or all"
    )
    names = parser.parse_args().shapes
    if unknown := [name for name in names if name not in SHAPES]:
        parser.error(f"no such shape: {unknown[0]}")
    seconds("")  # what is read once
    for name in names or SHAPES:
        line = SHAPES[name]
        repeated = line.count("\n")
        most = min(MANY, BYTES // len(line) * repeated)
        few, many = (seconds(line * (count // repeated)) for count in (FEW, most))
        ratio = (many / most) / (few / FEW)
        print(f"{name:10} {FEW:,}: {few:.2f} s  {most:,}: {many:.2f} s  per line: x{ratio:.2f}")


if __name__ == "__main__":
    main()
