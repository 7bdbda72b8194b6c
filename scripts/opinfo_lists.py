"""Record what PyTorch's OpInfos call on the simulated Mac, beside what its CI expects of them.

Run in an environment that holds the release: python -m scripts.opinfo_lists [--samples 16] [--older 2.7 2.6 ...]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any

import torch

from opcheck.common.versions import Version
from opcheck.model.records import OpCall
from scripts.opinfo import ci, record
from scripts.opinfo.isolate import Died, isolated
from scripts.opinfo.store import MACOS, PASSES, Body, Info, Recording, Run, read, save

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How many of the samples are run, by pass and dtype; what is left out differs from float32 in its dtype only.
SHARE = {
    ("forward", "float32"): 1.0,
    ("forward", "int64"): 0.6,
    ("forward", "complex64"): 0.6,
    ("gradient", "float32"): 0.6,
}


def main() -> int:
    """Record the installed release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12, help="of each OpInfo with float32")
    parser.add_argument("--only", help="one OpInfo, printed instead of kept")
    parser.add_argument(
        "--older", nargs="*", default=[], help="releases whose composites to follow with this torch"
    )
    parser.add_argument(
        "--again", action="store_true", help="only what went wrong in the recording that there is"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.monotonic()
    before = read(str(Version.parse(torch.__version__))) if given.again else None
    recording = record_release(given.samples, given.only, given.older, before)
    print(f"torch {recording.torch}: {time.monotonic() - start:.0f} s", summary(recording))
    if given.only:
        for name, info in recording.opinfos.items():
            for kind in PASSES:
                for dtype, run in info.runs[kind].items():
                    ops = sorted({call.op for call in run.calls})
                    print(
                        name,
                        kind,
                        dtype,
                        info.ci["15.0"][kind][dtype],
                        run.samples,
                        ops,
                        run.failures,
                    )
        return 0
    print(save(recording))
    return 0


def record_release(
    samples: int, only: str | None, older: list[str], before: Recording | None = None
) -> Recording:
    """Evaluate the lists, then run every OpInfo with every dtype that they speak of."""
    line = str(Version.parse(torch.__version__))
    expected = {macos: ci.expectations(macos) for macos in MACOS}
    ops = [op for op in record.op_db() if only is None or ci.key(op) == only]
    watch = record.Watch()
    infos: dict[str, Info] = {}
    if before is not None:
        infos = dict(before.opinfos)
        ops = [op for op in ops if _failed(infos[ci.key(op)])]
        watch.merge(before.composites[line])

    def work(op: Any) -> tuple[str, Info]:
        states = {macos: rows[ci.key(op)] for macos, rows in expected.items()}
        return ci.key(op), _info(op, states, samples, watch)

    def died(op: Any, how: str) -> tuple[str, Info]:
        states = {macos: rows[ci.key(op)] for macos, rows in expected.items()}
        return ci.key(op), _info_of_the_dead(op, states, how)

    composites = ({} if before is None else dict(before.composites)) | {line: watch.bodies}
    with record.mac(line, watch):
        for rows, bodies in _in_children(ops, work, died, watch):
            infos |= rows
            watch.merge(bodies)
            print(f"{len(infos)} of {len(ops)}", file=sys.stderr, flush=True)
    for other in older:
        composites[other] = _composites(ops, other, samples)
    return Recording(
        torch=str(torch.__version__).partition("+")[0],
        line=line,
        samples=samples,
        opinfos=infos,
        composites=composites,
    )


def _failed(info: Info) -> bool:
    """Whether a sample did not run, or met something that the simulation could not follow."""
    runs = [run for kind in PASSES for run in info.runs[kind].values()]
    return any(run.failures or any(map(_in_doubt, run.calls)) for run in runs)


def _in_doubt(call: OpCall) -> bool:
    return call.refusal is not None or call.op == "aten::to.dtype_layout"


def _in_children(
    ops: list[Any],
    work: Callable[[Any], Any],
    died: Callable[[Any, str], Any],
    watch: record.Watch,
) -> Iterator[tuple[dict[str, Any], dict[str, Body]]]:
    """Run the OpInfos in chunks, each in a child; where one dies, its OpInfos one by one."""

    def chunk(some: list[Any]) -> tuple[dict[str, Any], dict[str, Body]]:
        watch.bodies = {}
        return dict(map(work, some)), watch.bodies

    for start in range(0, len(ops), _CHUNK):
        some = ops[start : start + _CHUNK]
        done = isolated(lambda some=some: chunk(some))  # type: ignore[misc]
        if not isinstance(done, Died):
            yield done
            continue
        for op in some:
            alone = isolated(lambda op=op: chunk([op]))  # type: ignore[misc]
            yield (dict([died(op, alone.how)]), {}) if isinstance(alone, Died) else alone


_CHUNK = 20


def _info_of_the_dead(op: Any, states: dict[str, dict[str, dict[str, str]]], how: str) -> Info:
    runs: dict[str, dict[str, Run]] = {
        kind: {
            dtype: Run(samples=0, failures=(how,))
            for rows in states.values()
            for dtype in rows[kind]
        }
        for kind in PASSES
    }
    return Info(api=op.name, ci=states, runs=runs)


def _info(
    op: Any, states: dict[str, dict[str, dict[str, str]]], samples: int, watch: record.Watch
) -> Info:
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

    def work(op: Any) -> tuple[str, None]:
        if torch.float32 in op.dtypes:
            _run(op, "float32", samples, watch, gradient=False)
        return ci.key(op), None

    with record.mac(line, watch):
        for _, bodies in _in_children(ops, work, lambda op, _: (ci.key(op), None), watch):
            watch.merge(bodies)
    return watch.bodies


def summary(recording: Recording) -> str:
    """How much was run, and how much of it failed here."""
    runs = [
        run
        for info in recording.opinfos.values()
        for kind in PASSES
        for run in info.runs[kind].values()
    ]
    failed = sum(bool(run.failures) for run in runs)
    return (
        f"{len(recording.opinfos)} OpInfos, {len(runs)} runs, {sum(len(r.calls) for r in runs)} calls, "
        f"{failed} runs with a failure, {sum(not r.samples for r in runs)} without samples"
    )


if __name__ == "__main__":
    sys.exit(main())
