"""Runs opcheck compare and opcheck probe on a real device, and writes reports/compare_DEVICE.md of what came.

    python scripts/device_figures.py --device cuda --results DIR [--minutes N]     where the device is
    python scripts/device_figures.py --device cuda --results reports/compare_cuda --page      anywhere

``--page`` reads figures.json and evidence.json, or evidence.json.gz, as they are in the repository.

The models are those of device_models.py; a wrong GELU is planted by planted/sitecustomize.py, to be found and named.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tabulate import tabulate  # noqa: E402

from opcheck.common.files import write_text  # noqa: E402
from opcheck.data import device_evidence  # noqa: E402
from opcheck.features.probe import page as probed  # noqa: E402

DTYPES = ("float32", "int64", "float16", "bfloat16", "complex64", "bool")
#: name -> model, flags, and the operator that is planted, a wrong one
RUNS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "bert": ("bert", ("--mode", "train", "--time"), ""),
    "bert, float16": ("bert", ("--dtype", "float16"), ""),
    "resnet": ("resnet", ("--mode", "train", "--time"), ""),
    "resnet, float16": ("resnet", ("--mode", "train", "--dtype", "float16"), ""),
    "bert, GELU wrong": ("bert", ("--mode", "train"), "gelu"),
}
FIGURES, EVIDENCE = "figures.json", "evidence.json"
_MOST = 12


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
        write_text(page, "\n".join(_page(options.device, options.results)) + "\n")
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    figures = {name: _compare(name, *run, options.device) for name, run in RUNS.items()}
    figures["probe"] = _probe(options)
    write_text(options.results / FIGURES, json.dumps(figures, indent=1) + "\n")
    return 0


def _compare(
    name: str,
    model: str,
    flags: tuple[str, ...],
    planted: str,
    device: str,
) -> dict[str, Any]:
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
    return {
        "command": " ".join(("opcheck", *command[:-2])),
        "exit": code,
        "seconds": round(seconds, 1),
    }


def _opcheck(
    command: Any, variables: dict[str, str], limit: float = 300.0
) -> tuple[int, str, float]:
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


def _page(device: str, results: Path) -> Iterator[str]:
    figures = json.loads((results / FIGURES).read_text(encoding="utf-8"))
    answer = _evidence(results / EVIDENCE)
    machine = answer.machine
    yield f"# opcheck compare and opcheck probe on {device}"
    yield ""
    yield "Written by `scripts/device_figures.py` from its results; the models are those of"
    yield "`scripts/device_models.py`. Nothing here was observed on a Mac: what is shown is that the two"
    yield f"verbs work on a real device, {machine.device_name} with torch {machine.torch}."
    yield ""
    yield "## Models, each call beside float64 on the CPU"
    yield ""
    runs = {name: run for name, run in figures.items() if name != "probe"}
    heads = ["run", "calls", "within", "as the CPU", "wrong", "not compared", "exit", "seconds"]
    yield tabulate([_run(*item) for item in runs.items()], headers=heads, tablefmt="github")
    for name, run in runs.items():
        yield from _told(name, run)
    yield ""
    yield "## PyTorch's operator database"
    yield ""
    probe = figures["probe"]
    yield f"`{probe['command']}`, {probe['seconds']:g} s: {probed.counts(answer)}."
    yield ""
    table = Counter((result.dtype, result.phase, result.outcome) for result in answer.results)
    names = [name for name in device_evidence.OUTCOMES if any(key[2] == name for key in table)]
    kinds = dict.fromkeys((result.dtype, result.phase) for result in answer.results)
    rows = [[*kind, *(table[(*kind, name)] for name in names)] for kind in kinds]
    rows.append(["together", "", *(sum(table[(*kind, name)] for kind in kinds) for name in names)])
    yield tabulate(rows, headers=["dtype", "phase", *names], tablefmt="github")
    for outcome in (*probed.BAD, "falls back"):
        outcomes = [result for result in answer.results if result.outcome == outcome]
        if outcomes:
            yield ""
            yield f"### {outcome.capitalize()}"
            yield ""
            yield from (f"- {_entry(entry)}" for entry in outcomes)


def _evidence(path: Path) -> device_evidence.EvidenceFile:
    """The evidence; in the repository it is compressed."""
    if path.exists():
        return device_evidence.load(path)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / path.name
        whole.write_bytes(gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()))
        return device_evidence.load(whole)


def _run(name: str, run: dict[str, Any]) -> list[Any]:
    result = run["found"]
    if isinstance(result, str):
        return [name, "", "", "", "", "", run["exit"], run["seconds"]]
    outcomes = result["outcomes"]
    counts = [outcomes.get(key, 0) for key in ("agrees", "loose", "wrong", "not compared")]
    return [name, result["calls"], *counts, run["exit"], run["seconds"]]


def _told(name: str, run: dict[str, Any]) -> Iterator[str]:
    result = run["found"]
    if isinstance(result, str):
        yield from ("", f"{name}: {' '.join(result.split())}")
        return
    if result["wrong"]:
        yield from ("", f"{name}, in the order of the run:", "")
        for item in result["wrong"][:_MOST]:
            place = item["place"]
            where = f"{place['line']} `{place['text']}`" if place["line"] else ""
            yield (
                f"- `{item['op']}`, {place['phase']}, {where} {item['kind']}: {item['found']}, exact "
                f"{item['exact']}, {item['error']} tolerances, {place['count']} calls"
            )
        reproducer = result["reproducer"]
        yield from (
            "",
            f"The reproducer of the first, run alone, {reproducer['state']}: {reproducer['detail']}.",
        )
    if result["times"]:
        yield from ("", f"{name}, the operators that lose most time on the device:", "")
        rows = [
            [f"`{item['op']}`", item["calls"], _ms(item["device"]), _ms(item["cpu"])]
            for item in result["times"][:_MOST]
        ]
        yield tabulate(
            rows, headers=["operator", "calls", "device ms", "CPU ms"], tablefmt="github"
        )


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.3f}"


def _entry(item: device_evidence.Result) -> str:
    text = " ".join(item.text.split()).replace("|", "\\|")
    how_often = f" ({item.failed} of {item.samples} samples)" if item.failed else ""
    op = f" in `{item.op}`" if item.op else ""
    return f"`{item.opinfo}`, {item.dtype}, {item.phase}{op}{how_often}: {text[:200]}"


if __name__ == "__main__":
    sys.exit(main())
