"""Keeps what the calls of a run came to, and makes records of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from opcheck.common.text import any_layer
from opcheck.common.vocabulary import Phase
from opcheck.model.records import GroupLocation
from opcheck.numerics.compare.closeness import dtype_name
from opcheck.numerics.compare.compare_mode import Judged
from opcheck.numerics.compare.records import Operator, Wrong
from opcheck.numerics.compare.snapshot import Kept
from opcheck.numerics.precision.shadow_mode import Places
from opcheck.tracing.source_locations import locate


class _Worst:
    """All wrong calls of one operator at one line."""

    def __init__(self, judged: Judged, first: int) -> None:
        self.first = first
        self.judged = judged
        self.modules: Counter[str] = Counter()


class _Sum:
    """All calls of one operator."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.error = 0.0


class Tally:
    """What all calls came to."""

    def __init__(self, places: Places) -> None:
        self.calls = 0
        self.outcomes: Counter[str] = Counter()
        #: the first wrong call, with its arguments
        self.first: Judged | None = None
        self._places = places
        self._wrong: dict[tuple[str, str, Any, str, Phase], _Worst] = {}
        self._ops: dict[str, _Sum] = {}

    def add(self, judged: Judged) -> None:
        """Count one call, while it is being made."""
        index, self.calls = self.calls, self.calls + 1
        self.outcomes[judged.outcome] += 1
        op = judged.func.name()
        row = self._ops.setdefault(op, _Sum())
        row.outcomes[judged.outcome] += 1
        # Always asked: it also notes which node of backward belongs to this line.
        site, module, phase = self._places.here()
        if judged.reason:
            row.reasons[judged.reason] += 1
        elif judged.outcome != "wrong":
            row.error = max(row.error, judged.worst.error)
        else:
            self.first = self.first or judged
            key = (op, judged.worst.kind, site, any_layer(module), phase)
            slim = judged._replace(kept=specs(judged.kept))
            worst = self._wrong.setdefault(key, _Worst(slim, index))
            worst.modules[module] += 1
            if judged.worst.error > worst.judged.worst.error:
                worst.judged = slim

    def wrong(self) -> Iterator[Wrong]:
        """In the order of their first calls."""
        for (op, kind, site, pattern, phase), one in self._wrong.items():
            name = next(iter(one.modules)) if len(one.modules) == 1 else pattern
            worst = one.judged.worst
            assert one.judged.dtype is not None
            yield Wrong(
                op=op,
                kind=kind,  # type: ignore[arg-type]  # it was one before it was a key
                place=GroupLocation.at(
                    locate(site), module=name, phase=phase, count=one.modules.total()
                ),
                first=one.first,
                output=one.judged.output,
                dtype=dtype_name(one.judged.dtype),
                element=worst.element,
                found=worst.found,
                exact=worst.exact,
                error=digits(worst.error),
                error_cpu=None if one.judged.cpu is None else digits(one.judged.cpu),
                inputs=one.judged.kept,
            )

    def operators(self) -> Iterator[Operator]:
        """In the order of their names."""
        for op, row in sorted(self._ops.items()):
            compared = row.outcomes["agrees"] + row.outcomes["loose"]
            yield Operator(
                op=op,
                calls=row.outcomes.total(),
                outcomes=dict(row.outcomes),
                error=digits(row.error) if compared else None,
                reasons=dict(row.reasons),
            )


def digits(number: float) -> float | None:
    """Two digits: the others depend on the machine; None for what JSON has no word for."""
    return float(f"{number:.1e}") if math.isfinite(number) else None


def specs(kept: Any) -> tuple[str, ...]:
    """The tensors among the arguments, as ``2x3:float32``."""
    leaves: list[Kept] = []

    def walk(value: Any) -> None:
        if isinstance(value, Kept):
            leaves.append(value)
        elif isinstance(value, dict):
            walk(list(value.values()))
        elif isinstance(value, (list, tuple)):
            for one in value:
                walk(one)

    walk(kept)
    return tuple(
        f"{'x'.join(map(str, leaf.size)) or 'scalar'}:{dtype_name(leaf.dtype)}"
        + ("" if _plain(leaf) else f" strides {leaf.stride}")
        for leaf in leaves
    )


def _plain(kept: Kept) -> bool:
    return torch.empty(kept.size, device="meta").stride() == kept.stride or 0 in kept.size
