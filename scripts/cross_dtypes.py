"""Cross what is known of dtypes from three independent sources, and print where they contradict.

Usage: python -m scripts.cross_dtypes [RELEASE-LINE ...] [--macos 15.0]

1. PyTorch's own CI (op_lists/opinfo): with which dtypes an operator's test is expected to pass or to fail.
2. The names of the Metal kernels in the wheels (op_lists/extracted/metal.json).
3. Our verdicts, which follow the texts of the checks (op_lists/limitations) and the dtypes that no backend
   computes (op_lists/refused_dtypes.json).

An OpInfo speaks of one overload only where its samples reach no other one that decides; a family of
kernels speaks of the operator of the same name.  A dtype without a kernel of its own proves nothing
(it may be cast or go through MPSGraph), so that only a kernel which is there can contradict.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from opcheck.data import opinfo
from opcheck.data.extracted import read_metal
from opcheck.data.history import expand
from opcheck.data.registrations import data_directory, load
from opcheck.lookup.plain_call import OperatorLookup, target
from scripts.opinfo import reference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opcheck.common.versions import Target

#: Overloads that nearly every sample reaches, and that no OpInfo is about.
_EVERYWHERE = {"aten::as_strided", "aten::empty.memory_format", "aten::empty_strided", "aten::view"}


class Contradiction(NamedTuple):
    """An overload and a dtype of which a source and our verdict say different things."""

    line: str
    op: str
    dtype: str
    source: str
    verdict: str


def contradictions(line: str, aim: Target, lookup: OperatorLookup) -> Iterator[Contradiction]:
    """Yield what contradicts our verdicts in a release."""
    for op, dtype, state in expected(line):
        status = lookup.state(op, aim, dtype).status
        if (state == "pass" and status == "unsupported") or (
            state == "xfail" and status == "native"
        ):
            yield Contradiction(line, op, dtype, f"OpInfo expects it to {state}", status)
    for op, dtypes in kernels(line, lookup.lists.operators(line)).items():
        for dtype in dtypes:
            status = lookup.state(op, aim, dtype).status
            if status == "unsupported":
                yield Contradiction(line, op, dtype, "a Metal kernel is there", status)


def expected(line: str) -> Iterator[tuple[str, str, str]]:
    """Yield the overloads that an OpInfo alone is about, with each dtype that it ran and what is expected."""
    evaluation = opinfo.read(line)
    if evaluation is None:
        return
    cpu = reference.load()
    for name in evaluation.opinfos:
        calls = [op for op in evaluation.calls(name) if op not in _EVERYWHERE]
        if len(calls) != 1:
            continue
        for dtype, state in evaluation.dtypes(name, "forward").items():
            if state in {"pass", "xfail"} and not cpu.explains("forward", name, dtype):
                yield calls[0], dtype, state


def kernels(line: str, operators: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the dtypes in the names of the Metal kernels whose first word is an operator's name."""
    metal = read_metal(data_directory())
    lines = tuple(release.line for release in load().releases)
    found: dict[str, set[str]] = {}
    for family, history in metal.operators.items():
        value = expand(history, lines).get(line)
        base = family.partition("_*")[0].partition("_#")[0]
        if not value or not family.endswith("*"):
            continue
        for op in (f"aten::{base}", f"aten::{base}.Tensor"):
            if op in operators:
                found.setdefault(op, set()).update(value.split(" | ")[-1].split())
    return found


def main() -> int:
    """Print the contradictions and how many pairs agree; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", nargs="*", help="release lines; all that were recorded by default")
    parser.add_argument("--macos", default="15.0")
    options = parser.parse_args()
    lookup = OperatorLookup(load())
    total: Counter[str] = Counter()
    for line in options.lines or opinfo.lines():
        aim = target(line, options.macos)
        rows = sorted(set(contradictions(line, aim, lookup)))
        pairs = len(set(expected(line)))
        named = sum(map(len, kernels(line, lookup.lists.operators(line)).values()))
        for row in rows:
            print(f"{row.line}  {row.op}  {row.dtype}: {row.source}, our verdict is {row.verdict}")
            total[row.source] += 1
        print(f"{line}: {pairs} pairs of OpInfo, {named} of kernels, {len(rows)} contradictions")
    for source, count in total.most_common():
        print(f"{source}, in contradiction: {count}")
    return int(bool(total))


if __name__ == "__main__":
    sys.exit(main())
