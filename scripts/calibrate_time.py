"""Fit the parameters of the time estimate to published times, and write what they predict.

Usage: python -m scripts.calibrate_time {capture | fit | page}

``capture`` audits each program of scripts/timing/measurements.yaml and keeps its work in scripts/timing/workloads.json;
``fit`` chooses the parameters of op_lists/speed_fit.json, and prints the residuals of each source by parameters that
were fitted without it; ``page`` writes the table of docs/explanation/time.md.
"""

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opcheck.capture.request import CaptureOptions, find_source, request_of
from opcheck.common.text import duration
from opcheck.data.chips import CHIPS, FIT, Gpu, Parameters
from opcheck.data.registrations import load
from opcheck.data.targets import target
from opcheck.judge.timing.estimates import Interval, estimate
from opcheck.model.records import Workload
from opcheck.orchestrator import audit
from scripts.pages import ROOT, narrow_table, replace_between

_TIMING = Path(__file__).with_name("timing")
_MEASUREMENTS, _WORKLOADS = _TIMING / "measurements.yaml", _TIMING / "workloads.json"
_FIT = ROOT / "op_lists/speed_fit.json"
_PAGE = ROOT / "docs/explanation/time.md"
_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"
#: The share of the published times that the intervals must hold, of each source by the others.
_HOLD = 0.85
#: ... and of the times on the CPU, whose libraries differ more between the sources than the chips do.
_CPU_HOLD = 0.7


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
    loading: bool = False

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the Mac may have had."""
        sold = CHIPS.load().chips[self.chip].gpus
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
    def cpu_holds(self) -> bool:
        """Return whether the interval of the CPU contains its time."""
        return self.cpu.low <= self.measurement.cpu_seconds <= self.cpu.high

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
        (estimate(work[f"{name}@{each.torch}"], each.chip, each.gpus, parameters), times) for name, times in each.parts
    ]
    low, high, cpu_low, cpu_high = (
        sum(getattr(part, f"{end}_seconds") * times for part, times in parts)
        for end in ("low", "high", "cpu_low", "cpu_high")
    )
    return Predicted(each, Interval(low, high), Interval(cpu_low, cpu_high), parts[0][0].bound)


# -- capture ----------------------------------------------------------------------------------------------------------


def capture() -> None:
    """Audit each program on each release that a time is of, and keep its work."""
    content, lists = measurements(), load()
    wanted = sorted({f"{name}@{each.torch}" for each in content.times for name, _ in each.parts})
    result: Work = {}
    for key in wanted:
        name, _, torch = key.partition("@")
        options = dict(content.programs[name])
        model = options.pop("model")
        inputs, called = tuple(options.pop("inputs")), tuple(options.pop("call", ()))
        capture = CaptureOptions(inputs=inputs, call=called, **options)
        request = request_of(find_source(model, capture), target(torch, None, lists, fallback=True), capture)
        report = audit(request, lists)
        if not report.workloads:
            sys.exit(f"{key}: {report.headline}: {report.problems}")
        result[key] = report.workloads[0]
        print(key, report.headline, report.totals["calls"], file=sys.stderr)
    _WORKLOADS.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=0))


# -- fit --------------------------------------------------------------------------------------------------------------

#: Where the search begins, and how far it may go, as a factor.
_PRIOR = msgspec.yaml.decode((_TIMING / "prior.yaml").read_bytes(), type=Parameters)
_FACTOR = 4.0
#: The largest residual that counts: what no model of the calls explains, such as data loading, moves nothing further.
_CAP = 1.5
_SHARES = tuple(name for name in _PRIOR.__struct_fields__ if name.startswith(("gpu_", "cpu_")))
_STEPS = (1.5, 1.2, 1.07, 1.02)
#: The bounds of a time that the GPU takes.
_BUSY = ("compute", "memory")
_SPREADS = tuple(name for name in _PRIOR.__struct_fields__ if name.endswith("spread"))
_MIDDLES = tuple(name for name in _PRIOR.__struct_fields__ if name not in _SPREADS)
#: What being a factor of two away from the prior costs, in residuals: what few times decide stays near it.
_PULL = 0.25


def fit(times: Sequence[Measurement], work: Work) -> Parameters:
    """Return the parameters with the least residuals, and spreads that hold what they were not fitted to."""
    return _with_spreads(without_each_source(times, work), work, _fit_middles(times, work))


def _fit_middles(measured: Sequence[Measurement], work: Work) -> Parameters:
    """Return the parameters with the least weighted residuals, each source counted by the root of its times."""
    times = [each for each in measured if not each.loading]
    result = _PRIOR
    weights = _weights(times)
    best = _loss(times, work, result, weights)
    for step in _STEPS:
        improved = True
        while improved:
            improved = False
            for name in _MIDDLES:
                for factor in (step, 1 / step):
                    tried = _moved(result, name, factor)
                    loss = _loss(times, work, tried, weights)
                    if loss < best - 1e-9:
                        result, best, improved = tried, loss, True
    return result


def _moved(parameters: Parameters, name: str, factor: float) -> Parameters:
    prior = getattr(_PRIOR, name)
    value = min(max(getattr(parameters, name) * factor, prior / _FACTOR), prior * _FACTOR)
    if name in _SHARES:
        value = min(value, 0.9)
    return msgspec.structs.replace(parameters, **{name: value})


def _weights(times: Sequence[Measurement]) -> dict[str, float]:
    return {name: 1 / math.sqrt(count) for name, count in Counter(each.source for each in times).items()}


def _loss(times: Sequence[Measurement], work: Work, parameters: Parameters, weights: dict[str, float]) -> float:
    total = 0.0
    for each in predict(times, work, parameters):
        weight = weights[each.measurement.source]
        total += weight * min(abs(each.residual), _CAP)
        if each.measurement.cpu_seconds:
            ratio = math.log2(each.cpu.middle / each.measurement.cpu_seconds)
            total += weight * min(abs(ratio), _CAP) / 2
    away = (abs(math.log2(getattr(parameters, name) / getattr(_PRIOR, name))) for name in _MIDDLES)
    return total + _PULL * sum(away)


#: Parameters with the times that they were not fitted to.
Folds = list[tuple[Parameters, list[Measurement]]]


def without_each_source(times: Sequence[Measurement], work: Work) -> Folds:
    """Return for each source its times, and parameters that were fitted to the others."""
    return [
        (
            _fit_middles([each for each in times if each.source != source], work),
            [each for each in times if each.source == source],
        )
        for source in dict.fromkeys(each.source for each in times)
    ]


def predict_folds(folds: Folds, work: Work, spreads: Parameters) -> list[Predicted]:
    """Return the predictions for the times of each source by the others, with the spreads of these parameters."""
    values = {name: getattr(spreads, name) for name in _SPREADS}
    return [each for fitted, times in folds for each in predict(times, work, msgspec.structs.replace(fitted, **values))]


def _with_spreads(folds: Folds, work: Work, parameters: Parameters) -> Parameters:
    """Return the parameters with the smallest spreads that hold ``_HOLD`` of the times of each kind in the folds."""
    result = parameters
    kinds: dict[str, Callable[[Predicted], bool | None]] = {
        "compute_spread": lambda each: each.holds if each.bound == "compute" else None,
        "memory_spread": lambda each: each.holds if each.bound == "memory" else None,
        "launch_spread": lambda each: None if each.bound in _BUSY else each.holds,
        "cpu_spread": lambda each: each.cpu_holds if each.measurement.cpu_seconds else None,
    }
    for name, holds in kinds.items():
        for twentieths in range(8, 60):
            result = msgspec.structs.replace(result, **{name: twentieths / 20})
            predicted = [p for p in predict_folds(folds, work, result) if not p.measurement.loading]
            held = [answer for each in predicted if (answer := holds(each)) is not None]
            if sum(held) >= (_CPU_HOLD if name == "cpu_spread" else _HOLD) * len(held):
                break
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


def page(times: Sequence[Measurement], work: Work) -> str:
    """Return the tables of the page: the parameters, the figures, and each published time."""
    parameters = FIT.load().parameters
    predicted = predict(times, work, parameters)
    others = predict_folds(without_each_source(times, work), work, parameters)
    fitted = msgspec.structs.asdict(parameters).items()
    return "\n\n".join(
        (
            narrow_table(("parameter", "value"), [(name, f"{value:g}") for name, value in fitted]),
            f"By these parameters, {figures(predicted)}.",
            f"Each source by parameters that were fitted to the others: {figures(others)}.",
            _by_source(predicted, others),
            _each_time(predicted),
        )
    )


def _by_source(predicted: Sequence[Predicted], others: Sequence[Predicted]) -> str:
    apart = {each.measurement.id: each for each in others}
    rows = []
    for source in dict.fromkeys(each.measurement.source for each in predicted):
        members = [each for each in predicted if each.measurement.source == source]
        alone = [apart[each.measurement.id] for each in members]
        holding = (sum(each.holds for each in part) for part in (members, alone))
        residuals = (f"{median(part):.2f}" for part in (members, alone))
        rows.append((f"[{source}]({members[0].measurement.url})", len(members), *holding, *residuals))
    return narrow_table(("source", "times", "hold", "by the others", "median residual", "by the others"), rows)


def _each_time(predicted: Sequence[Predicted]) -> str:
    rows = []
    for each in predicted:
        m = each.measurement
        measured, interval = duration(m.seconds, m.seconds), duration(*each.gpu) + " (missed)" * (not each.holds)
        on_cpu = (duration(m.cpu_seconds, m.cpu_seconds), duration(*each.cpu)) if m.cpu_seconds else ("", "")
        rows.append((f"[{m.id}]({m.url})", m.chip, measured, interval, f"{each.residual:+.2f}", each.bound, *on_cpu))
    headers = ("time", "Mac", "measured", "predicted", "residual", "bound", "CPU", "predicted CPU")
    return narrow_table(headers, rows)


def main() -> None:
    """Do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("capture", "fit", "page"))
    what = parser.parse_args().what
    if what == "capture":
        capture()
        return
    times, work = measurements().times, workloads()
    if what == "fit":
        fitted = fit(times, work)
        rounded = {name: float(f"{value:.3g}") for name, value in msgspec.structs.asdict(fitted).items()}
        content = {"schema": 1, "parameters": rounded}
        _FIT.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        print(_FIT.read_text())
        print(figures(predict(times, work, fitted)))
        others = predict_folds(without_each_source(times, work), work, fitted)
        print("each source by the others:", figures(others))
        return
    replace_between(_PAGE, _BEGIN, _END, f"\n\n{page(times, work)}\n\n")


if __name__ == "__main__":
    main()
