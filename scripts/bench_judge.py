"""Time judging beside capturing, for all releases on three macOS versions.

Usage: python scripts/bench_judge.py [--train] MODEL ...

Prints for each model how many captures serve all targets, and the milliseconds a target takes to be judged, by the
short way (opcheck/judge/target_summary.py) and as a whole report, with their ratio.
"""

import argparse
import functools
import timeit
from collections.abc import Callable

from opcheck.capture.parent import capture_many
from opcheck.capture.request import CaptureRequest
from opcheck.common.versions import Target, Version
from opcheck.common.vocabulary import Mode
from opcheck.data.registrations import OpLists, load
from opcheck.judge.assembly import report
from opcheck.judge.target_summary import summaries
from opcheck.model.records import Trace

MACOS = (14, 15, 26)
TIMES = 3


def best(work: Callable[[], object]) -> float:
    """Return the milliseconds of the fastest of a few runs."""
    return min(timeit.repeat(work, number=1, repeat=TIMES)) * 1e3


def _shortly(classes: list[tuple[Trace, list[Target]]], lists: OpLists) -> None:
    for trace, targets in classes:
        summaries(trace, targets, lists)


def main(models: list[str], mode: Mode) -> None:
    """Time each model."""
    lists = load()
    targets = [
        Target(torch=Version.parse(release.line), macos=Version(major, 0))
        for release in lists.releases
        for major in MACOS
    ]
    for model in models:
        request = CaptureRequest(model=model, target=targets[0], mode=mode)
        classes: dict[int, tuple[Trace, list[Target]]] = {}
        for trace, target in zip(capture_many(request, targets), targets, strict=True):
            if isinstance(trace, Trace):
                classes.setdefault(id(trace.calls), (trace, []))[1].append(target)
        pairs = list(classes.values())
        short = best(functools.partial(_shortly, pairs, lists)) / len(targets)
        trace, (first, *_) = pairs[0]
        whole = best(functools.partial(report, trace, first, lists))
        print(
            f"{model}: {len(pairs)} captures for {len(targets)} targets, {len(trace.calls)} calls; "
            f"a target {short:.2f} ms, a whole report {whole:.1f} ms ({whole / short:.0f} times)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["timm:resnet18"], metavar="MODEL")
    parser.add_argument("--train", action="store_true", help="a training step of each")
    asked = parser.parse_args()
    main(asked.models, "train" if asked.train else "inference")
