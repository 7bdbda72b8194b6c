"""Time ``opcheck scan`` and ``--fix`` on a project of 100,000 lines, in 100 files that import from each other.

    python scripts/bench_fix.py [FOLDER]

The files repeat a block of ordinary code with one line in ten that a port would change.  With FOLDER its Python files
are copied to a temporary folder and timed instead.  Times are those of the processor.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from opcheck.common.versions import Target, Version
from opcheck.source.engine import scan
from opcheck.source.fixing import fix

TARGET = Target(torch=Version(2, 15), macos=Version(26))
FILES, LINES = 100, 1000
HEAD = "import argparse\nimport torch\nfrom pkg.file_0 import helper\n\n"
BLOCK = '''
def function_{n}(model, batch, device=None, scale=1.0):
    """Return what the model makes of a batch, with a loop and a condition around it."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    results = []
    for index, (inputs, labels) in enumerate(batch):
        if index % 10 == 0 and scale != 1.0:
            inputs = inputs * scale
        inputs = inputs.to(device, non_blocking=True)
        with torch.cuda.amp.autocast(enabled=False):
            outputs = model(inputs)
            loss = ((outputs - labels) ** 2).mean()
        results.append({{"loss": loss.item(), "index": index, "name": f"step {{index}}"}})
        total = sum(result["loss"] for result in results)
        print(f"after {{index}} steps: {{total / len(results):.3f}}")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return results, total


class Module_{n}(torch.nn.Module):
    def __init__(self, width=16, depth=2):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(width, width) for _ in range(depth)])
        self.width = width

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x)) + x
        return x.view(-1, self.width).mean(dim=0)
'''


def main() -> None:
    """Print how long a scan and a fix take."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", nargs="?", type=Path, help="a folder, in place of made files")
    package = parser.parse_args().package
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "pkg")
        if package:
            shutil.copytree(package, root, ignore=shutil.ignore_patterns("*.so", "*.bin", ".git"))
        else:
            _write(root)
        start = time.process_time()
        report = scan([str(root)], TARGET)
        scanned = time.process_time()
        fixed = fix([str(root)], TARGET)
        end = time.process_time()
        lines = report.read.get("lines", 0)
        print(
            f"{lines:,} lines, {len(report.findings):,} findings scanned in {scanned - start:.1f} s"
        )
        count = sum(fixed.fixed.values())
        print(f"{count:,} of them fixed in {len(fixed.changes)} files in {end - scanned:.1f} s")


def _write(root: Path) -> None:
    root.mkdir()
    (root / "__init__.py").write_text("", encoding="utf-8")
    for number in range(FILES):
        text, block = [HEAD], 0
        while sum(part.count("\n") for part in text) < LINES:
            text.append(BLOCK.format(n=block))
            block += 1
        (root / f"file_{number}.py").write_text("".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
