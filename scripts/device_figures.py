"""Runs opcheck compare and opcheck probe on a real device, and writes reports/compare_DEVICE.md of what came.

    python -m scripts.device_figures --device cuda --results DIR [--minutes N]     where the device is
    python -m scripts.device_figures --device cuda --results reports/compare_cuda --page      anywhere

``--page`` reads figures.json and evidence.json, or evidence.json.gz, as they are in the repository.

The models are those of device_models.py; a wrong GELU is planted by planted/sitecustomize.py, to be found and named.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from opcheck.common.files import write_text
from opcheck.data import device_evidence
from opcheck.features.compare import page as compared
from opcheck.features.probe import page as probed
from opcheck.numerics.compare.comparison_records import DeviceComparison
from opcheck.render.document import Block, Heading, Lines, Table
from opcheck.render.markdown import as_markdown
from scripts.pages import ROOT, page_text

DTYPES = ("float32", "int64", "float16", "bfloat16", "complex64", "bool")
RUNS = msgspec.yaml.decode(
    Path(__file__).with_name("device_runs.yaml").read_bytes(), type=dict[str, tuple[str, tuple[str, ...], str]]
)
FIGURES, EVIDENCE = "figures.json", "evidence.json"


def main() -> int:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description="opcheck on a real device.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=6.0, help="that the probe may take")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--page", action="store_true", help="write the page of what is there")
    options = parser.parse_args()
    if options.page:
        page = ROOT / "reports" / f"compare_{options.device}.md"
        write_text(page, as_markdown(tuple(_blocks(options.device, options.results))))
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    figures = {name: _compare(name, *run, options.device) for name, run in RUNS.items()}
    figures["probe"] = _probe(options)
    write_text(options.results / FIGURES, json.dumps(figures, indent=1) + "\n")
    return 0


def _compare(name: str, model: str, flags: tuple[str, ...], planted: str, device: str) -> dict[str, Any]:
    variables: dict[str, str] = {}
    if planted:
        folder = str(ROOT / "scripts" / "planted")
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        variables = {"PYTHONPATH": path, "OPCHECK_PLANTED": device.upper()}
    repro = str(Path(tempfile.gettempdir()) / "opcheck-repro")
    command = ("compare", f"scripts/device_models.py:{model}", "--device", device, *flags)
    code, out, seconds = _opcheck((*command, "-f", "json", "--repro", repro), variables)
    print(f"{name}: exit {code}, {seconds:.0f} s", flush=True)
    return {
        "command": " ".join(("opcheck", *command)),
        "exit": code,
        "seconds": round(seconds, 1),
        # No path of the machine is kept.
        "found": json.loads(out.replace(repro, "opcheck-repro")) if out[:1] == "{" else out[-2000:],
    }


def _probe(options: argparse.Namespace) -> dict[str, Any]:
    """As much as can be done in the time: the evidence is kept while it runs."""
    path = options.results / EVIDENCE
    command = ["probe", "--device", options.device, "--grad", "--samples", "6", "--timeout", "40"]
    command += [word for dtype in DTYPES for word in ("--dtype", dtype)]
    command += ["--jobs", str(options.jobs), "--output", str(path)]
    code, out, seconds = _opcheck(command, {}, options.minutes * 60)
    print(f"probe: exit {code}, {seconds:.0f} s {out[-600:]}", flush=True)
    return {"command": " ".join(("opcheck", *command[:-2])), "exit": code, "seconds": round(seconds, 1)}


def _opcheck(command: Any, variables: dict[str, str], limit: float = 300.0) -> tuple[int, str, float]:
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "opcheck", *command],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=limit,
            env={**os.environ, **variables},
        )
    except subprocess.TimeoutExpired:
        return -1, f"ended after {limit:g} s", time.monotonic() - start
    return done.returncode, done.stdout or done.stderr, time.monotonic() - start


def _blocks(device: str, results: Path) -> Iterator[Block]:
    figures = json.loads((results / FIGURES).read_text(encoding="utf-8"))
    answer = _evidence(results / EVIDENCE)
    machine = answer.machine
    yield Heading(f"opcheck compare and opcheck probe on {device}", 1)
    text = page_text("device", name=machine.device_name, torch=machine.torch)
    yield Lines(tuple(text.splitlines()))
    probe = figures.pop("probe")
    heads = ("run", "calls", "within", "as the CPU", "wrong", "not compared", "exit", "seconds")
    yield Table(heads, tuple(_row(*item) for item in figures.items()))
    for name, run in figures.items():
        yield Heading(name)
        if isinstance(run["found"], str):
            yield Lines((" ".join(run["found"].split()),))
        else:
            comparison = msgspec.convert(run["found"], DeviceComparison)
            yield from _nest(compared.document(comparison))
    yield Heading("PyTorch's operator database")
    yield Lines((f"{probe['command']}, {probe['seconds']:g} s",))
    yield from _nest(probed.document(answer))


def _nest(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks of a verb's page as a part of this page."""
    for block in blocks:
        yield Heading(block.text, block.level + 2) if isinstance(block, Heading) else block


def _evidence(path: Path) -> device_evidence.EvidenceFile:
    """The evidence; in the repository it is compressed."""
    if path.exists():
        return device_evidence.load(path)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / path.name
        whole.write_bytes(gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()))
        return device_evidence.load(whole)


def _row(name: str, run: dict[str, Any]) -> tuple[str, ...]:
    outcomes = {} if isinstance(run["found"], str) else run["found"]["outcomes"]
    calls = sum(outcomes.values()) or ""
    counts = [outcomes.get(key, 0) for key in ("agrees", "loose", "wrong", "not compared")]
    return tuple(map(str, (name, calls, *counts, run["exit"], run["seconds"])))


if __name__ == "__main__":
    sys.exit(main())
