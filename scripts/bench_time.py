"""Time the estimate of time beside the whole audit, for one chip and for all.

Usage: python -m scripts.bench_time [MODEL ...]

Prints for each model the milliseconds of an audit without a cache, of the work that the estimate needs and of the
estimates, and their share of the audit; exits with 1 where that is above a twentieth.
"""

import argparse
import functools
import sys
import time

from opcheck.capture.parent import capture_many
from opcheck.capture.request import CaptureRequest
from opcheck.data.chips import CHIPS
from opcheck.data.registrations import load
from opcheck.data.targets import target
from opcheck.judge import assembly
from opcheck.judge.callgraph import route_calls
from opcheck.judge.judge import judge_all
from opcheck.judge.timing.estimates import with_time
from opcheck.judge.timing.workload import workloads
from opcheck.model.records import Trace
from scripts.bench_judge import best

MODELS = ("timm:resnet18", "transformers:BertModel", "transformers:GPT2LMHeadModel")
_MOST = 0.05


def share(model: str) -> float:
    """Print the figures of a model, and return the share of the estimates for all chips."""
    lists = load()
    goal = target(None, None, lists)
    request = CaptureRequest(model=model, target=goal)
    start = time.perf_counter()
    (trace,) = capture_many(request, (goal,))
    assert isinstance(trace, Trace), trace
    report = assembly.report(trace, goal, lists)
    audit = (time.perf_counter() - start) * 1e3
    verdicts = judge_all(trace.calls, goal, lists)
    calls = [each for each in route_calls(trace.calls, verdicts, goal, lists) if each.call.phase != "move"]
    work = best(functools.partial(workloads, trace, calls))
    one = best(functools.partial(with_time, report, ("M4 Pro",), lists))
    every = best(functools.partial(with_time, report, tuple(CHIPS.load().chips), lists))
    print(
        f"{model}: audit {audit:.0f} ms; work {work:.1f} ms, one chip {one:.1f} ms, all chips {every:.1f} ms: "
        f"{(work + one) / audit:.1%} and {(work + every) / audit:.1%}"
    )
    return (work + every) / audit


def main() -> None:
    """Time each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    shares = [share(model) for model in parser.parse_args().models]
    sys.exit(max(shares) > _MOST)


if __name__ == "__main__":
    main()
