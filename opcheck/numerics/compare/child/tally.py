"""Counts the outcomes of a comparison's calls, and makes records of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from opcheck.numerics.child.closeness import dtype_name
from opcheck.numerics.child.kept_tensors import KeptTensor
from opcheck.numerics.child.tally import LineTally, finite_digits
from opcheck.numerics.compare.child.compare_mode import ComparedCall
from opcheck.numerics.compare.records import ComparedOperator, Wrong
from opcheck.tracing.call_sites import CallSites
from opcheck.tracing.torch_private.trees import tree_leaves


class _Worst:
    """The worst of the wrong calls of one operator at one line, and the tensors that it was called with."""

    judged: ComparedCall | None = None
    inputs: tuple[str, ...] = ()


class _OperatorCounts:
    """All calls of one operator."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.error = 0.0


class CompareTally:
    """The outcomes of all calls."""

    def __init__(self, sites: CallSites) -> None:
        self.calls = 0
        self.outcomes: Counter[str] = Counter()
        #: the first wrong call, with its arguments
        self.first: ComparedCall | None = None
        self._sites = sites
        self._wrong: LineTally[_Worst] = LineTally(_Worst)
        self._operators: dict[str, _OperatorCounts] = {}

    def add(self, judged: ComparedCall) -> None:
        """Count one call, while it is being made."""
        index, self.calls = self.calls, self.calls + 1
        self.outcomes[judged.outcome] += 1
        operator = self._operators.setdefault(judged.op, _OperatorCounts())
        operator.outcomes[judged.outcome] += 1
        # For each call: this also notes which node of backward belongs to the line.
        here = self._sites.here()
        if judged.reason:
            operator.reasons[judged.reason] += 1
        elif judged.outcome != "wrong":
            operator.error = max(operator.error, judged.worst.error)
        else:
            self.first = self.first or judged
            worst = self._wrong.add(judged.op, here, index, judged.worst.kind).value
            if worst.judged is None or judged.worst.error > worst.judged.worst.error:
                # Without its arguments: they may be large.
                worst.judged = judged._replace(call=judged.call._replace(args=(), kwargs={}))
                worst.inputs = specs(judged.call.args, judged.call.kwargs)

    def wrong(self) -> Iterator[Wrong]:
        """Yield the wrong calls, in the order of their first ones."""
        for row in self._wrong:
            judged = row.value.judged
            assert judged is not None
            assert judged.dtype is not None
            measured = judged.worst
            yield Wrong(
                op=row.key.op,
                kind=measured.kind,
                place=row.place,
                first=row.first,
                output=judged.output,
                dtype=dtype_name(judged.dtype),
                element=measured.element,
                found=measured.found,
                exact=measured.exact,
                error=finite_digits(measured.error),
                error_cpu=None if judged.cpu is None else finite_digits(judged.cpu),
                inputs=row.value.inputs,
            )

    def operators(self) -> Iterator[ComparedOperator]:
        """Return the operators in the order of their names."""
        for op, operator in sorted(self._operators.items()):
            compared = operator.outcomes["agrees"] + operator.outcomes["loose"]
            yield ComparedOperator(
                op=op,
                calls=operator.outcomes.total(),
                outcomes=dict(operator.outcomes),
                error=finite_digits(operator.error) if compared else None,
                reasons=dict(operator.reasons),
            )


def specs(*kept: Any) -> tuple[str, ...]:
    """Return the kept tensors among arguments, as ``2x3:float32``."""
    return tuple(
        f"{'x'.join(map(str, leaf.size)) or 'scalar'}:{dtype_name(leaf.dtype)}"
        + ("" if _is_contiguous(leaf) else f" strides {leaf.stride}")
        for leaf in tree_leaves(kept)
        if isinstance(leaf, KeptTensor)
    )


def _is_contiguous(kept: KeptTensor) -> bool:
    return torch.empty(kept.size, device="meta").stride() == kept.stride or 0 in kept.size
