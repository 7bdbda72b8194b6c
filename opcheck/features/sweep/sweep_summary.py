"""Counts the results of a sweep by library, release, operator and owner of a failure."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from opcheck.common.grouping import group_values
from opcheck.common.vocabulary import HEADLINES
from opcheck.common.yaml_text import load_shipped
from opcheck.features.sweep.sweep_records import MissingVerdict, SweepResult

#: operators that are named for each release
MOST = 10

#: The status and kind of calls that stop a model without the variable, and of those that only slow it.
STOPS = (("unsupported", ""), ("fallback", "env"), ("unknown", ""))
_FAILS, _COULD_NOT_TELL, _ONLY_WITH, _PARTLY, _NATIVELY = HEADLINES
RUNS = frozenset({_PARTLY, _NATIVELY})


#: by status and kind of an operator's calls, the models and modes that meet them
_Statuses = dict[tuple[str, str], set[tuple[str, str]]]


class Harm(NamedTuple):
    """The effect of an operator on the models of a target."""

    op: str
    #: status and kind of its calls, the worst that a model meets
    outcomes: tuple[str, ...]
    #: models and modes that it stops; that it sends to the CPU without stopping them; families of both
    stopped: int
    slowed: int
    families: int


class Summary:
    """The results of a sweep by model and mode, and by target."""

    def __init__(self, results: Iterable[SweepResult], targets: Sequence[str], modes: Sequence[str]) -> None:
        self.targets, self.modes = tuple(targets), tuple(modes)
        #: (model, mode) -> headline by target
        self.headlines: dict[tuple[str, str], dict[str, str]] = {}
        #: model -> library, family
        self.homes: dict[str, tuple[str, str]] = {}
        #: owner -> failures, each with the reason for the attribution
        self.owners: dict[str, list[tuple[SweepResult, MissingVerdict, str]]] = defaultdict(list)
        self.seconds = 0.0
        self.captures = 0
        #: target -> operator -> status and kind -> models and modes
        self._operator_statuses: dict[str, dict[str, _Statuses]] = defaultdict(lambda: defaultdict(dict))
        for result in results:
            self._add(result)

    def _add(self, result: SweepResult) -> None:
        who = result.model.spec, result.mode
        headlines = {name: each.headline for each in result.outcomes for name in each.targets}
        self.headlines[who] = {name: headlines.get(name, _COULD_NOT_TELL) for name in self.targets}
        self.homes[result.model.spec] = result.model.library, result.model.family
        for failure in result.failures:
            owner, why = attribute(result.model.spec, failure)
            self.owners[owner].append((result, failure, why))
        self.seconds += result.seconds
        self.captures += result.captures
        for outcome in result.outcomes:
            for native in outcome.not_native:
                for name in outcome.targets:
                    statuses = self._operator_statuses[name][native.op]
                    statuses.setdefault((native.status, native.kind), set()).add(who)

    @property
    def newest(self) -> dict[str, str]:
        """Return for each torch release its target with the newest macOS; the newest release last."""
        return {name.partition("/")[0]: name for name in self.targets}

    def counts(self, target: str, mode: str, library: str = "") -> Counter[str]:
        """Count models by headline."""
        rows = ((who, each[target]) for who, each in self.headlines.items() if who[1] == mode)
        return Counter(h for who, h in rows if library in {"", self.homes[who[0]][0]})

    def libraries(self) -> tuple[str, ...]:
        """Return the libraries of the models, the largest first."""
        counts = Counter(home for home, _ in self.homes.values())
        return tuple(name for name, _ in counts.most_common())

    def families(self, target: str) -> dict[tuple[str, str], Counter[str]]:
        """Count headlines by library and family, for families with models that do not run natively."""
        by_family: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for (model, _), headlines in self.headlines.items():
            by_family[self.homes[model]][headlines[target]] += 1
        return {home: by_family[home] for home in sorted(by_family) if {*by_family[home]} - {_NATIVELY}}

    def harms(self, target: str) -> tuple[Harm, ...]:
        """Return the operators by how many models they stop on the target, then by how many they slow."""
        harms = []
        for op, statuses in self._operator_statuses.get(target, {}).items():
            stopped = set().union(*(who for outcome, who in statuses.items() if outcome in STOPS))
            others = set().union(*statuses.values()) - stopped
            families = {self.homes[model] for model, _ in stopped | others}
            words = tuple(sorted(f"{status} {kind}".strip() for status, kind in statuses))
            harms.append(Harm(op, words, len(stopped), len(others), len(families)))
        return tuple(sorted(harms, key=lambda harm: (-harm.stopped, -harm.slowed, harm.op)))

    def brought(self, before: str, target: str) -> dict[str, list[str]]:
        """Return the models and modes that run newly on a target, natively newly, and no more, by these words."""
        changes = ((who, each[before], each[target]) for who, each in self.headlines.items())
        return group_values((_change(old, new), f"{model} ({mode})") for (model, mode), old, new in changes)


def _change(old: str, new: str) -> str:
    if new in RUNS and old not in RUNS:
        return "runs"
    if new == _NATIVELY and old != _NATIVELY:
        return "natively"
    return "lost" if old in RUNS and new not in RUNS else ""


_FAILURES: dict[str, Any] = load_shipped(__file__, "known_failures.yaml")
#: The owners of failures, each in words.
OWNERS: dict[str, str] = _FAILURES["owners"]
MODELS, PYTORCH, OURS = OWNERS


def attribute(spec: str, result: MissingVerdict) -> tuple[str, str]:
    """Return the owner of the failure of a model that has no verdict, and the reason."""
    text = f"{spec}: {result.message}"
    # The first match decides.  Without an entry a failure that is not reproduced without opcheck is opcheck's, and so
    # is a failure with inputs that opcheck made.
    for known in _FAILURES["known"]:
        # An entry may apply only if the model also fails without opcheck.
        if re.search(known["pattern"], text) and (_same(result) or not known.get("reproduced")):
            return known["owner"], known["why"]
    owner, why = OURS, "runs without opcheck" if result.plain == "runs" else "another failure"
    if result.problem == "nothing_to_train":
        owner, why = MODELS, "it has no parameter, or no result, that a training step could change"
    elif result.stage == "load" and _same(result):
        owner, why = MODELS, "the library does not build it from its own default configuration"
    elif result.stage == "inputs":
        why = "opcheck cannot make its inputs"
    elif _same(result):
        why = "refuses the inputs that opcheck made, also on a CPU"
    elif "NotImplementedError" in result.message and "meta" in result.message.lower():
        owner, why = PYTORCH, "the operator has no rule for shapes without values"
    return owner, why


def _same(result: MissingVerdict) -> bool:
    """Return whether the model raises the same type of error without opcheck."""
    kind = result.plain.partition(":")[0]
    return kind not in ("", "runs") and f" {kind}: " in f" {result.problem}: {result.message}"
