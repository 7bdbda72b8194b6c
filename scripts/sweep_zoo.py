"""Audit every model class of the libraries in a small configuration, and count what comes out.

    python -m scripts.sweep_zoo [LIBRARY ...] [--only TEXT] [--again] [--limit SECONDS]

What was audited before is not audited again, unless ``--again`` asks for the models without a verdict, or ``--fresh``
for all.  The last step writes ``reports/zoo.md`` and ``reports/zoo.yaml``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from opcheck.capture.parent import environment
from opcheck.capture.request import CaptureRequest
from opcheck.versions import Target, Version
from scripts.sweep.records import Job, Result

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
#: one line a model: what the sweep knows so far
RESULTS = ROOT / "build" / "zoo.jsonl"
SCRATCH = ROOT / "build" / "zoo"
TARGET = Target(torch=Version.parse("2.13"), macos=Version.parse("15"), cpu_fallback=False)
LIBRARIES = ("transformers", "timm", "torchvision", "diffusers")


def main() -> int:
    """Sweep, and write the table; 0 whatever the verdicts are."""
    arguments = _arguments()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    known = {} if arguments.fresh else _known()
    if not arguments.table:
        _sweep(arguments, known)
    from scripts.sweep.table import write  # noqa: PLC0415 - it is here that the catalogue is needed

    write(_known().values(), TARGET, ROOT / "reports")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY")
    parser.add_argument(
        "--only",
        default="",
        help="models with one of these texts, parted by commas, in their names",
    )
    parser.add_argument("--again", action="store_true", help="what had no verdict, once more")
    parser.add_argument("--fresh", action="store_true", help="forget all results")
    parser.add_argument("--table", action="store_true", help="write the table and nothing else")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one audit")
    parser.add_argument("--every", type=int, default=1, help="a sample: each so many")
    parser.add_argument("--jobs", type=int, default=2, help="children at a time")
    return parser.parse_args()


def _sweep(arguments: argparse.Namespace, known: dict[str, Result]) -> None:
    _prepare()
    from opcheck.capture.vision import prepare_torchvision  # noqa: PLC0415 - imports torch
    from opcheck.oplists.registrations import load  # noqa: PLC0415
    from opcheck.simulate.backend import mps_backend  # noqa: PLC0415
    from scripts.sweep import child, server  # noqa: PLC0415
    from scripts.sweep.catalogue import CATALOGUES  # noqa: PLC0415

    lists = load()
    prepare_torchvision()
    jobs: list[Job] = []
    modules = {}
    with mps_backend(TARGET.macos):
        for name in arguments.libraries or LIBRARIES:
            modules[name] = importlib.import_module(name)
            jobs += [
                job
                for job in CATALOGUES[name](modules[name])
                if any(text in job.spec for text in arguments.only.split(","))
            ]
    if not arguments.only:
        _forget(known, jobs, arguments.libraries or LIBRARIES)
    jobs = [job for job in jobs[:: arguments.every] if _wanted(known.get(job.spec), arguments)]

    def work(job: Job) -> Result:
        import torch  # noqa: PLC0415

        torch.set_num_threads(1)
        return child.answer(job, modules[job.library], TARGET, lists, arguments.limit)

    def ask(job: Job) -> Result:
        result = known[job.spec]
        return msgspec.structs.replace(result, plain=child.control(result))

    limits = {"limit": 3 * arguments.limit, "at_once": arguments.jobs, "scratch": SCRATCH}
    _note(server.results(jobs, work, **limits), known, len(jobs), "audited")
    unasked = [job for job in jobs if not known[job.spec].audited]
    _note(server.results(unasked, ask, **limits), known, len(unasked), "run without opcheck")


def _forget(known: dict[str, Result], jobs: list[Job], libraries: Iterable[str]) -> None:
    """Drop the results of what is no model of these libraries any more."""
    asked = {job.spec for job in jobs}
    gone = [name for name, one in known.items() if one.library in libraries and name not in asked]
    for name in gone:
        del known[name]
    lines = (msgspec.json.encode(one).decode() + "\n" for one in known.values())
    RESULTS.write_text("".join(lines), encoding="utf-8")


def _prepare() -> None:
    """What the worker of an audit has in its environment, before torch is imported."""
    request = CaptureRequest(model="", torch=str(TARGET.torch), macos=str(TARGET.macos))
    os.environ.update(environment(request))
    os.environ.update(PYTORCH_JIT="0", OMP_NUM_THREADS="1")
    # No model needs it, and one that is made for another torch stops the import of transformers.
    sys.modules["torchaudio"] = None  # type: ignore[assignment]


def _wanted(before: Result | None, arguments: argparse.Namespace) -> bool:
    if before is None or arguments.fresh or arguments.only:
        return True
    return bool(arguments.again) and not before.audited


def _note(found: Iterable[Result], known: dict[str, Result], count: int, what: str) -> None:
    start = time.monotonic()
    with RESULTS.open("w" if not known else "a", encoding="utf-8") as file:
        for number, result in enumerate(found, 1):
            if what != "audited" and not result.plain:
                # The control died: what is known of the audit stays.
                result = msgspec.structs.replace(known[result.spec], plain=result.message)  # noqa: PLW2901
            known[result.spec] = result
            file.write(msgspec.json.encode(result).decode() + "\n")
            file.flush()
            print(
                f"{number}/{count} {what}, {time.monotonic() - start:.0f} s: {result.spec} "
                f"{result.headline or result.problem} {result.message[:150]}",
                file=sys.stderr,
            )


def _known() -> dict[str, Result]:
    """The last line of each model."""
    if not RESULTS.exists():
        return {}
    known: dict[str, Result] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        result = msgspec.json.decode(line, type=Result)
        before = known.get(result.spec)
        # What a model does without opcheck is asked of a failure: an audit since then stays.
        if not (result.plain and before is not None and before.audited):
            known[result.spec] = result
    return known


if __name__ == "__main__":
    sys.exit(main())
