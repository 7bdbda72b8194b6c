"""Fit the parameters of the time estimate to published times, and write what they predict.

Usage: python -m scripts.calibrate_time {capture | fit | page} [--check]

``capture`` audits each program of scripts/timing/measurements.yaml and keeps its work in scripts/timing/workloads.json;
``fit`` chooses the parameters of op_lists/speed_fit.json, and prints the residuals of each source by parameters that
were fitted without it; ``page`` writes the table of docs/explanation/time.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.data.chips import Gpu, Parameters, load_chips, load_parameters
from opcheck.judge.timing.estimate import Interval, estimate
from opcheck.model.records import Workload

_ROOT = Path(__file__).parents[1]
_MEASUREMENTS = _ROOT / "scripts/timing/measurements.yaml"
_WORKLOADS = _ROOT / "scripts/timing/workloads.json"
_FIT = _ROOT / "op_lists/speed_fit.json"
_PAGE = _ROOT / "docs/explanation/time.md"
_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"
#: The share of the published times that the intervals must hold, of each source by the others.
_HOLD = 0.85


class Measurement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published time; ``parts`` are programs, with how often each runs."""

    id: str
    url: str
    chip: str
    cores: int = 0
    torch: str
    stated: str = ""
    parts: tuple[tuple[str, float], ...]
    seconds: float
    cpu_seconds: float = 0.0

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the Mac may have had."""
        sold = load_chips()[self.chip].gpus
        return tuple(gpu for gpu in sold if gpu.cores == self.cores) or sold

    @property
    def source(self) -> str:
        """Return the owner and the name of the repository."""
        return "/".join(self.url.split("/")[3:5])


class Measurements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    programs: dict[str, dict[str, Any]]
    times: tuple[Measurement, ...]


class Predicted(NamedTuple):
    """A published time and the intervals for it."""

    measurement: Measurement
    gpu: Interval
    cpu: Interval
    bound: str

    @property
    def residual(self) -> float:
        """Return the binary logarithm of predicted over measured."""
        return math.log2(self.gpu.middle / self.measurement.seconds)

    @property
    def holds(self) -> bool:
        """Return whether the interval contains the time."""
        return self.gpu.low <= self.measurement.seconds <= self.gpu.high

    @property
    def is_right_side(self) -> bool:
        """Return whether the estimate names the faster of GPU and CPU."""
        measured = self.measurement
        return (self.gpu.middle < self.cpu.middle) == (measured.seconds < measured.cpu_seconds)


Work = dict[str, Workload]


def measurements() -> Measurements:
    """Read the published times."""
    return msgspec.yaml.decode(_MEASUREMENTS.read_bytes(), type=Measurements)


def workloads() -> Work:
    """Read the work of the programs, by ``program@torch``."""
    return msgspec.json.decode(_WORKLOADS.read_bytes(), type=Work)


def predict(times: Iterable[Measurement], work: Work, parameters: Parameters) -> list[Predicted]:
    """Return the intervals for published times."""
    return [_predict(each, work, parameters) for each in times]


def _predict(each: Measurement, work: Work, parameters: Parameters) -> Predicted:
    parts = [
        (estimate(work[f"{name}@{each.torch}"], each.chip, each.gpus, parameters), times)
        for name, times in each.parts
    ]
    gpu = Interval(
        sum(part.low_seconds * times for part, times in parts),
        sum(part.high_seconds * times for part, times in parts),
    )
    cpu = Interval(
        sum(part.cpu_low_seconds * times for part, times in parts),
        sum(part.cpu_high_seconds * times for part, times in parts),
    )
    return Predicted(each, gpu, cpu, parts[0][0].bound)


# -- capture ----------------------------------------------------------------------------------------------------------


def capture() -> None:
    """Audit each program on each release that a time is of, and keep its work."""
    from opcheck.capture.request import CaptureOptions, request_of
    from opcheck.data.registrations import load
    from opcheck.data.targets import target
    from opcheck.orchestrator import audit

    content, lists = measurements(), load()
    wanted = sorted({f"{name}@{each.torch}" for each in content.times for name, _ in each.parts})
    result: Work = {}
    for key in wanted:
        name, _, torch = key.partition("@")
        options = dict(content.programs[name])
        model = options.pop("model")
        request = request_of(
            model,
            target(torch, None, lists, fallback=True),
            CaptureOptions(
                inputs=tuple(options.pop("inputs")), call=tuple(options.pop("call", ())), **options
            ),
        )
        report = audit(request, lists)
        if not report.workloads:
            sys.exit(f"{key}: {report.headline}: {report.problems}")
        result[key] = report.workloads[0]
        print(key, report.headline, report.totals["calls"], file=sys.stderr)
    _WORKLOADS.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=0))


# -- fit --------------------------------------------------------------------------------------------------------------

#: Where the search begins, from public figures of single calls, and how far it may go, as a factor.
_PRIOR = Parameters(
    gpu_matrix=0.75,
    gpu_convolution=0.35,
    gpu_memory=0.65,
    gpu_index=0.06,
    cpu_matrix=0.5,
    cpu_convolution=0.2,
    cpu_memory=0.4,
    host=1e-5,
    graph=2e-5,
    metal=6e-6,
    wait=1.5e-4,
    spread=1.0,
)
_FACTOR = 4.0
_SHARES = tuple(name for name in _PRIOR.__struct_fields__ if name.startswith(("gpu_", "cpu_")))
_STEPS = (1.5, 1.2, 1.07, 1.02)
#: What being a factor of two away from the prior costs, in residuals: what few times decide stays near it.
_PULL = 0.25


def fit(times: Sequence[Measurement], work: Work) -> Parameters:
    """Return the parameters with the least weighted absolute residuals, each source counted by the root of its times."""
    result = _PRIOR
    weights = _weights(times)
    best = _loss(times, work, result, weights)
    for step in _STEPS:
        improved = True
        while improved:
            improved = False
            for name in _PRIOR.__struct_fields__:
                if name == "spread":
                    continue
                for factor in (step, 1 / step):
                    tried = _moved(result, name, factor)
                    loss = _loss(times, work, tried, weights)
                    if loss < best - 1e-9:
                        result, best, improved = tried, loss, True
    return msgspec.structs.replace(result, spread=_spread(times, work, result))


def _moved(parameters: Parameters, name: str, factor: float) -> Parameters:
    prior = getattr(_PRIOR, name)
    value = min(max(getattr(parameters, name) * factor, prior / _FACTOR), prior * _FACTOR)
    if name in _SHARES:
        value = min(value, 1.0)
    return msgspec.structs.replace(parameters, **{name: value})


def _weights(times: Sequence[Measurement]) -> dict[str, float]:
    counts: dict[str, int] = {}
    for each in times:
        counts[each.source] = counts.get(each.source, 0) + 1
    return {name: 1 / math.sqrt(count) for name, count in counts.items()}


def _loss(
    times: Sequence[Measurement],
    work: Work,
    parameters: Parameters,
    weights: dict[str, float],
) -> float:
    total = 0.0
    for each in predict(times, work, parameters):
        weight = weights[each.measurement.source]
        total += weight * abs(each.residual)
        if each.measurement.cpu_seconds:
            ratio = math.log2(each.cpu.middle / each.measurement.cpu_seconds)
            total += weight * abs(ratio) / 2
    away = (
        abs(math.log2(getattr(parameters, name) / getattr(_PRIOR, name)))
        for name in _PRIOR.__struct_fields__
    )
    return total + _PULL * sum(away)


def _spread(times: Sequence[Measurement], work: Work, parameters: Parameters) -> float:
    """Return the smallest spread whose intervals hold ``_HOLD`` of the times."""
    for hundredths in range(20, 300, 5):
        tried = msgspec.structs.replace(parameters, spread=hundredths / 100)
        if share(predict(times, work, tried)) >= _HOLD:
            return tried.spread
    return 3.0


def without_each_source(times: Sequence[Measurement], work: Work) -> list[Predicted]:
    """Return the predictions for each source by parameters that were fitted to the others."""
    result: list[Predicted] = []
    for source in dict.fromkeys(each.source for each in times):
        others = [each for each in times if each.source != source]
        fitted = fit(others, work)
        result += predict([each for each in times if each.source == source], work, fitted)
    return result


# -- figures ----------------------------------------------------------------------------------------------------------


def share(predicted: Sequence[Predicted]) -> float:
    """Return the share of the intervals that hold."""
    return sum(each.holds for each in predicted) / len(predicted)


def median(predicted: Sequence[Predicted]) -> float:
    """Return the median of the absolute residuals."""
    return statistics.median(abs(each.residual) for each in predicted)


def right_side(predicted: Sequence[Predicted]) -> float:
    """Return how often the faster of GPU and CPU is named, where both were measured."""
    both = [each for each in predicted if each.measurement.cpu_seconds]
    return sum(each.is_right_side for each in both) / len(both)


def figures(predicted: Sequence[Predicted]) -> str:
    """Return the three figures in a line."""
    both = sum(bool(each.measurement.cpu_seconds) for each in predicted)
    return (
        f"{len(predicted)} times: {share(predicted):.0%} of the intervals hold, "
        f"median |log2(middle / measured)| {median(predicted):.2f}, "
        f"CPU or GPU right in {right_side(predicted):.0%} of {both}"
    )


def main() -> None:
    """Do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("capture", "fit", "page", "show"))
    what = parser.parse_args().what
    if what == "capture":
        capture()
        return
    times, work = measurements().times, workloads()
    if what == "fit":
        fitted = fit(times, work)
        rounded = {
            name: float(f"{value:.3g}") for name, value in msgspec.structs.asdict(fitted).items()
        }
        content = {"schema": 1, "parameters": rounded}
        _FIT.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        print(_FIT.read_text())
        print(figures(predict(times, work, fitted)))
        print("each source by the others:", figures(without_each_source(times, work)))
    for each in predict(times, work, load_parameters()) if what == "show" else ():
        m = each.measurement
        print(
            f"{each.residual:+.2f} {'' if each.holds else 'MISS'} {m.id} {m.chip} {m.seconds:.4g} [{each.gpu.low:.4g},{each.gpu.high:.4g}] {each.bound}",
            f"cpu {m.cpu_seconds:.4g} [{each.cpu.low:.3g},{each.cpu.high:.3g}] {'' if each.is_right_side else 'WRONG SIDE'}"
            if m.cpu_seconds
            else "",
        )


if __name__ == "__main__":
    main()
