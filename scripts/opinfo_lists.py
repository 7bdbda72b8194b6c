"""Record what PyTorch's OpInfos call on the simulated Mac, beside what its CI expects of them.

Run in an environment that holds the release: python -m scripts.opinfo_lists [--samples 16] [--older 2.7 2.6 ...]
"""

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from opcheck.common.versions import Version
from opcheck.worker.worker import WorkerError
from scripts.opinfo import ci, record
from scripts.opinfo.forks import run_in_forks
from scripts.opinfo.store import MACOS, PASSES, Body, Info, Recording, Run, save

#: What a fork answers: the OpInfos, and what it has seen of composites.
Recorded = tuple[dict[str, Info], dict[str, Body]]
#: OpInfos a fork runs, and the seconds that each of them may take.
CHUNK, SECONDS = 20, 600.0

#: How many of the samples are run, by pass and dtype; what is left out differs from float32 in its dtype only.
SHARE = {
    ("forward", "float32"): 1.0,
    ("forward", "int64"): 0.6,
    ("forward", "complex64"): 0.6,
    ("gradient", "float32"): 0.6,
}


def main() -> None:
    """Record the installed release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12, help="of each OpInfo with float32")
    parser.add_argument("--older", nargs="*", default=[], help="releases whose composites to follow with this torch")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.monotonic()
    recording = record_release(given.samples, given.older)
    print(f"torch {recording.torch}: {time.monotonic() - start:.0f} s", summary(recording))
    print(save(recording))


def record_release(samples: int, older: list[str]) -> Recording:
    """Evaluate the lists, then run every OpInfo with every dtype that they speak of."""
    line = str(Version.parse(torch.__version__))
    expected = {macos: ci.expectations(macos) for macos in MACOS}
    ops = record.op_db()
    watch = record.Watch()
    infos: dict[str, Info] = {}

    def states_of(op: Any) -> dict[str, dict[str, dict[str, str]]]:
        return {macos: rows[ci.key(op)] for macos, rows in expected.items()}

    def work(some: Sequence[Any]) -> Recorded:
        watch.bodies = {}
        return {ci.key(op): _info(op, states_of(op), samples, watch) for op in some}, watch.bodies

    def died(op: Any, error: WorkerError) -> Recorded:
        return {ci.key(op): _info_of_the_dead(op, states_of(op), str(error))}, {}

    with record.mac(line, watch):
        for rows, seen in run_in_forks(ops, work, Recorded, died, chunk=CHUNK, seconds=SECONDS):
            infos |= rows
            watch.merge(seen)
            print(f"{len(infos)} of {len(ops)}", file=sys.stderr, flush=True)
    composites = {line: watch.bodies} | {other: _composites(ops, other, samples) for other in older}
    return Recording(
        torch=str(torch.__version__).partition("+")[0], line=line, samples=samples, opinfos=infos, composites=composites
    )


def _info_of_the_dead(op: Any, states: dict[str, dict[str, dict[str, str]]], how: str) -> Info:
    runs: dict[str, dict[str, Run]] = {
        kind: {dtype: Run(samples=0, failures=(how,)) for rows in states.values() for dtype in rows[kind]}
        for kind in PASSES
    }
    return Info(api=op.name, ci=states, runs=runs)


def _info(op: Any, states: dict[str, dict[str, dict[str, str]]], samples: int, watch: record.Watch) -> Info:
    watch.enters = {}
    runs: dict[str, dict[str, Run]] = {str(kind): {} for kind in PASSES}
    dtypes = {dtype: None for rows in states.values() for dtype in rows["forward"]}
    for dtype in dtypes:
        for kind in PASSES:
            if any(dtype in rows[kind] for rows in states.values()):
                limit = max(1, round(samples * SHARE.get((kind, dtype), 0.4)))
                runs[kind][dtype] = _run(op, dtype, limit, watch, gradient=kind == "gradient")
    return Info(
        api=op.name,
        aliases=tuple(sorted(alias.name for alias in op.aliases)),
        ci=states,
        runs=runs,
        enters=tuple(sorted(watch.enters)),
    )


def _run(op: Any, dtype: str, samples: int, watch: record.Watch, *, gradient: bool) -> Run:
    try:
        made = record.samples_of(op, getattr(torch, dtype), samples)
    except Exception as error:  # noqa: BLE001 - torch's own code, on a device that is not there
        text = f"no samples: {type(error).__name__}: {error}".splitlines()[0]
        return Run(samples=0, failures=(text[:200],))
    return record.run(op, made, watch, gradient=gradient)


def _composites(ops: list[Any], line: str, samples: int) -> dict[str, Body]:
    watch = record.Watch()

    def work(some: Sequence[Any]) -> dict[str, Body]:
        watch.bodies = {}
        for op in some:
            if torch.float32 in op.dtypes:
                _run(op, "float32", samples, watch, gradient=False)
        return watch.bodies

    with record.mac(line, watch):
        made = run_in_forks(ops, work, dict[str, Body], lambda _op, _error: {}, chunk=CHUNK, seconds=SECONDS)
        for bodies in made:
            watch.merge(bodies)
    return watch.bodies


def summary(recording: Recording) -> str:
    """How much was run, and how much of it failed here."""
    runs = [run for info in recording.opinfos.values() for kind in PASSES for run in info.runs[kind].values()]
    failed = sum(bool(run.failures) for run in runs)
    return (
        f"{len(recording.opinfos)} OpInfos, {len(runs)} runs, {sum(len(r.calls) for r in runs)} calls, "
        f"{failed} runs with a failure, {sum(not r.samples for r in runs)} without samples"
    )


if __name__ == "__main__":
    main()
