"""What the results of a sweep come to, counted: by library, release, operator and owner of a failure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from opcheck.common.vocabulary import HEADLINES
from opcheck.project.sweep.attribution import attribute
from opcheck.project.sweep.records import Failed, Result

#: operators that are named for each release
MOST = 10

#: What stops a model that sets no variable, and what only slows it: the status and kind of a call.
STOPS = (("unsupported", ""), ("fallback", "env"), ("unknown", ""))
_FAILS, _COULD_NOT_TELL, _ONLY_WITH, _PARTLY, _NATIVELY = HEADLINES
RUNS = frozenset({_PARTLY, _NATIVELY})


class Harm(NamedTuple):
    """What one operator does to models on a target."""

    op: str
    #: status and kind of its calls, the worst that a model meets
    outcomes: tuple[str, ...]
    #: models and modes that it stops; that it sends to the CPU without stopping them; families of both
    stopped: int
    slowed: int
    families: int


class Brought(NamedTuple):
    """What changes from one release to the next, on the same macOS."""

    #: models and modes that run from here on, without a variable, and did not before
    runs: tuple[str, ...]
    #: that run natively from here on
    natively: tuple[str, ...]
    #: that ran and do so no more
    lost: tuple[str, ...]


class Summary:
    """The results of a sweep by model and mode, and by target."""

    def __init__(
        self, results: Iterable[Result], targets: Sequence[str], modes: Sequence[str]
    ) -> None:
        self.targets = tuple(targets)
        self.modes = tuple(modes)
        #: (model, mode) -> headline by target
        self.headlines: dict[tuple[str, str], dict[str, str]] = {}
        #: model -> library, family
        self.homes: dict[str, tuple[str, str]] = {}
        self.failures: list[tuple[Result, Failed]] = []
        self.seconds = 0.0
        self.captures = 0
        #: target -> operator -> status and kind -> models and modes
        self._met: dict[str, dict[str, dict[tuple[str, str], set[tuple[str, str]]]]] = {}
        for result in results:
            self._add(result)

    def _add(self, result: Result) -> None:
        who = result.model.spec, result.mode
        told = {name: one.headline for one in result.outcomes for name in one.targets}
        self.headlines[who] = {name: told.get(name, _COULD_NOT_TELL) for name in self.targets}
        self.homes[result.model.spec] = result.model.library, result.model.family
        self.failures += [(result, failure) for failure in result.failures]
        self.seconds += result.seconds
        self.captures += result.captures
        for outcome in result.outcomes:
            for native in outcome.not_native:
                for name in outcome.targets:
                    met = self._met.setdefault(name, {}).setdefault(native.op, {})
                    met.setdefault((native.status, native.kind), set()).add(who)

    @property
    def newest(self) -> dict[str, str]:
        """For each torch release of the sweep its target with the newest macOS; the newest release last."""
        return {_torch(name): name for name in self.targets}

    def counts(self, target: str, mode: str, library: str = "") -> Counter[str]:
        """Models by headline."""
        return Counter(
            told[target]
            for (model, of), told in self.headlines.items()
            if of == mode and library in {"", self.homes[model][0]}
        )

    def libraries(self) -> tuple[str, ...]:
        """Those that models are of, the largest first."""
        return tuple(
            name for name, _ in Counter(home for home, _ in self.homes.values()).most_common()
        )

    def families(self, target: str) -> dict[tuple[str, str], Counter[str]]:
        """By library and family the headlines of models and modes: those where not all run natively."""
        found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for (model, _), told in self.headlines.items():
            found[self.homes[model]][told[target]] += 1
        return {home: counts for home, counts in sorted(found.items()) if set(counts) - {_NATIVELY}}

    def harms(self, target: str) -> tuple[Harm, ...]:
        """The operators that stop most models there, then those that slow most."""
        found = []
        for op, met in self._met.get(target, {}).items():
            stopped = set().union(*(who for outcome, who in met.items() if outcome in STOPS))
            others = set().union(*met.values()) - stopped
            families = {self.homes[model] for model, _ in stopped | others}
            words = tuple(sorted(f"{status} {kind}".strip() for status, kind in met))
            found.append(Harm(op, words, len(stopped), len(others), len(families)))
        return tuple(sorted(found, key=lambda harm: (-harm.stopped, -harm.slowed, harm.op)))

    def brought(self, before: str, target: str) -> Brought:
        """What a target's models do that they did not on the one before, and the other way round."""
        runs, natively, lost = [], [], []
        for (model, mode), told in self.headlines.items():
            old, new, name = told[before], told[target], f"{model} ({mode})"
            if new in RUNS and old not in RUNS:
                runs.append(name)
            elif new == _NATIVELY and old != _NATIVELY:
                natively.append(name)
            elif old in RUNS and new not in RUNS:
                lost.append(name)
        return Brought(tuple(runs), tuple(natively), tuple(lost))

    def owners(self) -> dict[str, list[tuple[Result, Failed, str]]]:
        """The failures by whose they are, with the reason for that."""
        found: dict[str, list[tuple[Result, Failed, str]]] = defaultdict(list)
        for result, failed in self.failures:
            owner, why = attribute(result.model.spec, failed)
            found[owner].append((result, failed, why))
        return found


def _torch(target: str) -> str:
    return target.partition("/")[0]
