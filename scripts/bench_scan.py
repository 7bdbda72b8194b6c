"""Time ``opcheck scan`` on three sizes, in seconds of the processor and lines a second, and on files that repeat lines.

The sizes: files that name nothing of CUDA; transformers, diffusers and torch as they are installed; 10,000 findings.
``fix`` times ``--fix``, too, on a project of 100,000 lines in files that import from each other.
Times are those of this process and its children, so that other programs on the machine count little.  For a repeated
line the last column compares 100,000 lines with 10,000: near 1, the time grows as the file does.

    python scripts/bench_scan.py [NAME ...]
"""

import argparse
import importlib.util
import os
import tempfile
import time
from pathlib import Path

import msgspec

from opcheck.common.versions import Target, Version
from opcheck.source.engine import scan
from opcheck.source.fixing import fix

TARGET = Target(torch=Version(2, 13), macos=Version(26))
FEW, MANY, BYTES = 10_000, 100_000, 1_900_000
LIBRARIES = ("transformers", "diffusers", "torch")
#: How many files of the first size there are.
FILES = 300


class Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of scanned_texts.yaml, which states what each text is."""

    plain: str
    head: str
    block: str
    shapes: dict[str, str]


TEXTS = msgspec.yaml.decode(Path(__file__).with_name("scanned_texts.yaml").read_bytes(), type=Texts)


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
    return f"{FEW:,}: {few:.2f} s  {most:,}: {many:.2f} s  per line: x{many / most / (few / FEW):.2f}"


def fix_project() -> str:
    """Scan and fix 100 files of 1,000 lines that import from each other."""
    block = TEXTS.block.format(n="{n}").count("\n")
    text = TEXTS.head + "".join(TEXTS.block.format(n=number) for number in range(1000 // block))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "pkg")
        root.mkdir()
        for name in ("__init__", *(f"file_{number}" for number in range(100))):
            (root / f"{name}.py").write_text(text, encoding="utf-8")
        seconds, lines, findings = measure([str(root)])
        start = time.process_time()
        fixed = fix([str(root)], TARGET)
        taken = time.process_time() - start
    return (
        f"{lines:,} lines, {findings:,} findings scanned in {seconds:.1f} s; {sum(fixed.fixed.values()):,} of them "
        f"fixed in {len(fixed.changes)} files in {taken:.1f} s"
    )


SIZES = {
    "nothing": lambda: measure_text("".join(map(TEXTS.plain.format, range(200))), FILES),
    "libraries": lambda: measure(installed()),
    "findings": lambda: measure_text(TEXTS.shapes["calls"] * 100, 100),
}


def main() -> None:
    """Print a line for each size and shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [*SIZES, *TEXTS.shapes, "fix"]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; or all")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such size or shape: {unknown[0]}")
    measure_text("")  # what is read once
    for name in names or known:
        if name not in SIZES:
            print(f"{name:10} {fix_project() if name == 'fix' else compare(TEXTS.shapes[name])}")
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
